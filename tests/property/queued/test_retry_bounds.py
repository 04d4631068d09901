"""test_retry_bounds — no schedule, clock or random number makes a retry too early, too late or endless"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from queued.outcome.retry import decide, limit

DURATIONS = st.timedeltas(min_value=timedelta(milliseconds=1), max_value=timedelta(days=60))
MOMENTS = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001 - as above
    timezones=st.just(UTC),
)


@dataclass(frozen=True)
class Schedule:
    """A retry section in any shape."""

    intervals: tuple[timedelta, ...]
    jitter: float
    count: int
    age: timedelta
    nullage: timedelta
    notice: timedelta | None = None


SCHEDULES = st.builds(
    Schedule,
    intervals=st.lists(DURATIONS, min_size=1, max_size=8).map(tuple),
    jitter=st.floats(0, 1),
    count=st.integers(0, 98),
    age=DURATIONS,
    nullage=DURATIONS,
)
ROLLS = st.floats(0, 1, exclude_max=True)


@given(received=MOMENTS, waited=DURATIONS, tries=st.integers(0, 200), schedule=SCHEDULES, roll=ROLLS)
def test_a_retry_keeps_its_interval_and_age_limit(
    received: datetime, waited: timedelta, tries: int, schedule: Schedule, roll: float
) -> None:
    now = received + waited
    oldest = received + schedule.age
    retry = decide(now, received=received, tries=tries, schedule=schedule, roll=roll)
    if tries > schedule.count or now >= oldest:
        assert retry is None
        return
    assert retry is not None
    assert now < retry <= oldest
    interval = schedule.intervals[min(max(tries, 1), len(schedule.intervals)) - 1]
    assert retry >= min(now + interval, oldest)
    assert retry <= now + interval * 2


@given(
    received=MOMENTS,
    waited=DURATIONS,
    tries=st.integers(0, 200),
    schedule=SCHEDULES,
    roll=ROLLS,
    null=st.booleans(),
    wait=st.none() | DURATIONS,
)
def test_rules_and_null_senders_keep_the_bounds(
    *,
    received: datetime,
    waited: timedelta,
    tries: int,
    schedule: Schedule,
    roll: float,
    null: bool,
    wait: timedelta | None,
) -> None:
    """A rule never brings the next try forward, and nothing goes beyond the age that holds for the sender."""
    now = received + waited
    given_up = limit(received, schedule, null=null)
    assert given_up <= received + schedule.age
    plain = decide(now, received=received, tries=tries, schedule=schedule, roll=roll, null=null)
    ruled = decide(now, received=received, tries=tries, schedule=schedule, roll=roll, null=null, wait=wait)
    assert (plain is None) == (ruled is None)
    if plain is not None and ruled is not None:
        assert plain <= ruled <= given_up
        assert wait is None or ruled >= min(now + wait, given_up)


@given(received=MOMENTS, schedule=SCHEDULES, rolls=st.lists(ROLLS, min_size=100, max_size=100))
def test_retries_end(received: datetime, schedule: Schedule, rolls: list[float]) -> None:
    now, tries = received, 0
    for roll in rolls:
        tries += 1
        retry = decide(now, received=received, tries=tries, schedule=schedule, roll=roll)
        if retry is None:
            break
        assert retry > now
        now = retry
    else:
        raise AssertionError("never gave up")
    assert tries <= schedule.count + 1
    assert now <= received + schedule.age
