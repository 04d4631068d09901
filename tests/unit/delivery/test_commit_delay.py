"""test_commit_delay — a commit waits only if more results are likely, and never for long

Owns: proofs about queued/commit_delay.py.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queued import commit_delay


def test_a_claim_waits_only_while_enough_attempts_are_in_flight() -> None:
    assert commit_delay.before_claim(0) == commit_delay.before_claim(3) == 0.0
    assert commit_delay.before_claim(4) == commit_delay.before_claim(1000) == 0.010


def test_a_single_result_is_committed_at_once() -> None:
    assert commit_delay.before_results(0, 1) == 0.0


def test_a_result_waits_for_others_that_are_under_way() -> None:
    assert commit_delay.before_results(1, 1) == commit_delay.before_results(1000, 49) == 0.010


def test_a_large_group_is_committed_at_once() -> None:
    assert commit_delay.before_results(1000, 50) == 0.0


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_delay_never_exceeds_the_documented_10_ms(under_way: int, ready: int) -> None:
    assert 0.0 <= commit_delay.before_claim(under_way) <= 0.010
    assert 0.0 <= commit_delay.before_results(under_way, ready) <= 0.010
