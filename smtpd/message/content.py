"""content — the checks that every message must pass, and the repairs that the configuration allows

Owns: the octets that may be in a message: NUL, bare CR and LF, octets above 127, long lines, the header's limits.
Guarantees: one walk over the content, slice by slice, each checked while it is in the processor's cache; between
    slices other sessions have their turn, so that a large message does not stall them. Content without a repair is not
    copied.
Raises: Refused with the reply.
See: RFC 5321 sections 2.3.8, 4.1.1.4; RFC 5322 section 2.1.1 (line length); RFC 6152 section 3; RFC 6531 section 3.1.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from io import IncrementalNewlineDecoder
from typing import TYPE_CHECKING, Final

from smtpd import replies
from smtpd.message.header_check import CONTINUED, Header, read_header
from smtpd.replies import Refused

if TYPE_CHECKING:
    from shared.config.smtpd.content import DataPhase
    from smtpd.envelope.parameters import MailParameters

_PAIRED: Final = (None, "\r\n")  # the decoder's answer for a text whose lines all end with CR LF
_SLICE: Final = 1 << 18  # octets looked at before others have their turn: well below a millisecond


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
    if header.end == 0 and (limits.endofheader == "fix" or content.startswith(CONTINUED)):
        return CheckedContent(content, header, b"\r\n")
    if limits.endofheader == "accept":
        return CheckedContent(content, header)
    return CheckedContent(b"\r\n".join((content[: header.end], content[header.end :])), header)
