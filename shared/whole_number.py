"""whole_number — a number as someone else wrote it: in an option, a variable, a form or an address

Guarantees: pure, and no text is too long: int() refuses more than 4,300 digits, and takes those of every script.
"""

from __future__ import annotations

from typing import Final

#: The largest that PostgreSQL's bigint holds, and its digits.
LARGEST: Final = 2**63 - 1
DIGITS: Final = len(str(LARGEST))


def whole_number(text: str) -> int | None:
    """The number that these digits are; None for anything else, and for a number above LARGEST."""
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        return None
    return number if (number := int(text)) <= LARGEST else None
