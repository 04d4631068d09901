"""problems — every refusal and every fault as one form, by RFC 9457

Owns: the media type application/problem+json, its members, and which status each kind of our errors has.
Guarantees: a client's mistake is 4xx, our own trouble 503 with Retry-After. Nothing of a fault of ours is shown but the
    request's id, by which the log has it.
See: RFC 9457; operate/errors.py for the kinds of refusal; RFC 9110 section 10.2.3 (Retry-After).
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from operate.errors import NotAllowed, NotNow, NotThere, Refused
from shared.config.condition.tree import ConditionError
from shared.errors import ConfigError, DatabaseUnavailable, PillarboxError, is_of_server, lacks_right
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

MEDIA_TYPE: Final = "application/problem+json"
_RETRY: Final = "5"  # seconds after which our trouble may have passed
#: Exit statuses of errors that are about the system, and not about what was asked for.
_OF_SYSTEM: Final = frozenset({DatabaseUnavailable.exit_status, ConfigError.exit_status})
_AS_RESEND: Final = "/emails"
_RESEND_NAMES: Final = {
    401: "missing_api_key",
    403: "invalid_access",
    404: "not_found",
    405: "method_not_allowed",
    409: "validation_error",
    413: "validation_error",
    422: "validation_error",
    429: "rate_limit_exceeded",
}
_MOST_FAULTS: Final = 100
_LONG: Final = 500  # characters of one
#: One word for each status, for programs.
_CODES: Final = {
    400: "bad_request",
    401: "not_authenticated",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "not_now",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "too_many_requests",
    431: "head_too_large",
    500: "fault",
    503: "unavailable",
}


class Fault(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(description="The parameter, or the path to the value in the body, such as body.to[0].")
    why: str = Field(description="What is wrong with it.")


class ProblemForm(BaseModel):
    """Why a request was refused (RFC 9457)."""

    type: str = Field(description="about:blank: the title says it.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The status code.")
    detail: str = Field(description="What is wrong, and what is allowed.")
    code: str = Field(description="The same as one word, for programs.")
    request_id: str | None = Field(None, description="The request's id, as in the log.")
    errors: list[Fault] | None = Field(None, description="Each value that is wrong.")


class Problem(HTTPException):
    """A request that is refused."""

    def __init__(
        self, status: HTTPStatus, detail: str, *, code: str | None = None, retry_after: float | None = None,
        errors: Sequence[Fault] = (), headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        more = dict(headers or {})
        if retry_after is not None:
            more["Retry-After"] = str(max(1, round(retry_after)))
        super().__init__(status.value, detail, more or None)
        self.code = code
        self.errors = list(errors)


def answer(request: Request, error: HTTPException) -> Response:
    """The problem as the answer to a request."""
    headers = dict(error.headers or {})
    content = _content_of(error, getattr(request.state, "request_id", None))
    if error.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.setdefault("Retry-After", _RETRY)
    if request.url.path.startswith(_AS_RESEND):
        return Response(_as_resend(error, content), error.status_code, headers, "application/json")
    return Response(content, error.status_code, headers, MEDIA_TYPE)


def _as_resend(error: HTTPException, content: bytes) -> bytes:
    """The same with the members that Resend's clients read, which take no other media type than JSON."""
    members = json.loads(content)
    names = {"idempotency_key_reused": "invalid_idempotent_request"}
    names["idempotency_key_busy"] = "concurrent_idempotent_requests"
    name = names.get(members["code"]) or _RESEND_NAMES.get(error.status_code, "application_error")
    return json.dumps({**members, "statusCode": error.status_code, "message": members["detail"], "name": name}).encode()


def octets(status: HTTPStatus, detail: str) -> bytes:
    """The whole answer to what never became a request; its connection ends."""
    content = _content(status, detail)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(content)}",
        "Connection: close",
    ]
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        lines.append(f"Retry-After: {_RETRY}")
    return "\r\n".join([*lines, "", ""]).encode() + content


