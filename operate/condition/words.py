"""words — a condition in one text, as the words that a shell would make of it

Guarantees: pure. Quotes stay where they are: only spaces between terms part words.
"""

from __future__ import annotations

import re
from typing import Final

from operate.condition.ids import named

_WORD: Final = re.compile(r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\S)+", re.DOTALL)


def words_of(text: str) -> list[str]:
    """The words of a condition, or ids with spaces between them."""
    return _WORD.findall(text)


def after(words: list[str], id_: int | None) -> list[str]:
    """The condition kept to recipients after this id."""
    if id_ is None:
        return words
    return ["(", *named(words), ")", f"id>{id_}"] if words else [f"id>{id_}"]
