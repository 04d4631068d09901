"""pages — templates become answers, with the headers that every page of the console has

Owns: the environment of the templates; the security headers; values as people read them.
Guarantees: every value is escaped. A page loads its own stylesheet and script and nothing else, runs no script from a
    message, is in no frame of another site, and is kept by no cache.
See: https://jinja.palletsprojects.com; https://www.w3.org/TR/CSP3/.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jinja2
from starlette.responses import HTMLResponse, RedirectResponse, Response

from operate.doctor.checks import span
from shared.config.units import format_size
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from operate.sign_in import Session

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; frame-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-DNS-Prefetch-Control": "off",
    "X-Frame-Options": "DENY",
}
#: The files that pages load, and their types.
STATIC: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_ROOM: Final = Path(__file__).parent
_TEMPLATES: Final = _ROOM / "templates"


class Pages:
    """The templates, read once."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.DictLoader(
                {
                    each.relative_to(_TEMPLATES).as_posix(): each.read_text(encoding="utf-8")
                    for each in _TEMPLATES.rglob("*.html")
                }
            ),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {"size": format_size, "span": span, "iso": _iso, "utc": _utc}
        self._environment.globals |= {"how_many": how_many}
        self._static = {name: (_ROOM / "static" / name).read_bytes() for name in STATIC}

    def page(
        self,
        name: str,
        session: Session | None,
        token: str,
        values: Mapping[str, Any],
        *,
        status: int = 200,
    ) -> HTMLResponse:
        """A page; `token`: of its forms."""
        text = self._environment.get_template(f"{name}.html").render(session=session, token=token, **values)
        return HTMLResponse(text, status, HEADERS)

    def fragment(self, name: str, values: Mapping[str, Any]) -> str:
        """A part of a page, the same for all visitors."""
        return self._environment.get_template(f"{name}.html").render(values)

    def static(self, name: str) -> Response | None:
        """A file that pages load; it is the same for all visitors."""
        if name not in self._static:
            return None
        headers = {**HEADERS, "Cache-Control": "public, max-age=300"}
        return Response(self._static[name], headers=headers, media_type=STATIC[name])


def template(name: str) -> str:
    """A template as it is written; `name`: with its room, such as review/mail.html."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def seen(path: str) -> RedirectResponse:
    """Go on at another page, by GET."""
    return RedirectResponse(path, 303, HEADERS)


def _iso(moment: datetime) -> str:
    return moment.isoformat()


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment.utcoffset() is not None else str(moment)
