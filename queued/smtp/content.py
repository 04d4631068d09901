r"""content — message content as the octets that follow DATA

Owns: dot-stuffing, the end-of-data line, and the rule that nothing in a message can end it early.
Guarantees: pure; the pieces joined hold CR and LF only as CRLF, no NUL, and `\r\n.\r\n` once, at the end;
clean content goes out octet for octet (dots doubled); each piece costs at most PIECE octets of work, so
a large message never holds up the event loop.
See: RFC 5321 §4.5.2 (transparency) and §2.3.8 (bare CR and LF); Postfix cleanup_replace_stray_cr_lf, whose
space we use; CVE-2023-51764 for what stray line ends were used for.
Bugs: replacing a stray octet breaks a DKIM signature over it; such a message was never valid.
"""

from __future__ import annotations

import re
from io import IncrementalNewlineDecoder
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE: Final = 65536  # octets written at once; the event loop's own write buffer holds as many
_PAIRED: Final = (None, "\r\n")  # its answer for a text whose lines all end with CR LF
_STRAY = re.compile(rb"\r(?!\n)|(?<!\r)\n|\x00")


def wire_pieces(content: bytes, prefix: bytes = b"") -> Iterator[bytes]:
    """The octets to write after 354, in pieces; the last one holds the end-of-data line.

    prefix: header fields of ours, whole lines, that go before the content.
    """
    if prefix and len(content) > PIECE:
        yield _transparent(prefix, line_start=True)
    elif prefix:
        content = prefix + content
    position, total = 0, len(content)
    line_start = True
    while total - position > PIECE:
        end = position + PIECE
        # A piece never ends between CR and LF, so each can be judged on its own.
        if content[end - 1] == _CR and content[end] == _LF:
            end += 1
        piece = content[position:end]
        yield _transparent(piece, line_start=line_start)
        line_start = piece.endswith(b"\r\n")
        position = end
    rest = content[position:] if position else content
    # RFC 5321 §4.1.1.4: the CRLF that ends the last line is the first of the end-of-data sequence.
    ended = rest.endswith(b"\r\n") or (not rest and position > 0 and line_start)
    yield _transparent(rest, line_start=line_start) + (b".\r\n" if ended else b"\r\n.\r\n")


def wire_size(content: bytes, prefix: bytes = b"") -> int:
    """The value of SIZE=: octets with CRLFs, without doubled dots and end-of-data line (RFC 1870 §5)."""
    return len(prefix) + len(content) + (0 if content.endswith(b"\r\n") else 2)


def without_strays(octets: bytes) -> bytes:
    """The octets with stray CR, LF and NUL as spaces: what leaves, before dots are doubled."""
    if len(octets) <= PIECE:
        return _without_strays(octets)
    # Piece by piece, also in a thread: a regular expression lets go of the interpreter only at its end, and 10 MB of
    # strays took it a second.
    pieces = list[bytes]()
    position, strays = 0, False
    while position < len(octets):
        end = position + PIECE
        end += octets[end - 1 : end + 1] == b"\r\n"
        piece = octets[position:end]
        pieces.append(_without_strays(piece))
        strays |= pieces[-1] is not piece
        position = end
    return b"".join(pieces) if strays else octets


def _without_strays(octets: bytes) -> bytes:
    seen = IncrementalNewlineDecoder(None, translate=False)  # notes in one pass which kinds of line ends it has met
    seen.decode(str(octets, "latin-1"), final=True)
    if seen.newlines not in _PAIRED or b"\x00" in octets:
        return _STRAY.sub(b" ", octets)
    return octets


def _transparent(piece: bytes, *, line_start: bool) -> bytes:
    """Stray CR, LF and NUL to spaces, then a dot before each dot that begins a line."""
    piece = _without_strays(piece)
    if line_start and piece.startswith(b"."):
        piece = b"." + piece
    # Base64 holds no dot at all, and looking for one octet is twenty times as fast as for three.
    return piece.replace(b"\r\n.", b"\r\n..") if b"." in piece else piece


_CR, _LF = b"\r\n"
