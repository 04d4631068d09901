"""gate — what every request passes on its way in, and every answer on its way out

Owns: request ids; the limit on a body; the refusal of compressed bodies, which a few octets could make endless; one
    event for each answer.
Guarantees: no more of a body is kept than is allowed, whatever the client said its length was. An id from the client is
    used only if it is short and plain.
See: RFC 9110 sections 8.4 (Content-Encoding) and 15.5.14 (413).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from httpd.problems import Problem
from shared.mail.message import new_message_id
from shared.observe import events

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from httpd.service import Service

_PLAIN: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Gate:
    """The application, and what stands around it."""

    def __init__(self, application: ASGIApp, service: Service) -> None:
        self._application = application
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        began = monotonic()
        given = dict(scope["headers"])
        offered = given.get(b"x-request-id", b"")
        request_id = offered.decode() if _PLAIN.fullmatch(offered) else str(new_message_id())
        state: dict[str, Any] = scope["state"]
        state["request_id"] = request_id
        status = 0

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        await self._application(scope, self._limited(given, receive), answering)
        caller = state.get("caller")
        events.emit(
            "request.answered",
            id=request_id,
            client=scope["client"][0] if scope["client"] else None,
            method=scope["method"],
            path=scope["path"],
            status=status,
            seconds=monotonic() - began,
            principal=None if caller is None else caller.principal,
            key=None if caller is None else caller.prefix,
        )

    def _limited(self, given: dict[bytes, bytes], receive: Receive) -> Receive:
        """The body, until it is larger than allowed."""
        most = self._service.config.limits.body
        declared = given.get(b"content-length", b"")
        encoding = given.get(b"content-encoding", b"identity").strip().lower()
        octets = 0

        async def limited() -> Message:
            nonlocal octets
            if encoding not in {b"identity", b""}:
                raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a compressed body is not taken; allowed: identity")
            if declared.isdigit() and int(declared[:20]) > most:
                raise too_large(most)
            message = await receive()
            octets += len(message.get("body", b""))
            if octets > most:
                raise too_large(most)
            return message

        return limited


def too_large(most: int) -> Problem:
    """The refusal of a body."""
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is too large; allowed: up to {most} octets")
