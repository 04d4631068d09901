"""test_backlog — what PostgreSQL does not take, even alone, waits apart and keeps others from little"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queued.backlog import Backlog
from tests.fixtures.daemons.in_hand import in_hand
from tests.fixtures.database.results import DELIVERED, finished

if TYPE_CHECKING:
    from queued.values import Claimed


class Clock:
    """What the backlog takes for the time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("queued.backlog.monotonic", made)
    return made


def backlog(*claimed: Claimed) -> Backlog:
    made = Backlog()
    made.add(finished(each, DELIVERED, "success") for each in claimed)
    return made


def ids(waiting: Backlog, limit: int = 500) -> list[int]:
    return [result.claimed.id for result in waiting.take(limit)]


def test_one_that_waits_apart_has_a_quarter_of_the_time_while_others_come(clock: Clock) -> None:
    waiting = backlog(*(in_hand(number) for number in range(1, 200)))
    assert ids(waiting, 1) == [1]
    waiting.put_apart(0.0)
    spent = {True: 0.0, False: 0.0}
    for _ in range(100):
        waiting.take(1)
        took = 2.0 if waiting.is_apart else 0.1
        clock.now += took
        spent[waiting.is_apart] += took
        if waiting.is_apart:
            waiting.put_apart(took)
        else:
            waiting.done()
    assert 0 < spent[True] <= (spent[True] + spent[False]) / 4 + 2.0


def test_what_waits_apart_is_tried_soon_when_nothing_else_waits(clock: Clock) -> None:
    waiting = backlog(in_hand(1))
    waiting.take(1)
    waiting.put_apart(2.0)
    assert 0 < waiting.seconds() <= 2.0
    clock.now += waiting.seconds()
    assert ids(waiting) == [1]
    waiting.done()
    assert (len(waiting), waiting.seconds()) == (0, float("inf"))


def test_what_waited_for_its_lock_waits_for_it_again_at_once_when_nothing_else_waits(clock: Clock) -> None:
    waiting = backlog(in_hand(1))
    for _ in range(3):
        assert ids(waiting) == [1]
        waiting.put_apart(2.0, locked=True)
        assert waiting.seconds() == 0
    ids(waiting)
    waiting.put_apart(0.02, locked=True)
    assert waiting.seconds() > 0


def test_results_of_a_locked_message_wait_together_until_one_is_recorded(clock: Clock) -> None:
    first = in_hand(1)
    waiting = backlog(first, in_hand(2, message_id=first.message_id), in_hand(3))
    assert ids(waiting, 1) == [1]
    waiting.put_apart(0.0, locked=True)
    waiting.add([finished(in_hand(4, message_id=first.message_id), DELIVERED, "success")])
    assert waiting.wary
    assert ids(waiting) == [3]
    waiting.done()
    clock.now += 10
    apart = []
    while len(waiting):
        apart += ids(waiting)
        waiting.done()
    assert (sorted(apart), waiting.wary) == ([1, 2, 4], False)
