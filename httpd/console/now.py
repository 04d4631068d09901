"""now — the first page of the console: the system at this moment, which renews itself

Guarantees: one task of httpd reads the figures, and they become HTML once, however many look (httpd/live.py). A stream
    (text/event-stream) brings that HTML to each of them; it ends with the session, and when httpd stops. Browsers open
    it again by themselves, so a restart of httpd is a pause. Without scripts the page has the figures of its loading.
See: https://html.spec.whatwg.org/multipage/server-sent-events.html; httpd/console/static/live.js.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse
from starlette.routing import Route

from httpd.console import minutes
from httpd.console.pages import HEADERS
from httpd.console.visitor import may
from operate.doctor.checks import Severity
from shared.postgres.presence import BEAT
from shared.version import version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.site import Site
    from httpd.live import Reading
    from operate.sign_in import Session

_CHECKED: Final = 30.0  # seconds after which a stream looks whether its session is still valid
_RETRY: Final = 2000  # milliseconds after which a browser opens the stream again


class NowPage:
    """The page and its stream."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._shown: tuple[int, str] = -1, ""

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [Route("/console/now", self.page), Route("/console/now/events", self.events)]

    async def page(self, request: Request) -> Response:
        """The figures as they are."""
        session = await self._site.signed_in(request, "read")
        return self._site.page("now", session, figures=self._html(await self._site.service.live.latest()))

    async def events(self, request: Request) -> Response:
        """The figures as they change."""
        session = await self._site.signed_in(request, "read")
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(session), headers=headers, media_type="text/event-stream")

    async def _stream(self, session: Session) -> AsyncIterator[str]:
        yield f"retry: {_RETRY}\n\n"
        checked = monotonic()
        async for reading in self._site.service.live.readings():
            if monotonic() - checked > _CHECKED:
                checked = monotonic()
                now = await self._site.visitors.numbered(session.id)
                if now is None or not may(now, "read"):
                    yield "event: over\ndata: sign in\n\n"
                    return
            lines = "\n".join(f"data: {line}" for line in self._html(reading).splitlines())
            yield f"event: figures\n{lines}\n\n"
            await asyncio.sleep(0)

    def _html(self, reading: Reading) -> str:
        """The figures as HTML, made once for each reading."""
        if self._shown[0] != reading.number:
            findings = reading.examined.findings
            trouble = None if findings is None else [each for each in findings if each.verdict >= Severity.WARN]
            html = self._site.fragment(
                "figures",
                reading=reading,
                now=reading.figures,
                findings=trouble,
                version=version(),
                beat=round(BEAT.total_seconds()),
                hour=reading.figures and minutes.chart(reading.figures.minutes, reading.figures.at),
            )
            self._shown = reading.number, html
        return self._shown[1]
