"""site — what all pages of the console have in common: the session, what each role sees, error pages

Guarantees: each page but those for signing in asks for a session and for a role. An error is a page with one clear
    sentence, with the status that the API gives it (httpd/problems.py).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from httpd import problems
from httpd.console import forms
from httpd.console.pages import Pages, seen
from httpd.console.visitor import Visitors, may
from httpd.problems import Problem
from shared.config.condition.tree import ConditionError
from shared.masking import show

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, Response

    from httpd.service import Service
    from operate.sign_in import Session

_ROLES: Final = {
    "read": "viewer, reviewer, operator or admin",
    "review": "reviewer, operator or admin",
    "operate": "operator or admin",
    "administer": "admin",
}


class NotSignedIn(Exception):
    """The page is for people who are signed in."""


class Site:
    """What every page has at hand."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.visitors = Visitors(service)
        self._pages = Pages()

    async def signed_in(self, request: Request, scope: str | None = None) -> Session:
        """Who looks; NotSignedIn, or Problem 403 where the roles do not allow it."""
        session = await self.visitors.session(request)
        if session is None:
            raise NotSignedIn
        request.state.session = session
        if scope is not None and not may(session, scope):
            why = f"{show(session.principal)} may not see this; allowed: people with the role {_ROLES[scope]}"
            raise Problem(HTTPStatus.FORBIDDEN, why)
        return session

    def page(self, name: str, session: Session | None, /, *, status: int = 200, **values: Any) -> HTMLResponse:
        """A page for this person."""
        token = "" if session is None else forms.token(session)
        allowed = {f"may_{scope}": session is not None and may(session, scope) for scope in _ROLES}
        return self._pages.page(name, session, token, {**allowed, **values}, status=status)

    def fragment(self, name: str, /, **values: Any) -> str:
        """A part of a page, the same for all visitors."""
        return self._pages.fragment(name, values)

    async def entrance(self, _: Request) -> Response:
        """Where people arrive who type no path."""
        return seen("/console/")

    async def static(self, request: Request) -> Response:
        """A file that pages load."""
        found = self._pages.static(request.path_params["name"])
        if found is None:
            raise Problem(HTTPStatus.NOT_FOUND, "the file does not exist")
        return found

    async def failed(self, request: Request, error: Exception) -> Response:
        """The page of an error."""
        if isinstance(error, NotSignedIn):
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            after = f"?next={quote(here, safe='')}" if request.method == "GET" and here != "/console/" else ""
            return seen(f"/console/sign-in{after}")
        problem = problems.noted(error, request)
        detail = str(error) if isinstance(error, ConditionError) else str(problem.detail)
        values = {"title": HTTPStatus(problem.status_code).phrase, "detail": detail, "number": request.state.request_id}
        session = getattr(request.state, "session", None)
        answer = self.page("error", session, status=problem.status_code, **values)
        answer.headers.update(problem.headers or {})
        return answer
