"""settle — makes the result of an outcome: rules first, then the retry schedule

Owns: which outcome finishes a recipient and with which result, when the others are tried again, and whether their
    sender may be notified that they are late.
Guarantees: a Result for every outcome, without waiting. Rules decide only about mail that is not delivered; delivered
    mail stays delivered.
See: queued/outcome/retry.py, queued/outcome/react.py; sql/README.md, "Results".
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from queued.outcome.react import Reactions
from queued.outcome.retry import decide, is_late, limit
from queued.outcome.rules import said_by
from queued.values import Result, Spoken

if TYPE_CHECKING:
    from datetime import timedelta

    from queued.outcome.retry import RetrySchedule
    from queued.values import Claimed
    from shared.mail.outcome import Outcome
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
