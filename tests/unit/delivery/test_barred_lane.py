"""test_barred_lane — a destination that refuses our login is left alone at once, and asked after now and then

See: queued/destinations/lane.py; queued/outcome/verdict.py; docs/how-to/log-in-to-a-relay.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queued.deliver import NotNow
from queued.destinations.feedback import Steering
from queued.destinations.lane import Lane, Place, Rest, Room
from queued.outcome.rules import judge, said_by
from queued.outcome.rules_compile import compile_rules
from queued.outcome.verdict import verdict
from queued.values import Result
from shared.config.queued.rules import ReplyRule
from shared.mail.outcome import Outcome
from tests.fixtures.daemons.in_hand import in_hand

ROOM = Room(1000, 1_000_000_000)
WHY = "cannot log in: host refused our login by PLAIN: 535 5.7.8 no"


def offer(lane: Lane, number: int, now: float) -> Place | NotNow:
    return lane.offer((0, number), 1, 100, ROOM, now)


def test_one_refusal_is_enough_and_one_attempt_asks_again() -> None:
    lane = Lane("transport default", Steering(initial=20, cohorts=1000), Rest(60.0, 900.0), 0.0)
    first, second, waiting = (offer(lane, number, 0.0) for number in range(3))
    assert isinstance(first, Place)
    assert isinstance(second, Place)
    lane.leave(first, 1.0, reached=False, why=WHY, barred=True)
    lane.leave(second, 1.0, reached=False, why=WHY, barred=True)  # had begun before
    parked = offer(lane, 9, 2.0)
    assert isinstance(parked, NotNow)
    assert parked.reason == f"transport default is left alone: {WHY}"
    assert parked.stopped == "destination"
    assert isinstance(waiting, Place)
    lane.leave(waiting, 2.0)
    asks = offer(lane, 10, 62.0)
    assert isinstance(asks, Place)
    assert asks.started
    assert isinstance(offer(lane, 11, 62.0), NotNow)
    lane.leave(asks, 63.0, reached=False, why=WHY, barred=True)
    assert isinstance(offer(lane, 12, 63.0 + 119), NotNow)  # twice as long
    asks = offer(lane, 13, 63.0 + 120)
    assert isinstance(asks, Place)
    lane.leave(asks, 184.0, reached=True)
    assert isinstance(offer(lane, 14, 185.0), Place)


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
def test_what_bars_a_destination(*, outcome: Outcome, barred: bool) -> None:
    assert verdict([Result.later(in_hand(1), outcome, timedelta(0))]).barred is barred


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("deferred", "destination", 535, "4.7.8", WHY, phase="auth"),
        Outcome("deferred", "us", 530, "4.7.0", "530 5.7.0 log in", phase="mail"),
    ],
)
def test_no_rule_bounces_mail_for_our_login(outcome: Outcome) -> None:
    def rule(**does: Any) -> ReplyRule:
        return ReplyRule.model_validate({"id": "all5xx", "if": {"code": ["5xx"]}, **does})

    said = said_by(outcome, destination="example.com", transport="default")
    assert judge(compile_rules([rule(bounce="no")]), outcome, said).outcome == outcome
    assert judge(compile_rules([rule(hold="logins")]), outcome, said).held is not None
