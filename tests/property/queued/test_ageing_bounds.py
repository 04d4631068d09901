"""test_ageing_bounds — waiting mail is never bounced too early, and never waits for ever"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from queued.deliver import Deferral
from queued.outcome.ageing import fate
from queued.outcome.retry import is_late, limit
from shared.config.queued.transport import Retry

RECEIVED = datetime(2026, 3, 1, tzinfo=UTC)
AGES = st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=60))
SCHEDULES = st.builds(
    lambda age, nullage, notice: Retry.model_construct(age=age, nullage=nullage, notice=notice),
    AGES,
    AGES,
    AGES | st.none(),
)
WAITS = st.builds(
    lambda seconds, stopped: Deferral(seconds, "why", stopped=stopped),
    st.floats(0, 90_000),
    st.sampled_from([None, "us", "destination"]),
)


@given(waited=AGES, until=WAITS, schedule=SCHEDULES, null=st.booleans())
def test_waiting_mail_expires_at_its_age_limit_and_not_before(
    waited: timedelta, until: Deferral, schedule: Retry, *, null: bool
) -> None:
    now, end = RECEIVED + waited, limit(RECEIVED, schedule, null=null)
    became = fate(now, until, received=RECEIVED, schedule=schedule, null=null)
    if became == "expired":
        assert now >= end
        assert until.stopped or now < end + timedelta(hours=1)
    if became == "late":
        assert now < end
        assert is_late(now, received=RECEIVED, schedule=schedule)
    if until.stopped == "destination":
        assert (became == "expired") == (now >= end)


@given(until=WAITS, schedule=SCHEDULES, null=st.booleans())
def test_a_recipient_at_its_age_limit_with_a_long_wait_expires(until: Deferral, schedule: Retry, *, null: bool) -> None:
    assume(until.seconds > 60)
    end = limit(RECEIVED, schedule, null=null)
    assert fate(end, until, received=RECEIVED, schedule=schedule, null=null) == "expired"
