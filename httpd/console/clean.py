"""clean — takes out of HTML whatever could do something, in a process of its own

Owns: the elements and attributes that stay; the targets of links; the limits of the process.
Guarantees: what stays shows text, tables and pictures that are in the message itself: no script, no form, no style, no
    address. HTML can be made so that any parser works for minutes on it (200,000 nested elements), so the process has
    SECONDS of processor time and OCTETS of memory, and gives up where they do not suffice.
See: https://nh3.readthedocs.io; httpd/console/body.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from contextlib import suppress
from typing import Final, NamedTuple

import nh3

from shared.mail.decode import printable

SECONDS: Final = 2
OCTETS: Final = 2**30
_PATIENCE: Final = 20.0  # seconds by the clock, on a busy machine
_AT_ONCE: Final = 2
_MOST_LINKS: Final = 200
_LONG: Final = 2000  # characters of a target
_TAGS: Final = frozenset(
    (  # noqa: SIM905 - a table
        "a abbr address area b bdi bdo blockquote br caption center cite code col colgroup dd del dfn div dl dt em "
        "figcaption figure font h1 h2 h3 h4 h5 h6 hr i img ins kbd li ol p pre q s samp small span strike strong sub "
        "sup table tbody td tfoot th thead tr tt u ul var"
    ).split()
)
_ATTRIBUTES: Final = {
    "*": {"align", "dir", "lang", "title", "valign", "width", "height"},
    "a": {"href"},
    "area": {"href"},
    "font": {"color", "size"},
    "img": {"alt", "src"},
    "ol": {"start"},
    "table": {"border", "cellpadding", "cellspacing"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
}
#: Of links that are listed; those of any other scheme are none for a mail program either.
_SCHEMES: Final = {
    "http", "https", "mailto", "ftp", "tel", "sms", "javascript", "vbscript", "data", "file", "cid",
}  # fmt: skip
_PICTURES: Final = ("data:image/png", "data:image/jpeg", "data:image/gif", "data:image/webp")
_TURNS: Final = asyncio.Semaphore(_AT_ONCE)


class Cleaned(NamedTuple):
    """HTML without anything active, and where its links lead."""

    html: str
    links: tuple[str, ...]


async def clean(html: str) -> Cleaned | None:
    """The HTML as it may be shown; None where it is too intricate."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    async with _TURNS:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "httpd.console.clean"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
        )
        try:
            async with asyncio.timeout(_PATIENCE):
                made, _ = await process.communicate(html.encode("utf-8", "replace"))
        except TimeoutError:
            made = b""
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        return None
    text, links = json.loads(made)
    return Cleaned(text, tuple(links))


def cleaned(html: str) -> Cleaned:
    """The same, here and now."""
    links: dict[str, None] = {}

    def kept(_: str, name: str, value: str) -> str | None:
        if name == "href":
            if len(links) < _MOST_LINKS:
                links[printable(value.strip(), most=_LONG)] = None
            return None
        if name == "src":
            return value if value.lower().startswith(_PICTURES) else None
        return value

    text = nh3.clean(
        html, tags=set(_TAGS), attributes=_ATTRIBUTES, attribute_filter=kept, url_schemes=_SCHEMES, link_rel=None
    )
    return Cleaned(text, tuple(links))


def main() -> int:
    """Clean what comes on standard input."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (OCTETS, OCTETS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    made = cleaned(sys.stdin.buffer.read().decode("utf-8", "replace"))
    sys.stdout.write(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
