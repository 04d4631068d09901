"""test_commit_delay — a commit waits only if more results are likely, and never for long

Owns: proofs about queued/commit_delay.py.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queued import commit_delay


def test_a_single_result_is_committed_at_once() -> None:
    assert commit_delay.seconds(0) == commit_delay.seconds(3) == commit_delay.seconds(3, 1) == 0.0


def test_a_commit_waits_while_enough_attempts_are_in_flight() -> None:
    assert commit_delay.seconds(4) == commit_delay.seconds(1000, 49) == 0.010


def test_a_large_group_is_committed_at_once() -> None:
    assert commit_delay.seconds(1000, 50) == 0.0


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_delay_never_exceeds_the_documented_10_ms(under_way: int, ready: int) -> None:
    assert 0.0 <= commit_delay.seconds(under_way, ready) <= 0.010
