"""saslprep — one spelling for each user name and password

Owns: SASLprep, the profile of stringprep that SASL's mechanisms prescribe. Pure.
Guarantees: texts that two programs prepare alike compare equal, octet by octet. Code points that Unicode 3.2 did not
    know are left as they are, as RFC 4013 allows for queries: an emoji in a password works. The work is bounded: text
    beyond ASCII of more than 255 characters is refused, because each may become eighteen.
Raises: NotPrepared for text that may not be used at all.
See: RFC 4013; RFC 3454 (tables); RFC 4616 section 2, RFC 5802 section 5.1 (who must prepare).
"""

from __future__ import annotations

import stringprep
from typing import Final
from unicodedata import ucd_3_2_0

_LONGEST: Final = 255  # characters; servers need not take longer names and passwords (RFC 4616 section 2)
# RFC 4013 section 2.3.
_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class NotPrepared(ValueError):
    """The text holds what no user name or password may hold; it is never quoted, since it may be a password."""


def prepared(text: str) -> str:
    """The one spelling of `text`. Raises NotPrepared; nothing at all is not allowed either."""
    if text.isascii() and text.isprintable() and text:
        return text
    if len(text) > _LONGEST:
        raise NotPrepared(f"is longer than {_LONGEST} characters")
    mapped = "".join(
        " " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c)
    )  # section 2.1
    normal = ucd_3_2_0.normalize("NFKC", mapped)  # section 2.2
    if not normal:
        raise NotPrepared("is empty")
    if any(prohibited(c) for c in normal for prohibited in _PROHIBITED):
        raise NotPrepared("holds a control, private-use or otherwise prohibited character (RFC 4013 section 2.3)")
    if any(stringprep.in_table_d1(c) for c in normal):  # section 2.4: RFC 3454 section 6
        if any(stringprep.in_table_d2(c) for c in normal):
            raise NotPrepared("mixes characters written from right to left with such from left to right")
        if not (stringprep.in_table_d1(normal[0]) and stringprep.in_table_d1(normal[-1])):
            raise NotPrepared("begins or ends a text written from right to left with a character of neither kind")
    return normal


def password_octets(password: str) -> bytes:
    """The octets to hash: the prepared password, or its own octets where SASLprep refuses it, as PostgreSQL does."""
    try:
        return prepared(password).encode()
    except NotPrepared:
        return password.encode(errors="surrogateescape")
