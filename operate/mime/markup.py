"""markup — the HTML of a message, and the hashes of its attachments

Owns: decoding a part whole: its HTML as text, its octets as a hash.
Guarantees: pure; never raises. The HTML is as hostile as it came, and must be cleaned before it is shown. At most
    MOST_HTML octets of a part become text.
See: operate/mime/parts.py, operate/mime/render.py.
"""

from __future__ import annotations

import hashlib
import quopri
from typing import TYPE_CHECKING, Final, NamedTuple

from operate.mime.parts import header_of, walk
from operate.mime.render import encoding_of, is_html
from shared.mail.decode import characters, decoded, from_base64, printable

if TYPE_CHECKING:
    from operate.mime.parts import Part

MOST_HTML: Final = 2**20  # octets, decoded or not
_RESULTS: Final = 4000  # characters of what a field says


class Markup(NamedTuple):
    """What a reviewer sees of a message besides its text.

    html: the numbers of its parts that are HTML. hashes: the SHA-256 of each part, decoded, in their order.
    results: its own Authentication-Results field, which any sender can write.
    """

    html: tuple[int, ...]
    hashes: tuple[str, ...]
    results: str


def markup(content: bytes) -> Markup:
    """Look at a message."""
    parts = walk(content).parts
    return Markup(
        tuple(number for number, part in enumerate(parts, 1) if is_html(part.type)),
        tuple(hashlib.sha256(_octets(content, part, None)).hexdigest() for part in parts),
        printable(decoded(header_of(content).get("authentication-results", b"")), most=_RESULTS),
    )


def html_of(content: bytes, number: int) -> tuple[str, bool] | None:
    """The HTML of a part, by its number, and whether it is cut; None where it is not HTML."""
    parts = walk(content).parts
    if not 1 <= number <= len(parts) or not is_html(parts[number - 1].type):
        return None
    part = parts[number - 1]
    charset = part.parameters("content-type").get("charset", b"").decode("ascii", "replace")
    return characters(_octets(content, part, MOST_HTML), charset or "utf-8"), part.size > MOST_HTML


def _octets(content: bytes, part: Part, most: int | None) -> bytes:
    """The body of a part, decoded; of no more than so many octets."""
    end = part.end if most is None else min(part.end, part.start + most)
    raw = content[part.start : end]
    encoding = encoding_of(part)
    if encoding == b"base64":
        return from_base64(raw)
    return quopri.decodestring(raw) if encoding == b"quoted-printable" else raw
