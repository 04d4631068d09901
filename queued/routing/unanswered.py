"""unanswered — the questions to DNS that no name server has answered, and how long each of them is left alone

Guarantees: no await, no clock. A question that was not answered is left alone for three times as long as it took,
    twice as long each further time, up to five minutes. Memory is bounded: of more than `entries` questions the one
    that changed longest ago is forgotten.
See: RFC 9520 section 3.2; queued/routing/question_line.py, where such questions come after those never asked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

_LEAST, _MOST = 1.0, 300.0  # seconds (RFC 9520 section 3.2)


class _Known(NamedTuple):
    number: int  # in the order in which questions came for the first time
    seconds: float = 0.0  # for which it was left alone the last time; 0: it was never asked
    until: float = 0.0


class Unanswered[Question: Hashable]:
    """Those that were asked in vain, and those that have not been asked yet."""

    def __init__(self, entries: int) -> None:
        """`entries`: the most questions that are remembered."""
        self._entries = entries
        self._known: OrderedDict[Question, _Known] = OrderedDict()
        self._came = 0

    def __len__(self) -> int:
        return len(self._known)

    def number(self, question: Question) -> int:
        """Its place in the order in which questions came for the first time: the newest has the highest."""
        known = self._known.get(question)
        if known is None:
            self._came += 1
            known = _Known(self._came)
            self._keep(question, known)
        return known.number

    def is_asked(self, question: Question) -> bool:
        """Whether it was asked before, in vain."""
        known = self._known.get(question)
        return known is not None and bool(known.seconds)

    def left(self, question: Question, now: float) -> float:
        """For how many seconds more it is left alone; 0 when it may be asked."""
        known = self._known.get(question)
        return 0.0 if known is None else max(0.0, known.until - now)

    def fail(self, question: Question, took: float, now: float) -> float:
        """It was not answered in `took` seconds; for how many seconds it is left alone from `now`."""
        number = self.number(question)
        seconds = min(max(3 * took, 2 * self._known[question].seconds, _LEAST), _MOST)
        self._keep(question, _Known(number, seconds, now + seconds))
        return seconds

    def forget(self, question: Question) -> None:
        """It is answered."""
        self._known.pop(question, None)

    def _keep(self, question: Question, known: _Known) -> None:
        self._known[question] = known
        self._known.move_to_end(question)
        if len(self._known) > self._entries:
            self._known.popitem(last=False)
