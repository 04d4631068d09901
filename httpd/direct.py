"""direct — requests that send mail reach their route without FastAPI's routing and dependencies

Owns: the choice of that way; the answer to an error on it.
Guarantees: the function that answers is the one that FastAPI describes, and judges its caller itself. An error becomes
    the same problem as everywhere.
See: docs/explanation/benchmarks-http.md; FastAPI's way took a fifth of the processor time of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request

from httpd import problems

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send


class Direct:
    """The application, with a shorter way to some of its routes, by method and path."""

    def __init__(
        self, application: ASGIApp, routes: Mapping[tuple[str, str], Callable[[Request], Awaitable[Response]]]
    ) -> None:
        self._application = application
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        route = self._routes.get((scope["method"], scope["path"]))
        if route is None:
            await self._application(scope, receive, send)
            return
        scope["app"] = self._application
        request = Request(scope, receive)
        try:
            answer = await route(request)
        except Exception as error:  # noqa: BLE001 - each is a problem
            answer = await problems.answer_error(request, error)
        await answer(scope, receive, send)
