"""test_ageing — the ageing of waiting mail, by example

See: tests/property/queued/test_ageing_bounds.py for properties of any age;
    tests/scenario/delivery/test_waiting_mail_expires.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queued.deliver import Deferral
from queued.outcome.ageing import aged, fate
from shared.config.queued.transport import Retry
from tests.fixtures.daemons.in_hand import in_hand

if TYPE_CHECKING:
    from queued.outcome.ageing import Fate
    from queued.values import Claimed

RECEIVED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SCHEDULE = Retry.model_validate({"age": "5d", "nullage": "2d", "notice": "4h"})
SUSPENDED = Deferral(600.0, "suspended: they asked", stopped="us")
DEAD = Deferral(30.0, "example.com does not answer: connection refused", stopped="destination")
BARRED = Deferral(30.0, "transport default is left alone: cannot log in", stopped="destination")
CLOSED = Deferral(3600.0, "transport default delivers nothing until 2026-03-07 08:00 UTC")
NEXT = Deferral(0.5, "policy gentle: 2/sec", 0.5)


@pytest.mark.parametrize(
    ("until", "days", "became"),
    [
        (BARRED, 0, "waits"),
        (BARRED, 1, "late"),
        (BARRED, 5, "late"),
        (BARRED, 13.9, "late"),
        (BARRED, 14, "expired"),
        (CLOSED, 5.01, "late"),  # the login works again, and so much mail waits for its turn
    ],
)
def test_the_fate_of_mail_that_stays_for_our_login(until: Deferral, days: float, became: Fate) -> None:
    now = RECEIVED + timedelta(days=days)
    assert fate(now, until, received=RECEIVED, schedule=SCHEDULE, kept=True) == became
    assert fate(now, until, received=RECEIVED, schedule=SCHEDULE, kept=True, null=True) == became
    longer = SCHEDULE.model_copy(update={"age": timedelta(days=20)})
    assert fate(RECEIVED + timedelta(days=19), until, received=RECEIVED, schedule=longer, kept=True) == "late"


def test_a_suspend_ends_as_usual_the_mail_that_stays_for_our_login() -> None:
    for refused in (True, False):
        c = recipient(1, 121 * HOUR, login_refused=refused)
        [result], _, _ = aged((c,), SUSPENDED, SCHEDULE, may_notify=lambda _: True, kept=lambda c: c.login_refused)
        assert result.result == "expired"


@pytest.mark.parametrize(
    ("until", "hours", "became"),
    [
        (SUSPENDED, 3.9, "waits"),
        (SUSPENDED, 4, "late"),
        (SUSPENDED, 119.9, "late"),
        (SUSPENDED, 120, "expired"),
        (SUSPENDED, 200, "expired"),
        (SUSPENDED._replace(seconds=20.0), 200, "waits"),  # its end is near
        (DEAD, 4, "late"),
        (DEAD, 200, "expired"),
        (CLOSED, 4, "late"),
        (CLOSED, 120, "expired"),
        (CLOSED, 120.9, "expired"),
        (CLOSED, 122, "waits"),  # its age passed unnoticed: it has its try
        (NEXT, 4, "waits"),
        (NEXT, 120, "waits"),
    ],
)
def test_the_fate_of_waiting_mail_by_its_age(until: Deferral, hours: float, became: Fate) -> None:
    assert fate(RECEIVED + hours * HOUR, until, received=RECEIVED, schedule=SCHEDULE) == became


def test_mail_from_the_null_sender_is_given_up_by_its_own_age() -> None:
    for null, became in ((True, "expired"), (False, "late")):
        assert fate(RECEIVED + 48 * HOUR, SUSPENDED, received=RECEIVED, schedule=SCHEDULE, null=null) == became


def recipient(number: int, waited: timedelta, **fields: Any) -> Claimed:
    """One of a delivery, received so long ago."""
    return in_hand(number, received=datetime.now(UTC) - waited, **fields)


def test_recipients_are_divided_into_expired_notified_and_waiting() -> None:
    old, late, notified_before, young = (
        recipient(1, 6 * 24 * HOUR),
        recipient(2, 5 * HOUR),
        recipient(3, 5 * HOUR, noticed=True),
        recipient(4, HOUR),
    )
    results, parked, until = aged((old, late, notified_before, young), SUSPENDED, SCHEDULE, may_notify=lambda _: True)
    assert parked == (notified_before, young)
    assert until == SUSPENDED
    given_up, notified = results
    assert (given_up.claimed, given_up.result, given_up.next_retry) == (old, "expired", None)
    assert (given_up.outcome.enhanced, given_up.outcome.scope) == ("4.4.7", "us")
    assert given_up.outcome.text == "delivery time expired: suspended: they asked"
    assert (notified.claimed, notified.result, notified.late) == (late, None, late.received + SCHEDULE.age)
    assert notified.next_retry is not None
    assert notified.next_retry - late.now() == pytest.approx(timedelta(seconds=600), abs=timedelta(seconds=5))
    assert notified.outcome.text == "waiting: suspended: they asked"


def test_recipients_without_delay_notices_stay_parked() -> None:
    never = {"_dsn": {"notify": ["FAILURE"]}}
    silent = (recipient(1, 5 * HOUR, metadata=never), recipient(2, 5 * HOUR, sender=None))
    assert aged(silent, SUSPENDED, SCHEDULE, may_notify=lambda _: True) == ([], silent, SUSPENDED)
    asking = (recipient(3, 5 * HOUR),)
    assert aged(asking, SUSPENDED, SCHEDULE, may_notify=lambda _: False) == ([], asking, SUSPENDED)


def test_recipients_are_parked_no_longer_than_their_age_limit() -> None:
    delivery = (recipient(1, HOUR), recipient(2, 120 * HOUR - timedelta(minutes=10), noticed=True))
    results, parked, until = aged(delivery, CLOSED, SCHEDULE, may_notify=lambda _: True)
    assert (results, parked, until.reason) == ([], delivery, CLOSED.reason)
    assert until.seconds == pytest.approx(600, abs=5)


def test_mail_expired_behind_a_dead_host_has_scope_destination() -> None:
    [result], _, _ = aged((recipient(1, 200 * HOUR),), DEAD, SCHEDULE, may_notify=lambda _: True)
    assert result.outcome.scope == "destination"
    assert result.outcome.text == "delivery time expired: example.com does not answer: connection refused"
