"""gate — what every request passes on its way in, and every answer on its way out

Owns: request ids; the caller, before anything of a body is read; the limits on bodies; the refusal of compressed
    bodies, which a few octets could make endless; one event for each answer.
Guarantees: a request without a valid key is refused here, but for the description of the API, and for the console,
    where people sign in instead. No more of a body is kept than is allowed, whatever the client said its length was. An
    id from the client is used only if it is short and plain.
See: RFC 9110 sections 8.4 (Content-Encoding) and 15.5.14 (413).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from httpd import problems
from httpd.problems import Problem
from shared.mail.message import new_message_id
from shared.observe import events

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from httpd.service import Service

_PLAIN: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
#: What anybody may read.
_OPEN: Final = frozenset({"/v1/openapi.json", "/v1/docs"})
_CONSOLE: Final = ("/console/", "/console-body/")
#: What the links of digests need.
_LINKS: Final = frozenset(
    {"/decide", "/console/static/console.css", "/console/static/console.js", "/console/static/icon.svg"}
)


class Gate:
    """The application, and what stands around it."""

    def __init__(self, application: ASGIApp, console: ASGIApp, service: Service) -> None:
        self._application = application
        self._console = console
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        began = monotonic()
        request = Request(scope)
        offered = request.headers.get("x-request-id", "").encode("latin-1")
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

        body = _Body(self._service, request, receive)
        try:
            try:
                application = self._console if self._is_console(scope["path"]) else self._application
                if scope["path"] not in _OPEN and application is self._application:
                    await self._service.caller(request)
            except Exception as error:  # noqa: BLE001 - each is a problem
                await (await problems.answer_error(request, error))(scope, receive, answering)
            else:
                await application(scope, body.receive, answering)
        finally:
            body.forget()
        caller, session = state.get("caller"), state.get("session")
        events.emit(
            "request.answered",
            id=request_id,
            client=scope["client"][0] if scope["client"] else None,
            method=scope["method"],
            path=scope["path"],
            status=status,
            seconds=monotonic() - began,
            principal=getattr(caller or session, "principal", None),
            key=None if caller is None else caller.prefix,
        )

    def _is_console(self, path: str) -> bool:
        """Whether people ask, who sign in, or have a link, instead of showing a key."""
        console = self._service.config.console
        if console.links and path in _LINKS:
            return True
        return console.enabled and (path in {"/", "/console"} or path.startswith(_CONSOLE))


class _Body:
    """The body of one request, until it is larger than allowed."""

    def __init__(self, service: Service, request: Request, receive: Receive) -> None:
        self._service = service
        self._headers = request.headers
        self._receive = receive
        self._octets = 0

    async def receive(self) -> Message:
        """The next piece; Problem 413, 415 or 503."""
        limits = self._service.config.limits
        if self._octets == 0:
            self._check(limits.body)
        message = await self._receive()
        more = len(message.get("body", b""))
        self._octets += more
        held = self._service.tally.hold(more)
        if self._octets > limits.body:
            raise too_large(limits.body)
        if held > limits.bodies:
            raise problems.unavailable("too many large requests are under way; try again later")
        return message

    def forget(self) -> None:
        """The request is answered."""
        if self._octets:
            self._service.tally.hold(-self._octets)
            self._octets = 0

    def _check(self, most: int) -> None:
        """What the head says of the body."""
        if self._headers.get("content-encoding", "identity").strip().lower() not in {"identity", ""}:
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a compressed body is not taken; allowed: identity")
        declared = self._headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > most:
            raise too_large(most)


def too_large(most: int) -> Problem:
    """The refusal of a body."""
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is too large; allowed: up to {most} octets")
