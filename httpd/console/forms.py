"""forms — reads what a form of the console sends, if it comes from a page of ours

Owns: the limits on a form; its token; where a request comes from.
Guarantees: a form that changes something counts only from our own pages: the browser says that it comes from there,
    and, in a session, it brings the session's token, which other sites cannot read. A page that was loaded before
    another server took over is refused: its ids may be of other mail by now.
See: sql/README.md, "Ids and timelines";
    https://html.spec.whatwg.org/#url-encoded-form-data; RFC 6454 section 7 (Origin); https://www.w3.org/TR/fetch-metadata/.
"""

from __future__ import annotations

import hashlib
import hmac
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from httpd.problems import Problem
from shared.masking import show

if TYPE_CHECKING:
    from starlette.requests import Request

    from operate.sign_in import Session

_FORM: Final = "application/x-www-form-urlencoded"
_OCTETS: Final = 65_536
_FIELDS: Final = 1100  # a page of ids, and a few more
_STALE: Final = (
    "this form is not from a page of your session, or another server has taken over since it was loaded; load the page "
    "again, and send it once more"
)
_OTHER_SERVER: Final = (
    "another server has taken over since this page was loaded, and its ids may be of other mail; load the list again"
)


class Form:
    """The fields of a form, or of a query, by name."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        self._fields = fields

    def one(self, name: str) -> str:
        """The value of a field; empty without one."""
        return self._fields.get(name, [""])[0]

    def every(self, name: str) -> list[str]:
        """All values of a field."""
        return self._fields.get(name, [])

    def with_nul(self) -> str | None:
        """The first field that has a NUL, which PostgreSQL's text cannot hold."""
        return next((name for name, values in self._fields.items() if any("\0" in each for each in values)), None)


def query_of(request: Request) -> Form:
    """The fields of a request's query."""
    return _parsed(request.url.query)


async def form_of(request: Request, session: Session | None) -> Form:
    """The fields of the form that this request sends; Problem 403, 413, 415 or 422."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"this is not a form; allowed: {_FORM}")
    if not _is_ours(request):
        raise Problem(HTTPStatus.FORBIDDEN, "this form was sent by a page of another site")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _OCTETS:
            raise Problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the form is too large; allowed: up to {_OCTETS} octets"
            )
    form = _parsed(body.decode("utf-8", "replace"))
    if session is None:
        return form
    if not hmac.compare_digest(form.one("token").encode("utf-8", "replace"), token(session).encode()):
        raise Problem(HTTPStatus.FORBIDDEN, _STALE)
    if name := form.with_nul():
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{show(name)}: has a NUL; allowed: other characters")
    return form


def token(session: Session) -> str:
    """What the forms of this session bring, as long as the same server answers."""
    return hmac.digest(session.seal, f"form {session.timeline}".encode(), hashlib.sha256).hex()


def check_ids(form: Form, session: Session) -> None:
    """Problem 409 where the ids of a list, which bring the timeline of its server, may be of other mail by now."""
    if form.one("timeline") not in {"", session.timeline}:
        raise Problem(HTTPStatus.CONFLICT, _OTHER_SERVER)


def _is_ours(request: Request) -> bool:
    """Whether the browser says that a page of ours sends this; other programs send no such field."""
    origin = request.headers.get("origin")
    if origin is not None:
        return origin.partition("://")[2].lower() == request.headers.get("host", "").lower() != ""
    return request.headers.get("sec-fetch-site", "none") in {"same-origin", "none"}


def _parsed(text: str) -> Form:
    try:
        return Form(parse_qs(text, keep_blank_values=True, max_num_fields=_FIELDS))
    except ValueError:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"there are too many fields; allowed: up to {_FIELDS}") from None
