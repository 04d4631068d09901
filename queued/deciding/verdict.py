"""verdict — what the end of an attempt says, about its destination and about its recipients

Owns: whether a destination was reached, when an attempt is stuck, and the results of attempts that end by our fault.
Called by: queued.attempts.
Guarantees: no await. Our own trouble is always a deferral.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from queued.result import Result
from shared.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queued.claim import Claimed
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


def ours(delivery: Sequence[Claimed], text: str) -> list[Result]:
    """A deferral that is our own fault: the operator has time to mend it, nothing is given up."""
    outcome = Outcome("deferred", "us", None, "4.3.5", text)
    return [Result.later(c, outcome, timedelta(minutes=5)) for c in delivery]
