"""test_barred_destination — a destination that refuses our login gets no mail at once, and is probed by single attempts

See: queued/destinations/destination.py; queued/outcome/settle.py; docs/how-to/deliver/log-in-to-a-relay.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queued.deliver import Deferral
from queued.destinations.destination import Destination, Rest, Share, Waiting
from queued.destinations.feedback import Steering
from queued.outcome.rules import judge, said_by
from queued.outcome.rules_compile import compile_rules
from queued.outcome.settle import verdict
from queued.values import Result
from shared.config.queued.rules import ReplyRule
from shared.mail.outcome import Outcome
from tests.fixtures.daemons.in_hand import in_hand

ROOM = Share(1000, 1_000_000_000)
WHY = "cannot log in: host refused our login by PLAIN: 535 5.7.8 no"


def offer(destination: Destination, number: int, now: float) -> Waiting | Deferral:
    return destination.offer((0, number), 1, 100, ROOM, now)


def test_one_refused_login_bars_the_destination_and_single_attempts_probe_it() -> None:
    destination = Destination("transport default", Steering(initial=20, cohorts=1000), Rest(60.0, 900.0), 0.0)
    first, second, waiting = (offer(destination, number, 0.0) for number in range(3))
    assert isinstance(first, Waiting)
    assert isinstance(second, Waiting)
    destination.leave(first, 1.0, reached=False, why=WHY, barred=True)
    destination.leave(second, 1.0, reached=False, why=WHY, barred=True)  # had begun before
    parked = offer(destination, 9, 2.0)
    assert isinstance(parked, Deferral)
    assert parked.reason == f"transport default is left alone: {WHY}"
    assert parked.stopped == "destination"
    assert isinstance(waiting, Waiting)
    destination.leave(waiting, 2.0)
    asks = offer(destination, 10, 62.0)
    assert isinstance(asks, Waiting)
    assert asks.started
    assert isinstance(offer(destination, 11, 62.0), Deferral)
    destination.leave(asks, 63.0, reached=False, why=WHY, barred=True)
    assert isinstance(offer(destination, 12, 63.0 + 119), Deferral)  # twice as long
    asks = offer(destination, 13, 63.0 + 120)
    assert isinstance(asks, Waiting)
    destination.leave(asks, 184.0, reached=True)
    assert isinstance(offer(destination, 14, 185.0), Waiting)


def test_a_retry_by_an_operator_keeps_the_first_rest_after_a_refused_login() -> None:
    destination = Destination("transport default", Steering(), Rest(60.0, 900.0), 0.0)
    for number, at in ((1, 0.0), (2, 61.0), (3, 200.0)):
        place = offer(destination, number, at)
        assert isinstance(place, Waiting)
        destination.leave(place, at, reached=False, why=WHY, barred=True)
    destination.retest(230.0)
    assert isinstance(offer(destination, 4, 259.0), Deferral)
    assert isinstance(offer(destination, 5, 260.0), Waiting)


def test_a_refused_login_is_remembered_for_an_hour_and_as_long_as_it_goes_on() -> None:
    """In that hour everything that stayed for it comes back and waits for its turn."""
    destination = Destination("transport default", Steering(), Rest(7200.0, 7200.0), 0.0)
    assert not destination.login_refused(0.0)
    place = offer(destination, 1, 0.0)
    assert isinstance(place, Waiting)
    destination.leave(place, 1.0, reached=False, why="connection refused")
    assert not destination.login_refused(1.0)
    place = offer(destination, 2, 2.0)
    assert isinstance(place, Waiting)
    destination.leave(place, 3.0, reached=False, why=WHY, barred=True)
    assert destination.login_refused(3.0 + 7200)  # no other was tried since
    destination = Destination("transport default", Steering(), Rest(60.0, 900.0), 0.0)
    place = offer(destination, 3, 0.0)
    assert isinstance(place, Waiting)
    destination.leave(place, 1.0, reached=False, why=WHY, barred=True)
    place = offer(destination, 4, 62.0)
    assert isinstance(place, Waiting)
    destination.leave(place, 63.0, reached=True)
    assert destination.login_refused(1.0 + 3599)
    assert not destination.login_refused(1.0 + 3600)


@pytest.mark.parametrize(
    ("outcome", "barred"),
    [
        (Outcome("deferred", "destination", 535, "4.7.8", WHY, phase="auth"), True),
        (Outcome("deferred", "destination", None, "4.7.8", "cannot log in: no AUTH", phase="auth"), True),
        (Outcome("deferred", "us", 530, "4.7.0", "530 5.7.0 log in", phase="mail"), True),
        (Outcome("deferred", "destination", 454, "4.7.0", "454 4.7.0 later", phase="auth"), False),
        (Outcome("deferred", "destination", None, "4.4.2", "no reply within 5 s", phase="auth"), False),
        (Outcome("deferred", "us", 530, None, "530 log in", phase="rcpt"), False),
        (Outcome("deferred", "us", None, "4.3.5", "no transport"), False),
    ],
)
def test_only_a_refused_login_bars_a_destination(*, outcome: Outcome, barred: bool) -> None:
    assert verdict([Result.later(in_hand(1), outcome, timedelta(0))]).barred is barred


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("deferred", "destination", 535, "4.7.8", WHY, phase="auth"),
        Outcome("deferred", "us", 530, "4.7.0", "530 5.7.0 log in", phase="mail"),
    ],
)
def test_a_rule_cannot_bounce_mail_because_of_our_login(outcome: Outcome) -> None:
    def rule(**does: Any) -> ReplyRule:
        return ReplyRule.model_validate({"id": "all5xx", "if": {"code": ["5xx"]}, **does})

    said = said_by(outcome, destination="example.com", transport="default")
    assert judge(compile_rules([rule(bounce="no")]), outcome, said).outcome == outcome
    assert judge(compile_rules([rule(hold="logins")]), outcome, said).held is not None
