"""configuration — the page of the daemons' files: what each key says, and the line to change

Guarantees: reads only: files are changed where they are, and never behind them. Secrets are masked.
See: operate/configuration.py; docs/how-to/operate/operate-in-a-browser.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from operate.configuration import read
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.site import Site


class Configuration:
    """The page."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Its address."""
        return [Route("/console/configuration", self.shown)]

    async def shown(self, request: Request) -> Response:
        """Every file that is here."""
        session = await self._site.signed_in(request, "operate")
        files = self._site.service.files
        kinds = {"smtpd": files.rules, "queued": "queued.yaml", "httpd": "httpd.yaml", "collect": "collect.yaml"}
        found = await asyncio.to_thread(_read, files.folder, kinds)
        return self._site.page("configuration", session, files=found)


def _read(folder: Path, kinds: dict[str, str]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for kind, name in kinds.items():
        path = folder / name
        if not path.is_file():
            continue
        try:
            made.append({"kind": kind, "path": str(path), "file": read(path, kind), "error": ""})
        except ConfigError as error:
            made.append({"kind": kind, "path": str(path), "file": None, "error": str(error)})
    return made
