"""how-many — a count with its noun, as a person reads it: 1 recipient, 2 recipients

Guarantees: pure. Every count in a sentence of ours is written by it: tests/layout/test_counts.py.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_ENDINGS: Final = (
    (re.compile(r"([^aeiou])y$"), r"\1ies"),
    (re.compile(r"(s|x|ch|sh)$"), r"\1es"),
    (re.compile(r"(?<=lea)f$"), "ves"),
    (re.compile(r"$"), "s"),
)


def how_many(count: float, one: str, many: str = "", *, form: str = "") -> str:
    """The count and `one`, or `many` (by rule the plural of `one`). form: of the number, as in an f-string."""
    return f"{count:{form}} {one if count == 1 else many or _plural(one)}"


@cache
def _plural(one: str) -> str:
    return next(ending.sub(plural, one) for ending, plural in _ENDINGS if ending.search(one))
