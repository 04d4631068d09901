"""numbers — numbers of recipients, parts and decisions as addresses and forms have them

Raises: Problem 404.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from httpd.problems import Problem

LARGEST: Final = 2**63 - 1
_DIGITS: Final = 19


def number(text: str) -> int:
    """A number that PostgreSQL has room for."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) <= LARGEST):
        raise Problem(HTTPStatus.NOT_FOUND, f"the number is not valid; allowed: 0 to {LARGEST}")
    return int(text)
