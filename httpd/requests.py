"""requests — reads a request that sends mail, and answers it

Owns: the media types that are taken; keys of idempotency around a message and around a batch.
Guarantees: each message of a batch has its own answer, and is committed or not by itself; under a key, what a
    broken-off batch has committed is not sent again.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from httpd import problems
from httpd.access.needs import admitted
from httpd.problems import Problem
from httpd.sending import idempotency
from httpd.sending.forms import BATCH, MOST_MESSAGES, SEND, BatchAnswer, Send
from httpd.sending.send import Origin, enveloped, submit
from shared.mail.message import Once

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from starlette.requests import Request

    from httpd.sending.send import Enveloped
    from httpd.service import Service

_JSON: Final = "application/json"
_RFC822: Final = "message/rfc822"
_AT_ONCE: Final = 100  # messages of a batch that are under way together: what shares a commit
_ENVELOPE: Final = ("from", "to", "scheduled_at", "priority")


async def one(request: Request, given: Any = None) -> tuple[UUID, bool]:
    """Send the message of a request: its number, and whether it was sent before under the same key.

    given: what was read of it already.
    """
    service: Service = request.app.state.service
    origin = _origin(request)
    send, content = await _read_one(request) if given is None else (_checked(given), None)
    principal = origin.caller.principal
    key = idempotency.checked(request.headers.get("idempotency-key"))
    once = None
    if key is not None:
        print_ = idempotency.fingerprint(send.model_dump_json().encode(), content or b"")
        once = Once(principal, idempotency.kept(key), print_)
    with service.under_way.begun(principal, key):
        known = await idempotency.earlier(service.pool, service.receiver.spool, [once] if once is not None else [])
        if once is not None and once.key in known:
            return known[once.key], True
        mail = await _enveloped(service, send, content)
        del given, send, content  # the mail takes as much memory, and may wait for its COMMIT
        return await submit(service.receiver.service, origin, mail, once), False


async def batch(
    request: Request, translated: Callable[[Any], Any] | None = None, *, strict: bool = False
) -> list[BatchAnswer]:
    """Send the messages of a request: the answer to each, in their order.

    translated: what a message is in our form; strict: nothing is sent if one of them has another form.
    """
    service: Service = request.app.state.service
    origin = _origin(request)
    _media_type(request, _JSON)
    body = await whole(request)
    try:
        messages = BATCH.validate_json(body)
    except ValidationError as error:
        raise problems.invalid(error.errors(include_url=False), "body") from None
    if not 0 < len(messages) <= MOST_MESSAGES:
        what = f"a batch of {len(messages)} is not taken; allowed: 1 to {MOST_MESSAGES}"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, what)
    if translated is not None:
        messages = [translated(each) for each in messages]
    for number, each in enumerate(messages if strict else ()):
        _checked(each, number)
    key = idempotency.checked(request.headers.get("idempotency-key"))
    principal = origin.caller.principal
    print_ = idempotency.fingerprint(b"batch", body)
    del body  # its messages take as much memory
    keys = [
        None if key is None else Once(principal, idempotency.kept(key, number), print_)
        for number in range(len(messages))
    ]
    turns = asyncio.Semaphore(_AT_ONCE)

    async def sent(given: Any, once: Once | None) -> BatchAnswer:
        async with turns:
            try:
                if once is not None and once.key in known:
                    return BatchAnswer(status=HTTPStatus.ACCEPTED, id=known[once.key], problem=None)
                id_ = await _one_of_many(service, origin, given, once)
                return BatchAnswer(status=HTTPStatus.ACCEPTED, id=id_, problem=None)
            except Exception as error:  # noqa: BLE001 - the answer of one must not take those of the others with it
                problem = problems.noted(error, request)
                return BatchAnswer(status=problem.status_code, id=None, problem=problems.form(problem))

    with service.under_way.begun(principal, key):
        known = await idempotency.earlier(service.pool, service.receiver.spool, [each for each in keys if each])
        return await asyncio.gather(*map(sent, messages, keys))


async def _one_of_many(service: Service, origin: Origin, given: Any, once: Once | None) -> UUID:
    mail = await _enveloped(service, _checked(given), None)
    return await submit(service.receiver.service, origin, mail, once)


def _checked(given: Any, number: int | None = None) -> Send:
    """A message in our form; Problem 422. number: which of a batch."""
    try:
        return SEND.validate_python(given)
    except ValidationError as error:
        place = "body" if number is None else f"body[{number}]"
        raise problems.invalid(error.errors(include_url=False), place) from None


async def _read_one(request: Request) -> tuple[Send, bytes | None]:
    """The message, and its content if it came by itself."""
    kind = _media_type(request, _JSON, _RFC822)
    try:
        if kind == _JSON:
            return SEND.validate_json(await whole(request)), None
        query = request.query_params
        unknown = sorted(set(query) - set(_ENVELOPE))
        if unknown:
            what = f"{unknown[0][:80]} is not a parameter of the envelope; allowed: {', '.join(_ENVELOPE)}"
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, what)
        given: dict[str, Any] = {name: query[name] for name in _ENVELOPE if name in query and name != "to"}
        send = SEND.validate_python({**given, "to": query.getlist("to"), "raw": ""})
    except ValidationError as error:
        place = "body" if kind == _JSON else "query"
        raise problems.invalid(error.errors(include_url=False), place) from None
    return send, await whole(request)


async def whole(request: Request) -> bytes:
    """The body, which the request does not keep, as `request.body()` has it."""
    return b"".join([piece async for piece in request.stream()])


async def _enveloped(service: Service, send: Send, content: bytes | None) -> Enveloped:
    return await enveloped(send, service.receiver.service.hostname, content)


def _origin(request: Request) -> Origin:
    caller = admitted(request.state.caller, "send")
    return Origin(caller, request.state.address, getattr(request.state, "tls", None))


def _media_type(request: Request, *allowed: str) -> str:
    """The media type of the body; Problem 415. Without one it is JSON."""
    kind = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    if kind not in allowed:
        what = f"{kind[:80]} is not taken; allowed: {' or '.join(allowed)}"
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, what)
    return kind
