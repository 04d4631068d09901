"""application — the console as an application: its pages by their addresses, and its errors as pages

See: httpd/app.py, which serves it beside the API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from httpd.console.blocking import Blocking
from httpd.console.decided import Decided
from httpd.console.quarantine import Quarantine
from httpd.console.sign_in import SignIn
from httpd.console.site import NotSignedIn, Site
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from httpd.service import Service


def made(service: Service) -> Starlette:
    """The application."""
    site = Site(service)
    kinds = (NotSignedIn, HTTPException, PillarboxError, *database.REFUSAL, *database.OUTAGE, Exception)
    application = Starlette(
        routes=[
            Route("/", site.entrance),
            Route("/console", site.entrance),
            Route("/console/static/{name}", site.static),
            *SignIn(site).routes(),
            *Quarantine(site).routes(),
            *Decided(site).routes(),
            *Blocking(site).routes(),
        ],
        exception_handlers=dict.fromkeys(kinds, site.failed),
    )
    application.router.redirect_slashes = False
    application.state.service = service
    return application
