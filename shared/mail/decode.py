"""decode — decodes octets of a message into characters that are harmless on a terminal

Owns: encoded words, and what counts as printable.
Guarantees: pure; never raises; time grows with the octets given, which are bounded here. No escape sequence, direction
    override or line end is in what `printable` and `decoded` return.
See: RFC 2047 (encoded words).
"""

from __future__ import annotations

import base64
import binascii
import quopri
import re
import unicodedata
from typing import Final

from shared.mail.charset import text as text_of

SHOWN: Final = 500  # characters of a header field
_READ: Final = 4 * SHOWN  # characters of a header field, spaces that follow each other counted once
_WORD: Final = re.compile(r"=\?([^?\s]{1,40})\?([bBqQ])\?([^?]*)\?=")
_NOT_BASE64: Final = re.compile(rb"[^A-Za-z0-9+/]+")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def printable(text: str, *, most: int = SHOWN) -> str:
    """One line of at most `most` characters that do nothing to a terminal."""
    made = "".join(map(_shown, text[: most + 1]))
    return made if len(made) <= most else made[: most - 1] + "…"


def characters(octets: bytes, charset: str) -> str:
    """Text in this charset, or in UTF-8 for an unknown charset."""
    known = text_of(octets, charset)
    return octets.decode("utf-8", "replace") if known is None else known


def decoded(value: bytes) -> str:
    """A header field's value as text, encoded words decoded."""
    return decoded_or_cut(value)[0]


def decoded_or_cut(value: bytes) -> tuple[str, bool]:
    """The same, and whether there is more than is shown."""
    whole = " ".join(value.decode("utf-8", "replace").split())
    line = " ".join(without_words(whole[:_READ]).split())
    cut = len(whole) > _READ
    return printable(f"{line}…" if cut else line), cut or len(line) > SHOWN


def without_words(text: str) -> str:
    """A text in which every encoded word is what it means; in time that grows with its length."""
    pieces: list[str] = []
    held, charset = b"", ""  # words side by side in one charset: a character may be spread over two
    at = 0
    for word in _WORD.finditer(text):
        between = text[at : word.start()]
        if held and (between.strip() or word[1].lower() != charset):
            pieces.append(characters(held, charset))
            held = b""
        if between.strip() or not at:
            pieces.append(between)
        charset, at = word[1].lower(), word.end()
        held += from_base64(word[3].encode()) if word[2] in "bB" else quopri.decodestring(word[3].encode(), header=True)
    pieces += [characters(held, charset) if held else "", text[at:]]
    return "".join(pieces)


def from_base64(octets: bytes) -> bytes:
    """The octets of base64, ignoring all characters that are not its digits."""
    digits = _NOT_BASE64.sub(b"", octets)
    rest = len(digits) % 4
    digits = digits[:-1] if rest == 1 else digits + b"=" * (-rest % 4)
    try:
        return base64.b64decode(digits)
    except (binascii.Error, ValueError):
        return b""


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) == "Zs" else _REPLACEMENT
