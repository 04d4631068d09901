"""test_retry — the retry schedule by example"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from queued.outcome.retry import decide, is_late, limit
from shared.config.queued.transport import Retry

RECEIVED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Schedule:
    """A retry section with round figures."""

    intervals: tuple[timedelta, ...] = (MINUTE, 15 * MINUTE, 60 * MINUTE)
    jitter: float = 0.0
    count: int = 30
    age: timedelta = timedelta(days=5)
    nullage: timedelta = timedelta(days=5)
    notice: timedelta | None = None


@pytest.mark.parametrize(("tries", "minutes"), [(0, 1), (1, 1), (2, 15), (3, 60), (4, 60), (29, 60)])
def test_intervals_in_order_and_the_last_one_repeats(tries: int, minutes: int) -> None:
    assert (
        decide(RECEIVED, received=RECEIVED, tries=tries, schedule=Schedule(), roll=0.5) == RECEIVED + minutes * MINUTE
    )


def test_gives_up_after_count_further_tries() -> None:
    assert decide(RECEIVED, received=RECEIVED, tries=30, schedule=Schedule(), roll=0) is not None
    assert decide(RECEIVED, received=RECEIVED, tries=31, schedule=Schedule(), roll=0) is None
    assert decide(RECEIVED, received=RECEIVED, tries=1, schedule=Schedule(count=0), roll=0) is None


def test_gives_up_at_the_age_limit_and_not_before() -> None:
    limit = RECEIVED + timedelta(days=5)
    just_before = limit - timedelta(seconds=1)
    assert decide(just_before, received=RECEIVED, tries=3, schedule=Schedule(), roll=0) == limit
    assert decide(limit, received=RECEIVED, tries=4, schedule=Schedule(), roll=0) is None


def test_our_own_refused_login_gives_nothing_up_for_two_weeks() -> None:
    """However many tries were refused, and however young mail may become."""
    schedule = Schedule(age=timedelta(hours=4), count=2)
    end = RECEIVED + timedelta(days=14)
    before = end - timedelta(minutes=5)
    for null in (True, False):
        decided = decide(before, received=RECEIVED, tries=99, schedule=schedule, roll=0, kept=True, null=null)
        assert decided == limit(RECEIVED, schedule, kept=True, null=null) == end
        assert decide(end, received=RECEIVED, tries=99, schedule=schedule, roll=0, kept=True, null=null) is None
    assert limit(RECEIVED, Schedule(age=timedelta(days=20)), kept=True) == RECEIVED + timedelta(days=20)


def test_jitter_only_lengthens() -> None:
    schedule = Schedule(jitter=0.5)
    assert decide(RECEIVED, received=RECEIVED, tries=1, schedule=schedule, roll=0.0) == RECEIVED + MINUTE
    assert decide(RECEIVED, received=RECEIVED, tries=1, schedule=schedule, roll=0.5) == RECEIVED + 1.25 * MINUTE


def test_a_clock_behind_the_receipt_still_schedules() -> None:
    earlier = RECEIVED - timedelta(hours=1)
    assert decide(earlier, received=RECEIVED, tries=1, schedule=Schedule(), roll=0) == earlier + MINUTE


def test_mail_from_the_null_sender_is_given_up_earlier_and_never_later() -> None:
    schedule = Schedule(nullage=timedelta(days=1))
    at = RECEIVED + timedelta(hours=23, minutes=59)
    assert decide(at, received=RECEIVED, tries=9, schedule=schedule, roll=0, null=True) == RECEIVED + timedelta(days=1)
    assert decide(at, received=RECEIVED, tries=9, schedule=schedule, roll=0) == at + 60 * MINUTE
    assert limit(RECEIVED, Schedule(nullage=timedelta(days=9)), null=True) == RECEIVED + timedelta(days=5)


def test_a_rule_lengthens_the_wait_and_never_shortens_it() -> None:
    assert decide(
        RECEIVED, received=RECEIVED, tries=1, schedule=Schedule(), roll=0, wait=120 * MINUTE
    ) == RECEIVED + timedelta(hours=2)
    third = decide(RECEIVED, received=RECEIVED, tries=3, schedule=Schedule(), roll=0, wait=MINUTE)
    assert third == RECEIVED + 60 * MINUTE
    limit_ = decide(RECEIVED, received=RECEIVED, tries=1, schedule=Schedule(), roll=0, wait=timedelta(days=9))
    assert limit_ == RECEIVED + timedelta(days=5)


def test_a_delay_is_notified_from_the_configured_age_on() -> None:
    schedule = Schedule(notice=timedelta(hours=4))
    assert not is_late(RECEIVED + timedelta(hours=4) - MINUTE, received=RECEIVED, schedule=schedule)
    assert is_late(RECEIVED + timedelta(hours=4), received=RECEIVED, schedule=schedule)
    assert not is_late(RECEIVED + timedelta(days=4), received=RECEIVED, schedule=Schedule())


def test_the_first_waits_outlast_a_greylist() -> None:
    """A host that greylists asks for a few minutes: the second further try comes when those are over."""
    schedule = Retry()
    at = RECEIVED
    for tries in (1, 2):
        due = decide(at, received=RECEIVED, tries=tries, schedule=schedule, roll=0)
        assert due is not None
        at = due
    assert timedelta(minutes=10) < at - RECEIVED < timedelta(minutes=20)
