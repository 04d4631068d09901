"""numbers — numbers of recipients, parts and decisions as addresses and forms have them

Guarantees: `{name:digits}` in a route matches up to 19 digits. A longer number, which int() may refuse, gets 404.
Raises: Problem 404.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.convertors import IntegerConvertor, register_url_convertor

from httpd.problems import Problem

LARGEST: Final = 2**63 - 1
_DIGITS: Final = 19


class Digits(IntegerConvertor):
    """A number in an address, of as many digits as PostgreSQL's bigint has."""

    regex = f"[0-9]{{1,{_DIGITS}}}"


register_url_convertor("digits", Digits())


def number(text: str) -> int:
    """A number that PostgreSQL has room for."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) <= LARGEST):
        raise Problem(HTTPStatus.NOT_FOUND, f"the number is not valid; allowed: 0 to {LARGEST}")
    return int(text)
