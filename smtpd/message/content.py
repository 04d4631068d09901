"""content — the checks that every message must pass, and the repairs that the configuration allows

Owns: the octets that may be in a message: NUL, bare CR and LF, octets above 127, long lines; the end of its header,
    the limits of that, its hops, the fields that we may have to add, and those that do not go on.
Guarantees: one walk over the content, slice by slice, each checked while it is in the processor's cache; between
    slices other sessions have their turn, so that a large message does not stall them. Content without a repair is not
    copied. The header is read apart: each octet of it once and none of the body, for any content, within its limits.
    Text between a line that is not a field and the first empty line is header to some readers, so its fields count as
    hops and against the limits. MIME is not parsed.
Raises: Refused with the reply.
See: RFC 5321 sections 2.3.8, 4.1.1.4, 6.3 (loops); RFC 5322 sections 2.1, 2.1.1 (line length), 2.2 (fields, folding);
    RFC 6152 section 3; RFC 6531 section 3.1; RFC 8689 section 3 (TLS-Required).
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from io import IncrementalNewlineDecoder
from typing import TYPE_CHECKING, Final, Literal

from smtpd import replies
from smtpd.replies import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.config.smtpd.content import DataPhase
    from smtpd.envelope.parameters import MailParameters

_PAIRED: Final = (None, "\r\n")  # the decoder's answer for a text whose lines all end with CR LF
_SLICE: Final = 1 << 18  # octets looked at before others have their turn: well below a millisecond

# A field name, RFC 5322 section 2.2; blanks before the colon are obsolete syntax (section 4.5) and still met.
_FIELD: Final = re.compile(rb"([!-9;-~]+)[ \t]*:")
_CONTINUED: Final = (b" ", b"\t")  # a large content is a bytearray, whose slices are in no set
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


@dataclass(frozen=True, slots=True)
class CheckedContent:
    """A content that may be stored, and its header."""

    content: bytes
    header: Header
    seam: bytes = b""  # put before the content: the empty line it lacks


async def check(content: bytes, parameters: MailParameters, limits: DataPhase, hostname: str) -> CheckedContent:
    """Check one content, and make the configured repairs; `hostname` is ours, for loops."""
    if parameters.body != "BINARYMIME" and await _look(content, mend=limits.barenewline == "normalize"):
        content = await _mended(content)
        if len(content) > limits.maxsize:
            raise Refused(replies.R552_TOO_BIG.format(limit=limits.maxsize))
    header = read_header(content, limits, hostname)
    if limits.eightbit == "reject":
        if not parameters.smtputf8 and not content[: header.end].isascii():
            raise Refused(replies.R554_EIGHTBIT_HEADER)
        if parameters.body == "7BIT":
            await _look_for_eightbit(content, header.end)
    if limits.maxlinelength is not None and parameters.body != "BINARYMIME":
        await _measure(content, limits.maxlinelength)
    return _ended(content, header, limits)


def _slice_end(content: bytes, start: int) -> int:
    """The end of a slice, never between CR and LF."""
    end = min(start + _SLICE, len(content))
    return end + 1 if content[end - 1 : end + 1] == b"\r\n" else end


async def _look(content: bytes, *, mend: bool) -> bool:
    """Whether any CR or LF is bare (RFC 5321 section 2.3.8).

    Python's decoder of line ends notes in one pass which kinds it has met: a third of the time that counting takes.
    """
    seen = IncrementalNewlineDecoder(None, translate=False)
    view = memoryview(content)
    bare = False
    for at in range(0, len(content), _SLICE):
        end = at + _SLICE
        if content.find(b"\0", at, end) >= 0:
            raise Refused(replies.R554_NUL)
        if not bare:
            seen.decode(str(view[at:end], "latin-1"), final=end >= len(content))
            bare = seen.newlines not in _PAIRED
            if bare and not mend:
                raise Refused(replies.R554_BARE_NEWLINE)
        if end < len(content):
            await asyncio.sleep(0)
    return bare


async def _look_for_eightbit(content: bytes, start: int) -> None:
    for at in range(start, len(content), _SLICE):
        if not content[at : at + _SLICE].isascii():
            raise Refused(replies.R554_EIGHTBIT_BODY)
        await asyncio.sleep(0)


async def _mended(content: bytes) -> bytes:
    """The same with CR LF at the end of every line."""
    pieces = []
    at = 0
    while at < len(content):
        end = _slice_end(content, at)
        piece = content[at:end].replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\r\n")
        pieces.append(piece)
        at = end
        await asyncio.sleep(0)
    return await asyncio.to_thread(b"".join, pieces)  # beside the event loop: it holds no lock while it copies much


async def _measure(content: bytes, limit: int) -> None:
    """Refuse a line longer than `limit` (RFC 5322 section 2.1.1): from each line end the last one within reach."""
    at = 0
    turn = _SLICE
    while len(content) - at > limit:
        line_end = content.rfind(b"\r\n", at, at + limit + 2)
        if line_end < 0:
            raise Refused(replies.R554_LONG_LINE.format(limit=limit))
        at = line_end + 2
        if at > turn:
            turn = at + _SLICE
            await asyncio.sleep(0)


def _ended(content: bytes, header: Header, limits: DataPhase) -> CheckedContent:
    """The treatment of a header that no empty line ends.

    A blank at the very beginning would continue the last of the fields we put before it (RFC 5322 section 2.2.3).
    """
    if header.ended != "text":
        return CheckedContent(content, header)
    if limits.endofheader == "reject":
        raise Refused(replies.R554_END_OF_HEADER)
    if header.end == 0 and (limits.endofheader == "fix" or content.startswith(_CONTINUED)):
        return CheckedContent(content, header, b"\r\n")
    if limits.endofheader == "accept":
        return CheckedContent(content, header)
    return CheckedContent(b"\r\n".join((content[: header.end], content[header.end :])), header)


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
        while content.startswith(_CONTINUED, at):
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


def without(checked: CheckedContent, dropped: Sequence[str]) -> CheckedContent:
    """The content without these fields, whose names are in lower case (Postfix message_drop_headers)."""
    names = {name.encode() for name in dropped} & checked.header.names
    if not names:
        return checked
    content, header = checked.content, checked.header
    stays: list[bytes] = []
    at = 0
    while at < header.end:
        begin, field = at, _FIELD.match(content, at)
        at = content.find(b"\n", at, header.end) + 1 or header.end
        while at < header.end and content.startswith(_CONTINUED, at):
            at = content.find(b"\n", at, header.end) + 1 or header.end
        if field is None or field[1].lower() not in names:
            stays.append(content[begin:at])
    header = replace(
        header,
        end=sum(map(len, stays)),
        names=header.names - names,
        kept={name: value for name, value in header.kept.items() if name not in names},
    )
    return replace(checked, content=b"".join((*stays, content[checked.header.end :])), header=header)


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