def of(error: Exception) -> HTTPException:
    """The problem that an error of ours is to the client."""
    if isinstance(error, HTTPException):
        return error
    if isinstance(error, (Refused, ConditionError, ConfigError)):
        return _refusal(error)
    if database.refuses_value(error):
        return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, database.reason(error))
    if lacks_right(error):
        return Problem(HTTPStatus.FORBIDDEN, database.reason(error))
    if isinstance(error, database.VANISHED) or is_of_server(error) or database.is_outage(error):
        return unavailable()
    return _of_ours(error)


def _of_ours(error: Exception) -> Problem:
    """The problem for an error that is not a refusal: a fault of the request, of the system, or our own."""
    if isinstance(error, PillarboxError):
        of_system = error.exit_status in _OF_SYSTEM
        return unavailable() if of_system else Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of ours; the log has it by the request's id")


def unavailable(detail: str = "the queue's database does not answer; try again later") -> Problem:
    """Our own trouble, which passes."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, retry_after=float(_RETRY))


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer to a request that ended with an error."""
    return answer(request, noted(error, request))


def invalid(errors: Sequence[Any], place: str | None = None) -> Problem:
    """Values that do not have the form that is asked for, as pydantic tells of them; `place`: where they are."""
    faults = [
        Fault(where=_place([*([place] if place else []), *each["loc"]]), why=_why(str(each["msg"])))
        for each in errors[:_MOST_FAULTS]
    ]
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{faults[0].where}: {faults[0].why}", errors=faults)


def _place(path: Sequence[int | str]) -> str:
    """Where a value is: body.to[0]."""
    parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in path if each != "[key]")
    return "".join(parts).removeprefix(".")[:_LONG]


def _why(text: str) -> str:
    return text.removeprefix("Value error, ")[:_LONG]


def form(problem: HTTPException, request_id: str | None = None) -> ProblemForm:
    """A problem as a part of an answer."""
    members = json.loads(_content_of(problem, request_id))
    return ProblemForm.model_validate(members)


def noted(error: Exception, request: Request) -> HTTPException:
    """The problem that an error is, in the log if it is ours."""
    problem = of(error)
    if problem.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
        events.emit("request.failed", id=getattr(request.state, "request_id", None), error=repr(error))
    elif problem.status_code == HTTPStatus.SERVICE_UNAVAILABLE and error is not problem:
        events.emit(
            "request.unavailable",
            id=getattr(request.state, "request_id", None),
            error=error,
            away=database.is_away(error),
        )
    return problem


def _refusal(error: Refused | ConditionError | ConfigError) -> Problem:
    if isinstance(error, ConfigError):
        return unavailable("a configuration file beside httpd.yaml cannot be used; the log has it by the request's id")
    if isinstance(error, ConditionError):
        return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), code="condition")
    return Problem(_status(error), error.reason)


def _status(error: Refused) -> HTTPStatus:
    if isinstance(error, NotThere):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, NotNow):
        return HTTPStatus.CONFLICT
    return HTTPStatus.FORBIDDEN if isinstance(error, NotAllowed) else HTTPStatus.UNPROCESSABLE_ENTITY


def _content_of(error: HTTPException, request_id: str | None) -> bytes:
    code, errors = getattr(error, "code", None), getattr(error, "errors", ())
    return _content(HTTPStatus(error.status_code), str(error.detail), code, request_id, errors)


def _content(
    status: HTTPStatus,
    detail: str,
    code: str | None = None,
    request_id: str | None = None,
    errors: Sequence[Fault] = (),
) -> bytes:
    members: dict[str, Any] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail if detail != status.phrase else f"{detail.lower()}",
        "code": code or _CODES.get(status.value, "refused"),
    }
    if request_id is not None:
        members["request_id"] = request_id
    if errors:
        members["errors"] = [fault.model_dump() for fault in errors]
    return json.dumps(members, ensure_ascii=False).encode("utf-8", "replace")


_REFERENCE: Final = {"$ref": "#/components/schemas/ProblemForm"}
#: The problems that any route may answer with, for its description.
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": _REFERENCE}}}
    for status in (400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 503)
}


def as_json() -> dict[int | str, dict[str, Any]]:
    """The same, for routes whose clients take no other media type than JSON."""
    content = {"application/json": {"schema": _REFERENCE}}
    return {status: {"description": each["description"], "content": content} for status, each in RESPONSES.items()}
