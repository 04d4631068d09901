"""numbers — numbers of recipients, parts and decisions as addresses and forms have them

Guarantees: `{name:digits}` in a route matches up to 19 digits. A longer number, which int() may refuse, gets 404.
Raises: Problem 404.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.convertors import IntegerConvertor, register_url_convertor

from httpd.problems import Problem
from shared.whole_number import DIGITS, LARGEST, whole_number


class Digits(IntegerConvertor):
    """A number in an address, of as many digits as PostgreSQL's bigint has."""

    regex = f"[0-9]{{1,{DIGITS}}}"


register_url_convertor("digits", Digits())


def number(text: str) -> int:
    """A number that PostgreSQL has room for."""
    if (found := whole_number(text)) is None:
        raise Problem(HTTPStatus.NOT_FOUND, f"the number is not valid; allowed: 0 to {LARGEST}")
    return found
