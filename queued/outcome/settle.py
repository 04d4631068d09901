"""settle — makes the result of an outcome, rules first, then the retry schedule; and what results say of a destination

Owns: which outcome finishes a recipient and with which result, when the others are tried again, and whether their
    sender may be notified that they are late; whether the destination of an attempt was reached; when an attempt is
    stuck.
Guarantees: a Result for every outcome, without waiting. Rules decide only about mail that is not delivered; delivered
    mail stays delivered. Our own trouble is always a deferral.
See: queued/outcome/retry.py, queued/outcome/react.py; sql/README.md, "Results".
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.outcome.classify import FAULT_STATUS, wants_login
from queued.outcome.own_login import note
from queued.outcome.react import Reactions
from queued.outcome.retry import decide, is_late, limit
from queued.outcome.rules import said_by
from queued.values import Result, Spoken
from shared.mail.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queued.outcome.retry import RetrySchedule
    from queued.values import Claimed
    from shared.config.queued.transport import Transport as TransportSettings
    from shared.mail.smtp_reply import Reply

_UNKNOWN: Final = Spoken()


class Settler:
    """Makes the results of one transport."""

    def __init__(self, transport: str, schedule: RetrySchedule, reactions: Reactions | None = None) -> None:
        """`reactions`: the rules that hold for it; None for none."""
        self._transport = transport
        self._schedule = schedule
        self._reactions = reactions or Reactions()

    def settle(
        self,
        c: Claimed,
        outcome: Outcome,
        reply: Reply | None,
        remote: str | None,
        duration: timedelta,
        *,
        spoken: Spoken = _UNKNOWN,
        site: str | None = None,
        kept: bool = False,
    ) -> Result:
        """The result of one outcome. reply: the deciding one; remote: the last host; site: of its hosts.

        kept: our own login was refused, which gives no mail up before OWN_TROUBLE.
        """
        if outcome.kind == "delivered":
            return Result(c, outcome, remote, duration, "success", None, spoken)
        said = said_by(
            outcome,
            destination=c.recipient.domain,
            transport=self._transport,
            site=site,
            source=spoken.source,
            tries=c.retry_count,
        )
        verdict = self._reactions.judge(outcome, said)
        outcome = verdict.outcome
        if verdict.held is not None:
            return Result(c, outcome, remote, duration, None, None, spoken, verdict.held)
        if outcome.kind == "failed":
            refused_by_us = remote is None or (reply is not None and reply.ours)
            return Result(c, outcome, remote, duration, "rejected" if refused_by_us else "failed", None, spoken)
        return deferred(c, outcome, remote, duration, self._schedule, spoken=spoken, wait=verdict.wait, kept=kept)


def deferred(
    c: Claimed,
    outcome: Outcome,
    remote: str | None,
    duration: timedelta,
    schedule: RetrySchedule,
    *,
    spoken: Spoken = _UNKNOWN,
    wait: timedelta | None = None,
    kept: bool = False,
) -> Result:
    """Tried again when the schedule says so, at the earliest after `wait`, or given up."""
    now, null = c.now(), c.sender is None
    due = decide(
        now,
        received=c.received,
        tries=c.retry_count,
        schedule=schedule,
        roll=random.random(),
        null=null,
        wait=wait,
        kept=kept,
    )
    late = is_late(now, received=c.received, schedule=schedule)
    return Result(
        c,
        outcome,
        remote,
        duration,
        "expired" if due is None else None,
        due,
        spoken,
        late=limit(c.received, schedule, null=null, kept=kept) if late and due is not None else None,
    )


class DestinationVerdict(NamedTuple):
    """The meaning of an attempt for its destination.

    reached: whether it was, None if unknown. why: the failure in words. barred: it failed for our login,
    so that every other attempt would fail too, and each refused one may lock the account.
    """

    reached: bool | None = None
    why: str = ""
    barred: bool = False


def verdict(results: Sequence[Result]) -> DestinationVerdict:
    """The meaning of these results of one attempt."""
    reached: bool | None = None
    for result in results:
        outcome = result.outcome
        if outcome.kind == "deferred" and _bars(outcome):
            return DestinationVerdict(reached=False, why=outcome.text, barred=True)
        if outcome.kind == "deferred" and outcome.scope == "destination":
            return DestinationVerdict(reached=False, why=outcome.text)
        if outcome.scope in {"recipient", "message"} and result.remote is not None:
            reached = True
    return DestinationVerdict(reached)


def _bars(outcome: Outcome) -> bool:
    """Whether the host accepts nothing from us until our login is corrected."""
    if outcome.phase == "auth":
        return outcome.enhanced == FAULT_STATUS["login"]
    return wants_login((outcome,)) is not None


def stuck_after(settings: TransportSettings) -> tuple[float, float]:
    """Seconds after which an attempt that has not moved is stuck, all its time limits together; and one that has."""
    limits: dict[str, timedelta | None] = dict(settings.timeout)
    whole = limits.pop("attempt")
    together = sum(limit.total_seconds() for limit in limits.values() if limit is not None)
    return together, together if whole is None else whole.total_seconds()


def ours(delivery: Sequence[Claimed], text: str) -> list[Result]:
    """A deferral that is our own fault: the operator has time to correct it, nothing is given up."""
    outcome = Outcome("deferred", "us", None, "4.3.5", text)
    return [Result.later(c, note(outcome) if c.login_refused else outcome, timedelta(minutes=5)) for c in delivery]
