r"""sign_content — what a DKIM signature covers: which fields, which body, in whose name

Owns: the list of signed fields, the body's digest, and whom a message says it is from. Pure.
Guarantees: what is read here is what leaves (queued/smtp/content.py): lines end with CR LF, strays are gone. The body's
    digest is made piece by piece, so a large message costs no second copy of itself, and one without line ends does not
    keep the interpreter from the event loop: a regular expression lets go of it only at its end.
See: RFC 6376 section 3.4.4 (relaxed body), section 5.4.1 (fields to sign), sections 5.4.2 and 8.15 (fields signed once
    more than there are, so that none can be added); RFC 5322 section 3.6.2 (From)
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from shared.mail.domain import comparable
from shared.mail.from_header import authors

if TYPE_CHECKING:
    from collections.abc import Iterable

# Signed once more than they occur: adding another one breaks the signature (RFC 6376 section 8.15).
_OVERSIGNED: Final = (
    b"from",
    b"reply-to",
    b"subject",
    b"date",
    b"to",
    b"cc",
    b"message-id",
    b"in-reply-to",
    b"references",
    b"mime-version",
    b"content-type",
    b"content-transfer-encoding",
)
# Signed as often as they occur. Mailing lists and forwarders may add these.
_SIGNED: Final = (
    b"sender",
    b"content-id",
    b"content-description",
    b"resent-date",
    b"resent-from",
    b"resent-sender",
    b"resent-to",
    b"resent-cc",
    b"resent-message-id",
    b"list-id",
    b"list-help",
    b"list-unsubscribe",
    b"list-unsubscribe-post",
    b"list-subscribe",
    b"list-post",
    b"list-owner",
    b"list-archive",
)

_PIECE: Final = 1 << 18  # octets of body looked at together, or twice as many
_TEXT: Final = re.compile(rb"[^ \t\r\n]")
_SPACES: Final = re.compile(rb"[ \t]{2,}|\t")
_DOMAIN: Final = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


def header_end(content: bytes) -> int:
    """Where the header ends, behind the line end of its last field; the empty line and the body follow."""
    if content.startswith(b"\r\n"):
        return 0
    end = content.find(b"\r\n\r\n")
    return len(content) if end < 0 else end + 2


def covered(present: Iterable[bytes]) -> list[bytes]:
    """The names for the tag h=, from the names of the fields there are, in lower case."""
    counts: dict[bytes, int] = {}
    for name in present:
        counts[name] = counts.get(name, 0) + 1
    names: list[bytes] = []
    for name in _OVERSIGNED:
        names += [name] * (counts.get(name, 0) + 1)
    for name in _SIGNED:
        names += [name] * counts.get(name, 0)
    return names


def body_digest(content: bytes, start: int) -> bytes:
    """SHA-256 of the body in relaxed form (RFC 6376 section 3.4.4); `start` is `header_end` of the content."""
    digest = hashlib.sha256()
    position, empty, any_text = start + 2, 0, False
    while position < len(content):
        end = _piece_end(content, position + _PIECE)
        piece = content[position:end]
        position = end
        if position == len(content) and not piece.endswith(b"\r\n"):
            piece += b"\r\n"  # as it leaves
        if b" " in piece or b"\t" in piece:
            piece = _SPACES.sub(b" ", piece).replace(b" \r\n", b"\r\n")
        text = piece.rstrip(b"\r\n")
        ends = (len(piece) - len(text)) // 2
        if not text:
            empty += ends
            continue
        # Empty lines count only when a line with something in it follows.
        digest.update(b"\r\n" * empty)
        digest.update(text)
        empty, any_text = ends, True
    if any_text:
        digest.update(b"\r\n")
    return digest.digest()


def _piece_end(content: bytes, position: int) -> int:
    """Behind a line end soon after `position`; where a line goes on for long, behind text, so no blanks are parted."""
    end = content.find(b"\r\n", position - 2, position + _PIECE)
    if end >= 0:
        return end + 2
    text = _TEXT.search(content, position)
    return len(content) if text is None else text.end()


def author_domain(header: bytes) -> str | None:
    """The domain of the first author, as in DNS; None where From is missing or cannot be read in one way."""
    found = authors(header)
    return ascii_domain(found[0].address.domain) if found else None


def ascii_domain(domain: str) -> str | None:
    """A domain as in DNS, in lower case (RFC 5890); None for text that is not a name there, such as [192.0.2.1]."""
    name = comparable(domain.rstrip("."))
    return name if _DOMAIN.fullmatch(name) else None
