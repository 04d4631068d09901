"""ids — recipients and messages named by their ids alone: 18, 18,19, or the id of the reply "250 … Queued as …"

Guarantees: pure. Words are taken for ids only if every one of them is an id, so that no condition is one by accident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGITS: Final = 19  # of a bigint
_UUID: Final = 36


def is_recipient(word: str) -> bool:
    """Whether this is a recipient's number."""
    return word.isascii() and word.isdigit() and len(word) <= _DIGITS


def is_message(word: str) -> bool:
    """Whether this is a message id, as SMTP's 250 has it."""
    try:
        return len(word) == _UUID and bool(UUID(word))
    except ValueError:
        return False


def are_ids(words: Sequence[str]) -> bool:
    """Whether these words are ids and nothing else."""
    return bool(words) and all(is_recipient(part) or is_message(part) for word in words for part in word.split(","))


def named(words: Sequence[str]) -> list[str]:
    """The condition for these ids, numbers and message ids mixed; other words as they are."""
    if not are_ids(words):
        return list(words)
    each = [part for word in words for part in word.split(",")]
    recipients = [part for part in each if is_recipient(part)]
    messages = [part for part in each if not is_recipient(part)]
    terms = [f"id={','.join(recipients)}"] if recipients else []
    terms += [f"message={','.join(messages)}"] if messages else []
    return [" or ".join(terms)]
