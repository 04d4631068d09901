"""test_rate_count — no client exceeds its limit, and none within it is refused

Owns: properties of smtpd/rates/counters.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from smtpd.rates.counters import HitCounter, Limit, SessionCounter

GAPS = st.lists(st.floats(0, 30), max_size=60)
MOST = st.integers(1, 20)
WINDOWS = st.sampled_from([1.0, 60.0, 3600.0])


@given(gaps=GAPS, most=MOST, window=WINDOWS, hits=st.integers(1, 3))
def test_no_time_span_exceeds_the_limit(gaps: list[float], most: int, window: float, hits: int) -> None:
    counter, now, allowed = HitCounter(), 0.0, []
    for gap in gaps:
        now += gap * window / 60
        if not counter.hit([Limit("a", most, window)], hits, now):
            allowed += [now] * min(hits, most)
    for first in range(len(allowed)):
        for last in range(first, len(allowed)):
            span = allowed[last] - allowed[first]
            assert last - first + 1 <= most * (1 + span / window) + 1e-3


@given(most=MOST, window=WINDOWS, hits=st.integers(1, 30))
def test_hits_at_the_rate_of_the_limit_are_all_allowed(most: int, window: float, hits: int) -> None:
    counter, now = HitCounter(), 100.0
    for _ in range(3 * most + 3):
        assert counter.hit([Limit("a", most, window)], hits, now) == 0
        now += hits * window / most


@given(gaps=GAPS, most=MOST, window=WINDOWS)
def test_a_refused_hit_is_not_counted_and_names_the_wait(gaps: list[float], most: int, window: float) -> None:
    limits = [Limit("a", most, window), Limit("b", most + 1, window)]
    counter, now, refused = HitCounter(), 0.0, 0
    for gap in [*gaps, *[0.0] * (most + 1)]:
        now += gap * window / 60
        wait = counter.hit(limits, 1, now)
        if wait:
            refused += 1
            assert 0 < wait <= window + 1e-3
            assert counter.hit(limits, 1, now) == wait
            now += wait
            assert counter.hit(limits, 1, now) == 0
    assert refused


@given(hits=st.integers(0, 50), most=MOST)
def test_a_query_is_not_counted(hits: int, most: int) -> None:
    counter = HitCounter()
    for _ in range(hits):
        assert counter.hit([Limit("a", most, 60.0)], 0, 1.0) == 0
    assert len(counter) == 0
    for _ in range(most):
        assert counter.hit([Limit("a", most, 60.0)], 1, 1.0) == 0
    assert counter.hit([Limit("a", most, 60.0)], 0, 1.0) > 0


@given(most=MOST, window=WINDOWS, before=st.integers(0, 19), later=st.floats(0, 1), others=st.integers(0, 5))
def test_a_returned_hit_is_not_counted(most: int, window: float, before: int, later: float, others: int) -> None:
    """Also with other hits in between; and no more than was taken is returned."""
    limit = [Limit("a", most, window)]
    counter, without = HitCounter(), HitCounter()
    for _ in range(min(before, most - 1)):
        counter.hit(limit, 1, 1.0)
        without.hit(limit, 1, 1.0)
    assert counter.hit(limit, 1, 1.0) == 0
    now = 1.0 + later * window / most  # not paid off yet
    for _ in range(others):
        if counter.hit(limit, 1, now) == 0:
            assert without.hit(limit, 1, now) == 0
    assert counter.hit(limit, -1, now) == 0
    assert counter.hit(limit, most, now) == pytest.approx(without.hit(limit, most, now), abs=window / most + 1e-3)
    assert HitCounter().hit(limit, -1, now) == 0


def test_a_hit_refused_by_one_limit_is_not_counted_by_others() -> None:
    counter = HitCounter()
    tight, wide = Limit("tight", 1, 60.0), Limit("wide", 2, 60.0)
    assert counter.hit([tight, wide], 1, 0.0) == 0
    assert counter.hit([tight, wide], 1, 0.0) == pytest.approx(60)
    assert counter.hit([wide], 1, 0.0) == 0


def test_memory_is_bounded_and_drops_the_least_recently_used_key() -> None:
    counter = HitCounter(remembered=3)
    for key in ("a", "b", "c", "a", "d"):
        counter.hit([Limit(key, 2, 60.0)], 1, 0.0)
    assert len(counter) == 3
    assert counter.hit([Limit("a", 2, 60.0)], 1, 0.0) > 0, "a was used again and must not be forgotten"
    assert counter.hit([Limit("b", 2, 60.0)], 2, 0.0) == 0, "b was the longest unused"


def test_expired_counts_are_forgotten() -> None:
    counter = HitCounter()
    for number in range(100):
        counter.hit([Limit(f"key {number}", 10, 60.0)], 1, 0.0)
    counter.hit([Limit("last", 10, 60.0)], 1, 3600.0)
    assert len(counter) == 1


class Sessions(RuleBasedStateMachine):
    """Sessions of a few keys against a plain list of open sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = SessionCounter()
        self.inside: dict[int, list[str]] = {}

    @rule(token=st.integers(0, 9), keys=st.lists(st.sampled_from("abc"), unique=True), most=st.integers(1, 4))
    def opens(self, token: int, keys: list[str], most: int) -> None:
        self.inside.pop(token, None)
        fits = all(sum(key in held for held in self.inside.values()) < most for key in keys)
        assert self.counter.open(token, [(key, most) for key in keys]) == fits
        if fits:
            self.inside[token] = keys

    @rule(token=st.integers(0, 9))
    def closes(self, token: int) -> None:
        self.inside.pop(token, None)
        self.counter.close(token)

    @invariant()
    def agrees(self) -> None:
        assert len(self.counter) == len(self.inside)
        for key in "abc":
            assert self.counter.count(key) == sum(key in held for held in self.inside.values())


TestSessions = Sessions.TestCase
