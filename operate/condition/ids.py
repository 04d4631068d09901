"""ids — recipients and messages named by their ids alone: 18, 18,19, the id in "250 … Queued as …", <Message-ID>

Guarantees: pure. Words are taken for ids only if every one of them is an id, so that no condition is one by accident.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from uuid import UUID

from shared.config.condition.values import quoted
from shared.whole_number import DIGITS

if TYPE_CHECKING:
    from collections.abc import Sequence

_UUID: Final = 36
_MSGID: Final = re.compile(r"<[^<>\s]+>")
_PART: Final = re.compile(r"<[^<>\s]+>(?=,|\Z)|[^,]*")


def is_recipient(word: str) -> bool:
    """Whether this is a recipient's number."""
    return _is_number(word) and len(word) <= DIGITS


def _is_number(word: str) -> bool:
    """Whether this is a number, also one that is too large for an id: the condition then says so."""
    return word.isascii() and word.isdigit()


def is_message(word: str) -> bool:
    """Whether this is a message id, as SMTP's 250 has it."""
    try:
        return len(word) == _UUID and bool(UUID(word))
    except ValueError:
        return False


def is_msgid(word: str) -> bool:
    """Whether this is a Message-ID, as a message's header has it: in angle brackets."""
    return _MSGID.fullmatch(word) is not None


def _parts(word: str) -> list[str]:
    """The ids between commas; a Message-ID may have commas of its own."""
    found = [_PART.match(word)]
    while found[-1] is not None and found[-1].end() < len(word):
        found.append(_PART.match(word, found[-1].end() + 1))
    return [part[0] for part in found if part is not None]


def are_ids(words: Sequence[str]) -> bool:
    """Whether these words are ids and nothing else."""
    return bool(words) and all(
        _is_number(part) or is_message(part) or is_msgid(part) for word in words for part in _parts(word)
    )


def named(words: Sequence[str]) -> list[str]:
    """The condition for these ids, numbers, message ids and Message-IDs mixed; other words as they are."""
    if not are_ids(words):
        return list(words)
    each = [part for word in words for part in _parts(word)]
    recipients = [part for part in each if _is_number(part)]
    messages = [part for part in each if is_message(part)]
    msgids = [quoted(part) for part in each if is_msgid(part)]
    terms = [f"id={','.join(recipients)}"] if recipients else []
    terms += [f"message={','.join(messages)}"] if messages else []
    terms += [f"msgid={','.join(msgids)}"] if msgids else []
    return [" or ".join(terms)]
