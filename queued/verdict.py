"""verdict — what the end of an attempt says, about its destination and about its recipients

Owns: whether a destination was reached, when an attempt is stuck, and the results of attempts that no peer decided.
Called by: queued.attempts.
Guarantees: no await. Our own trouble is always a deferral.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from queued.notices_owed import notice
from queued.result import Result
from queued.retry import is_late, limit
from shared.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queued.claim import Claimed
    from queued.deliver import NotNow
    from shared.transport_config import Retry
    from shared.transport_config import Transport as TransportSettings


def verdict(results: Sequence[Result]) -> tuple[bool | None, str]:
    """Whether an attempt reached its destination, None when it tells nothing about it; and the failure in words."""
    told: bool | None = None
    for result in results:
        outcome = result.outcome
        if outcome.kind == "deferred" and outcome.scope == "destination":
            return False, outcome.text
        if outcome.scope in {"recipient", "message"} and result.remote is not None:
            told = True
    return told, ""


def stuck_after(settings: TransportSettings) -> float:
    """Seconds after which an attempt that has not moved is stuck: all its time limits together."""
    limits: dict[str, timedelta] = dict(settings.timeout)
    return sum(limit.total_seconds() for limit in limits.values())


def overdue(delivery: Sequence[Claimed], until: NotNow, retry: Retry, *, tells: bool) -> list[Result]:
    """The results of those that have waited for a dead destination for too long, or so long that it is to be told.

    They count as tries, the latter once. tells: whether senders are told anything.
    """
    outcome = Outcome("deferred", "destination", None, "4.4.7", until.reason)
    results: list[Result] = []
    for c in delivery:
        now, end = c.now(), limit(c.received, retry, null=c.sender is None)
        if now >= end:
            results.append(Result(c, outcome, None, timedelta(0), "expired", None))
        elif tells and not c.noticed and is_late(now, received=c.received, schedule=retry):
            due = min(now + timedelta(seconds=until.seconds), end)
            late = Result(c, outcome, None, timedelta(0), None, due, late=end)
            results += [late] if notice(late) else []
    return results


def ours(delivery: Sequence[Claimed], text: str) -> list[Result]:
    """A deferral that is our own fault: the operator has time to mend it, nothing is given up."""
    outcome = Outcome("deferred", "us", None, "4.3.5", text)
    return [Result.later(c, outcome, timedelta(minutes=5)) for c in delivery]
