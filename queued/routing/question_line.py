"""question_line — which questions to DNS have a place, which wait for one in memory, and which come next

Thousands of domains whose name servers are silent keep every place busy, and nothing but its age distinguishes the
question about a new domain from theirs until it was asked once. So each question is asked once before any is asked
again, and of those never asked the newest goes first: it waits for the next place to become free, not for
thousands that came before it. Those asked before in vain never have more than half of the places.

Guarantees: no await, no clock. Of more than `waiting` questions without a place the one that would go last is sent
    away: of those asked before the one that came last, or, when all were never asked, the oldest. Every turn ends
    with `leave`; a turn that was sent away, or has left, holds nothing.
See: queued/routing/unanswered.py; queued/admission/unproven.py, which does the same for the recipients.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from typing import Final

from queued.waiting.chances import Chances, Lately
from queued.waiting.newest import Newest

_VAIN: Final = 20.0  # questions within a second that were put off or asked in vain, beside those that are answered


class QuestionTurn:
    """One question. `settled` is set once it has its place, or is sent away: then `placed` is false."""

    __slots__ = ("asked", "number", "placed", "returns", "settled")

    def __init__(self, number: int, *, asked: bool) -> None:
        """number: grows with the time at which the question came first. asked: in vain, before."""
        self.number = number
        self.asked = asked
        self.settled = asyncio.Event()
        self.placed = False
        self.returns = asked  # it was asked in vain or put off before

    def __lt__(self, other: QuestionTurn) -> bool:
        return self.number < other.number


class QuestionLine:
    """The places of a resolver."""

    def __init__(self, places: int, seconds: float) -> None:
        """seconds: how long a question has its place at most."""
        self._places = places
        self._pace = max(seconds / places, 1 / _VAIN)
        self._chances = Chances(_VAIN)
        self._taken = self._taken_again = 0  # places, and those of questions that were asked before
        self._first: list[QuestionTurn] = []  # never asked, the newest last
        self._again: list[QuestionTurn] = []  # in the order in which they came
        self._newest = Newest()  # of those never asked that were sent away
        self._answered = Lately()

    def enter(self, turn: QuestionTurn, waiting: int | None = None) -> bool:
        """A place now or later; False if it is sent away. waiting: how many may be without a place, None for any."""
        turn.returns = turn.asked or self._newest.waits(turn.number)
        if turn.returns:
            self._chances.take()
        if turn.asked:
            self._again.append(turn)
        else:
            insort(self._first, turn)
            self._newest.leave(turn.number)
        self._advance()
        if waiting is not None and len(self._first) + len(self._again) > waiting:
            last = self._again.pop() if self._again else self._first.pop(0)
            last.settled.set()
        return turn.placed or not turn.settled.is_set()

    def is_full(self, waiting: int, number: int, now: float, *, asked: bool, follow: int = 0) -> bool:
        """Whether this question would be sent away, at once or, when newer ones follow, by them; or has no chance."""
        if asked or self._newest.waits(number):
            many = asked or self._newest.newer(number, now) > _VAIN
            if not self._chances.any(now, spare=many):
                return True
        if asked:
            return len(self._first) + len(self._again) >= waiting
        return len(self._first) >= waiting and (follow >= waiting or number < self._first[0].number)

    def leave(self, turn: QuestionTurn) -> None:
        """It has its place no longer, or waits no longer."""
        if turn.placed:
            turn.placed = False
            self._taken -= 1
            self._taken_again -= turn.asked
            self._advance()
        elif not turn.settled.is_set():
            turn.settled.set()
            (self._again if turn.asked else self._first).remove(turn)

    def answered(self, turn: QuestionTurn, now: float) -> None:
        """A name server has answered it: it was worth its chance."""
        self._answered.add(now)
        if turn.returns:
            self._chances.give_back()

    def put_off(self, number: int, now: float, *, follow: int = 0) -> float:
        """For how many seconds the first try of a question is put off: until the newer ones have had their place.

        follow: how many newer ones may come next.
        """
        pace = 1 / (1 / self._pace + self._answered.count(now))
        return self._newest.put_off(number, pace, now, follow=follow)

    def _advance(self) -> None:
        while self._taken < self._places:
            if self._first:
                turn = self._first.pop()
            elif self._again and self._taken_again < max(1, self._places // 2):
                turn = self._again.pop(0)
            else:
                return
            self._taken += 1
            self._taken_again += turn.asked
            turn.placed = True
            turn.settled.set()
