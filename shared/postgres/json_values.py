"""json_values — reads jsonb, whatever it holds

Guarantees: no exception for any jsonb: PostgreSQL keeps numbers of 130,000 digits and values nested as deep as its
    stack, and the reader of Python fails on both. Such a number is read as text, and what is nested too deeply as None:
    one row must not end the reading of all others.
See: PostgreSQL manual, "JSON Types"; Python manual, "Integer string conversion length limitation".
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

_DIGITS: Final = 310  # of a number; more are beyond any float


def read(text: str | bytes) -> Any:
    """The value."""
    try:
        return _READER.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        return None


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= _DIGITS else digits


def _fraction(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


_READER: Final = json.JSONDecoder(parse_int=_whole, parse_float=_fraction)
