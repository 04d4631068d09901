"""verdict — the meaning of an attempt's end for its destination and its recipients

Owns: whether a destination was reached, when an attempt is stuck, and the results of attempts that end by our fault.
Guarantees: no await. Our own trouble is always a deferral.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from queued.outcome.classify import FAULT_STATUS, wants_login
from queued.values import Result
from shared.mail.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queued.values import Claimed
    from shared.config.queued.transport import Transport as TransportSettings


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
    told: bool | None = None
    for result in results:
        outcome = result.outcome
        if outcome.kind == "deferred" and _bars(outcome):
            return DestinationVerdict(reached=False, why=outcome.text, barred=True)
        if outcome.kind == "deferred" and outcome.scope == "destination":
            return DestinationVerdict(reached=False, why=outcome.text)
        if outcome.scope in {"recipient", "message"} and result.remote is not None:
            told = True
    return DestinationVerdict(told)


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
    return [Result.later(c, outcome, timedelta(minutes=5)) for c in delivery]
