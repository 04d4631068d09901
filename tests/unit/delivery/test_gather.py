"""test_gather — company is waited for only where it is likely, and never for long

Owns: proofs about queued/commit_delay.py.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queued import commit_delay


def test_a_lone_message_does_not_wait() -> None:
    assert commit_delay.seconds(0) == commit_delay.seconds(3) == commit_delay.seconds(3, 1) == 0.0


def test_company_is_waited_for_while_enough_is_under_way() -> None:
    assert commit_delay.seconds(4) == commit_delay.seconds(1000, 49) == 0.010


def test_a_group_that_is_worth_its_commit_goes_at_once() -> None:
    assert commit_delay.seconds(1000, 50) == 0.0


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_nobody_waits_longer_than_the_window_that_is_documented(under_way: int, ready: int) -> None:
    assert 0.0 <= commit_delay.seconds(under_way, ready) <= 0.010
