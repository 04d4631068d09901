"""test_question_line — which question to DNS comes next, and how long one that was not answered is left alone"""

from __future__ import annotations

import pytest

from queued.routing.question_line import QuestionLine, QuestionTurn
from queued.routing.unanswered import Unanswered


def first(number: int) -> QuestionTurn:
    return QuestionTurn(number, asked=False)


def again(number: int) -> QuestionTurn:
    return QuestionTurn(number, asked=True)


def test_new_questions_go_before_repeated_ones_and_the_newest_first() -> None:
    line, turns = QuestionLine(2, 1.0), [first(1), first(2)]
    assert all(line.enter(turn) and turn.placed for turn in turns)
    waiting = [again(3), first(5), first(9), first(7)]
    assert all(line.enter(turn) for turn in waiting)
    order = list[int]()
    while turns:
        line.leave(turns.pop(0))
        for turn in [turn for turn in waiting if turn.placed]:
            waiting.remove(turn)
            turns.append(turn)
            order.append(turn.number)
    assert order == [9, 7, 5, 3]


def test_repeated_questions_take_at_most_half_of_the_slots() -> None:
    line = QuestionLine(10, 1.0)
    old = [again(n) for n in range(20)]
    assert all(line.enter(turn) for turn in old)
    assert [turn.placed for turn in old] == [True] * 5 + [False] * 15
    new = [first(n) for n in range(20, 26)]
    assert all(line.enter(turn) for turn in new)
    assert [turn.placed for turn in new] == [True] * 5 + [False]
    line.leave(old[0])
    assert new[5].placed
    assert not old[5].placed


def test_a_full_queue_drops_repeated_questions_then_the_oldest() -> None:
    line = QuestionLine(1, 1.0)
    assert line.enter(again(1))
    kept, sent, oldest, newest = first(6), again(2), first(5), first(7)
    assert line.enter(sent, 2)
    assert line.enter(kept, 2)
    assert line.enter(oldest, 2)
    assert sent.settled.is_set()
    assert not sent.placed
    assert not line.enter(again(3), 2)
    assert not line.enter(first(4), 2)
    assert line.enter(newest, 2)
    assert oldest.settled.is_set()
    assert not kept.settled.is_set()


def test_a_question_releases_its_slot_once() -> None:
    line, has, waits, gone = QuestionLine(1, 1.0), first(1), first(2), first(3)
    assert line.enter(has)
    assert line.enter(waits)
    assert line.enter(gone)
    for _ in range(2):
        line.leave(gone)
    third = first(0)
    assert line.enter(third)
    assert [turn.placed for turn in (has, waits, gone, third)] == [True, False, False, False]
    for _ in range(2):
        line.leave(has)
    assert [turn.placed for turn in (has, waits, gone, third)] == [False, True, False, False]


def test_a_new_question_is_delayed_briefly_in_any_queue() -> None:
    line = QuestionLine(200, 1.0)
    assert 60 >= max(line.put_off(n, 0.0) for n in range(5000)) > 0
    assert 10 < line.put_off(0, 0.1) <= 60
    assert line.put_off(5001, 0.2) == 1.0
    line.enter(first(5001))
    assert line.put_off(5000, 0.2) == 1.0


def test_a_flood_of_questions_returns_as_fast_as_they_are_answered() -> None:
    def longest(answered: int) -> float:
        line = QuestionLine(200, 1.0)
        for n in range(answered):
            line.answered(first(n), n / answered)
        return max(line.put_off(n, 1.0) for n in range(3000, 1000, -1))

    assert longest(0) > 40, "twenty a second"
    assert 2 <= longest(700) < 6


def test_a_line_is_full_of_those_never_asked_for_all_and_of_others_for_those_asked_before() -> None:
    line = QuestionLine(1, 1.0)
    for turn in (again(1), again(2), again(3)):
        assert line.enter(turn)
    assert line.is_full(2, 9, 0.0, asked=True)
    assert not line.is_full(2, 9, 0.0, asked=False)
    for turn in (first(4), first(5), first(6)):
        assert line.enter(turn)
    assert line.is_full(2, 3, 0.0, asked=False)


def test_a_line_is_not_full_for_the_newest_question_unless_newer_ones_follow() -> None:
    """Parked, it would be older than they are when it comes again, and never have its place while they come."""
    line = QuestionLine(1, 1.0)
    for turn in (first(4), first(5), first(6)):
        assert line.enter(turn)
    assert not line.is_full(2, 7, 0.0, asked=False)
    assert line.is_full(2, 7, 0.0, asked=False, follow=2)
    assert line.enter(first(7), 2)


def test_questions_that_return_have_chances_and_one_that_is_answered_gives_its_own_back() -> None:
    line = QuestionLine(200, 1.0)
    line.put_off(1, 1.0)

    def admitted(turn: QuestionTurn, now: float) -> bool:
        if line.is_full(200, turn.number, now, asked=turn.asked):
            return False
        assert line.enter(turn, 200)
        return True

    old = [again(n) for n in range(2, 30)]
    assert sum(admitted(turn, 1.0) for turn in old) == 11, "half are kept for what was put off and is newest"
    assert admitted(first(1), 1.0)
    assert all(admitted(first(n), 1.0) for n in range(100, 150)), "these came just now"
    assert not admitted(old[20], 1.0)
    for turn in old[:2]:
        line.answered(turn, 0.0)
    assert admitted(old[20], 1.0)
    assert not admitted(old[21], 1.0)
    assert admitted(old[21], 2.0)


def test_unanswered_questions_are_repeated_at_growing_intervals() -> None:
    unanswered = Unanswered[str](10)
    assert not unanswered.is_asked("a")
    assert (unanswered.number("a"), unanswered.number("b"), unanswered.number("a")) == (1, 2, 1)
    assert not unanswered.is_asked("a")
    assert [unanswered.fail("a", 1.0, 100.0) for _ in range(3)] == [3, 6, 12]
    assert unanswered.is_asked("a")
    assert unanswered.left("a", 105.0) == pytest.approx(7.0)
    assert unanswered.left("a", 113.0) == unanswered.left("b", 0.0) == unanswered.left("c", 0.0) == 0
    assert [unanswered.fail("c", took, 0.0) for took in (0.0, 1000.0, 1000.0)] == [1, 300, 300]
    unanswered.forget("a")
    assert not unanswered.is_asked("a")
    assert unanswered.number("a") == 4, "once it was answered it counts as new"


def test_the_memory_of_unanswered_questions_is_bounded() -> None:
    unanswered = Unanswered[int](3)
    for n in range(10):
        unanswered.fail(n, 1.0, 0.0)
    assert len(unanswered) == 3
    assert [unanswered.is_asked(n) for n in (6, 7, 9)] == [False, True, True]
