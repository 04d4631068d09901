"""charset — octets in a charset that a message names, as text

Owns: which of Python's codecs are charsets of mail.
Guarantees: pure; never raises; what it keeps is bounded. A name that is not in the table is refused before Python looks
    for it: Python would look for a module of that name on the disk, and remember the name, and each spelling of a known
    one, until the process ends. A message may name ten thousands.
See: RFC 2047 section 2; the manual of Python, "Standard Encodings".
"""

from __future__ import annotations

from encodings import normalize_encoding
from encodings.aliases import aliases
from typing import Final

# Charsets without an alias. Not punycode and idna, which take quadratic time, nor Python's own escapes.
_MORE: Final = (
    *("cp720", "cp737", "cp856", "cp874", "cp1006", "koi8_t", "koi8_u", "utf_8_sig"),
    *("mac_arabic", "mac_croatian", "mac_farsi", "mac_romanian"),
)
_NAMES: Final = {**{name: name for name in {*aliases.values(), *_MORE}}, **aliases}
_LONGEST: Final = 40  # characters of a name


def text(octets: bytes, charset: str) -> str | None:
    """The text, with replacement characters for invalid octets; None for a charset that is not known."""
    if len(charset) > _LONGEST or not charset.isascii():
        return None
    name = _NAMES.get(normalize_encoding(charset).lower())
    if name is None:
        return None
    try:
        return octets.decode(name, "replace")
    except (LookupError, ValueError):  # a codec of octets, or one that replaces nothing
        return None
