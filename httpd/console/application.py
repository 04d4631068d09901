"""application — the console as an application: its pages by their addresses, and its errors as pages

See: httpd/app.py, which serves it beside the API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from httpd.console.acting import Acting
from httpd.console.blocking import Blocking
from httpd.console.configuration import Configuration
from httpd.console.decided import Decided
from httpd.console.digest import Digest
from httpd.console.history import History
from httpd.console.lists import Lists
from httpd.console.now import NowPage
from httpd.console.quarantine import Quarantine
from httpd.console.queue import Queue
from httpd.console.sign_in import SignIn
from httpd.console.site import NotSignedIn, Site
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from httpd.service import Service


_ROOMS: Final = (SignIn, NowPage, Queue, Acting, Quarantine, Decided, Blocking, Lists, History, Configuration, Digest)


def made(service: Service) -> Starlette:
    """The application."""
    site = Site(service)
    kinds = (NotSignedIn, HTTPException, PillarboxError, *database.REFUSAL, *database.OUTAGE, Exception)
    application = Starlette(
        routes=pages_of(site),
        exception_handlers=dict.fromkeys(kinds, site.failed),
    )
    application.router.redirect_slashes = False
    application.state.service = service
    return application


def pages_of(site: Site) -> list[Route]:
    """Every page by its address."""
    return [
        Route("/", site.entrance),
        Route("/console", site.entrance),
        Route("/console/static/{name}", site.static),
        *(route for room in _ROOMS for route in room(site).routes()),
    ]
