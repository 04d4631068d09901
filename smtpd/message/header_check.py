"""header_check — the end of a message's header, and the fields that matter to us

Owns: one walk over the header's lines: its end, its hops, the fields we may have to add, and its limits. Pure.
Guarantees: reads each octet of the header once and none of the body, for any content; the limits bound the header. Text
    between a line that is not a field and the first empty line is header to some readers, so its fields count as hops
    and against the limits. MIME is not parsed.
Raises: Refused with the reply.
See: RFC 5322 sections 2.1, 2.2 (fields, folding), RFC 5321 section 6.3 (loops), RFC 8689 section 3 (TLS-Required).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from smtpd import replies
from smtpd.replies import Refused

if TYPE_CHECKING:
    from shared.config.smtpd.content import DataPhase

# A field name, RFC 5322 section 2.2; blanks before the colon are obsolete syntax (section 4.5) and still met.
_FIELD: Final = re.compile(rb"([!-9;-~]+)[ \t]*:")
CONTINUED: Final = (b" ", b"\t")  # a large content is a bytearray, whose slices are in no set
_EMPTY: Final = (b"\r\n", b"\n")
_NAME_LIMIT: Final = 1000  # octets in which the colon has to come: no line may be longer (RFC 5322 section 2.1.1)
# Fields of which the beginning is kept, in octets: all that is used of them (shared/mail/found_by.py).
_KEPT: Final = {b"message-id": 1000, b"subject": 2000}
_BY: Final = re.compile(rb"\sby\s+([^\s;()]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Header:
    """The findings of the walk. Offsets are octets from the start of the content."""

    end: int  # where the line begins that ends the header: an empty one, or one that is not a field
    ended: Literal["empty", "text", "nothing"]  # by an empty line, text that is not a field, the end of the content
    names: frozenset[bytes]  # field names in lower case, of fields before `end`
    hops: int  # Received fields, up to the first empty line
    loops: int  # those of them that name us as the receiver
    tls_optional: bool  # TLS-Required: No, before `end`
    kept: dict[bytes, bytes]  # the beginnings of the first Message-ID and the first Subject before `end`, as written


class _Walk:
    """The findings of the fields so far, and whether there are too many of them."""

    def __init__(self, content: bytes, limits: DataPhase, hostname: str) -> None:
        self._content, self._limits, self._own = content, limits, hostname.lower().encode()
        self.names: list[bytes] = []
        self.kept: dict[bytes, bytes] = {}
        self.hops = self.loops = self._lines = 0
        self.tls_optional = False

    def field(self, field: re.Match[bytes], *, torn: bool) -> int:
        """Take a field, and return where the next line begins; `torn`: it comes after text that is not a field."""
        content, limits, start = self._content, self._limits, field.start()
        at = _line_end(content, start, start + limits.maxheadersize)
        self._lines += 1
        while content.startswith(CONTINUED, at):
            at = _line_end(content, at, start + limits.maxheadersize)
            self._lines += 1
        if self._lines > limits.maxheaderlines:
            raise Refused(replies.R552_TOO_MANY_HEADER_LINES.format(limit=limits.maxheaderlines))
        if at > limits.maxheader:
            raise Refused(replies.R552_WHOLE_HEADER_TOO_BIG.format(limit=limits.maxheader))
        name = field[1].lower()
        if name == b"received":
            self.hops += 1
            by = _BY.search(content, field.end(), at)
            self.loops += by is not None and by[1].lower() == self._own
        if not torn:
            self.names.append(name)
            if name in _KEPT and name not in self.kept:
                begin = field.end()
                self.kept[name] = bytes(content[begin : min(at, begin + _KEPT[name])])
            self.tls_optional |= name == b"tls-required" and content[field.end() : at].strip().lower() == b"no"
        return at


def read_header(content: bytes, limits: DataPhase, hostname: str) -> Header:
    """Walk the header; `hostname` is what our own Received fields say after `by`. Lines may end with CR LF or LF."""
    walk = _Walk(content, limits, hostname)
    end: int | None = None  # where the first line begins that is not a field
    at = strays = 0
    while at < len(content) and not content.startswith(_EMPTY, at):
        field = _FIELD.match(content, at, at + _NAME_LIMIT)
        if field is not None:
            at = walk.field(field, torn=end is not None)
            continue
        end = at if end is None else end
        at = content.find(b"\n", at) + 1 or len(content)
        strays += 1
        if strays >= limits.maxheaderlines or at > limits.maxheader:
            break  # a body without a header: no reader looks for fields behind that much text
    if walk.hops > limits.maxhops or walk.loops > limits.maxloops:
        raise Refused(replies.R554_TOO_MANY_HOPS)
    ended: Literal["empty", "text", "nothing"] = "empty" if at < len(content) else "nothing"
    if end is not None:
        at, ended = end, "text"
    return Header(at, ended, frozenset(walk.names), walk.hops, walk.loops, walk.tls_optional, walk.kept)


def first_empty_line(content: bytes) -> int:
    """Where the line break before the first empty line ends; the length of the content where there is none."""
    if content.startswith(_EMPTY):
        return 0
    crlf = content.find(b"\n\r\n")
    end = len(content) if crlf < 0 else crlf + 1
    lf = content.find(b"\n\n", 0, end)
    return end if lf < 0 else lf + 1


def _line_end(content: bytes, start: int, limit: int) -> int:
    """Where the next line begins; a field may go on up to `limit`."""
    found = content.find(b"\n", start, limit)
    if found >= 0:
        return found + 1
    if len(content) > limit:
        raise Refused(replies.R552_HEADER_TOO_BIG)
    return len(content)
