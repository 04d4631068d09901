"""syntax — the octets of commands and content, as the sink reads them

Owns: reading paths and parameters, spotting stray line ends, undoing the dots.
Guarantees: pure; shares no code with queued/, which writes the same octets.
See: RFC 5321 §4.1.2 (paths), §2.3.8 (line ends), §4.5.2 (transparency); RFC 1870, RFC 6152, RFC 6531.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_PATH: Final = re.compile(rb'<((?:"(?:[^"\\]|\\.)*"|[^<>"])*)>(?: +(.*))?')


def read_path(argument: bytes, keyword: bytes) -> tuple[bytes, bytes] | None:
    """The address and the parameters after `FROM:` or `TO:`; None when that is not what is there."""
    if argument[: len(keyword)].upper() != keyword:
        return None
    match = _PATH.fullmatch(argument[len(keyword) :].strip())
    return None if match is None else (match[1], match[2] or b"")


def refuse_parameters(parameters: bytes, offered: AbstractSet[str], size_limit: int) -> tuple[str | None, str | None]:
    """The refusal of MAIL's parameters and the one that was not offered, None and None when they are fine."""
    for parameter in parameters.upper().decode("ascii", "replace").split():
        key, _, value = parameter.partition("=")
        if key == "SIZE" and "SIZE" in offered and value.isdigit():
            if 0 < size_limit < int(value):
                return "552 5.3.4 message too big", None
        elif not (
            (key == "SMTPUTF8" and "SMTPUTF8" in offered and not value)
            or (key == "BODY" and "8BITMIME" in offered and value in {"7BIT", "8BITMIME"})
        ):
            return f"555 5.5.4 unknown parameter {key}", parameter
    return None, None


def is_stray(octets: bytes) -> bool:
    """Whether CR or LF stand alone somewhere, or there is a NUL."""
    line_ends = octets.count(b"\r\n")
    return octets.count(b"\r") != line_ends or octets.count(b"\n") != line_ends or b"\x00" in octets


def find_end(buffer: bytearray, searched: int) -> tuple[int, int] | None:
    """Length of the content and of what ends it too; None while `<CRLF>.<CRLF>` has not come.

    `searched`: how many octets an earlier call looked at in vain.
    """
    if buffer.startswith(b".\r\n"):  # RFC 5321 §4.1.1.4: the CRLF after DATA counts
        return 0, 3
    found = buffer.find(b"\r\n.\r\n", max(searched - 4, 0))
    return None if found < 0 else (found + 2, found + 5)


def undo_dots(content: bytes) -> bytes:
    """Take the first dot off each line that begins with one."""
    return content.removeprefix(b".").replace(b"\r\n.", b"\r\n")
