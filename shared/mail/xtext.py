"""xtext — the encoding of text in parameters of MAIL and RCPT

Owns: the two encodings: xtext, where +2B is one octet, and the one of international addresses. Pure.
Guarantees: decoded text is printable, so it fits into a header and a log; `decode(encode(text)) == text`.
Raises: ValueError, worded to follow "bad value".
See: RFC 3461 section 4 (xtext), RFC 6533 section 3 (utf-8-addr-xtext, utf-8-addr-unitext).
"""

from __future__ import annotations

import re
from typing import Final

_XTEXT: Final = re.compile(r"(?:[!-*,-<>-~]|\+[0-9A-F]{2})*")  # RFC 3461 section 4
_HEXCHAR: Final = re.compile(r"\+([0-9A-F]{2})")
_UNSAFE: Final = re.compile(r"[+=\x00-\x20\x7f-]")  # characters that xtext must write as +XX; the rest is ASCII anyway
_UNITEXT: Final = re.compile(r"(?:[!-*,-<>-\[\]-~\u00a0-\U0010ffff]|\\x\{[0-9A-F]{2,6}\})*")  # RFC 6533 section 3
_HEXPOINT: Final = re.compile(r"\\x\{([0-9A-F]{2,6})\}")


def decode(text: str) -> str:
    """The text of an xtext; only printable ASCII, blanks included (RFC 3461 sections 4.2, 4.4)."""
    if not _XTEXT.fullmatch(text):
        raise ValueError("not xtext")
    decoded = _HEXCHAR.sub(lambda found: chr(int(found[1], 16)), text) if "+" in text else text
    if not (decoded.isascii() and decoded.isprintable()):
        raise ValueError("not printable")
    return decoded


def encode(text: str) -> str:
    """Printable ASCII as xtext."""
    return _UNSAFE.sub(lambda found: f"+{ord(found[0]):02X}", text)


def decode_address(text: str, *, smtputf8: bool) -> str:
    """The text of a utf-8-addr-xtext; with SMTPUTF8 characters beyond ASCII may also be written as they are."""
    if not _UNITEXT.fullmatch(text) or not (smtputf8 or text.isascii()):
        raise ValueError("not a utf-8 address")
    try:
        decoded = _HEXPOINT.sub(lambda found: chr(int(found[1], 16)), text)
    except ValueError:  # beyond U+10FFFF
        raise ValueError("not a utf-8 address") from None
    if not decoded.isprintable():  # surrogates are not
        raise ValueError("not printable")
    return decoded


def encode_address(text: str) -> str:
    """A printable address as utf-8-addr-xtext, which is ASCII."""
    return "".join(c if " " < c < "\x7f" and c not in "+=\\" else f"\\x{{{ord(c):02X}}}" for c in text)
