"""dns_cache — the answers of DNS that are kept, within a number of answers and of octets

Guarantees: no await, no clock. Never more answers than `entries`, and never more octets than _OCTETS for each of these,
    counted as the text that the answer makes; the answer used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from queued.routing.dns_answer import Answer

_OCTETS: Final = 2048  # of an answer, on average; an honest one takes 100 to 500, and a hostile one may take 64 KiB


class DnsCache[Question: Hashable]:
    """Answers by question, each with the time it ends."""

    def __init__(self, entries: int) -> None:
        """`entries`: the most answers that are kept."""
        self._entries = entries
        self._kept: OrderedDict[Question, tuple[float, Answer[Any], int]] = OrderedDict()
        self.octets = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, question: Question) -> tuple[float, Answer[Any]] | None:
        """When it ends, in the seconds that `keep` had, and the answer."""
        kept = self._kept.get(question)
        if kept is None:
            return None
        self._kept.move_to_end(question)
        return kept[:2]

    def keep(self, question: Question, ends: float, answer: Answer[Any]) -> None:
        """Keep this answer in place of an earlier one."""
        octets = len(repr(answer))
        if (earlier := self._kept.pop(question, None)) is not None:
            self.octets -= earlier[2]
        self._kept[question] = ends, answer, octets
        self.octets += octets
        while len(self._kept) > self._entries or self.octets > self._entries * _OCTETS:
            _, (_, _, gone) = self._kept.popitem(last=False)
            self.octets -= gone
