"""minutes — the attempts of the last hour as bars, a minute each

Guarantees: pure. The newest minute is rightmost; a minute without attempts is a gap. The tallest bar fills the height.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

MINUTES: Final = 60
WIDTH: Final = 5  # of a minute
HEIGHT: Final = 48
#: From the bottom up.
OUTCOMES: Final = ("delivered", "deferred", "failed", "lease_expired")


@dataclass(frozen=True, slots=True)
class Part:
    """The attempts of one minute and outcome, as a rectangle; y is counted from the top."""

    outcome: str
    x: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """The bars, and the same in figures: attempts by outcome, the most in a minute, the newest minute that is known."""

    parts: list[Part]
    total: dict[str, int]
    most: int
    newest: datetime


def chart(minutes: Sequence[Any], now: datetime) -> Chart | None:
    """The chart of these minutes, None without any. minutes: in order, each with its start and attempts by outcome."""
    last = now.replace(second=0, microsecond=0)
    shown = [(int((last - each.minute) / timedelta(minutes=1)), each) for each in minutes]
    shown = [(ago, each) for ago, each in shown if 0 <= ago < MINUTES]
    most = max((sum(getattr(each, outcome) for outcome in OUTCOMES) for _, each in shown), default=0)
    if not most:
        return None
    parts = []
    for ago, each in shown:
        top = 0
        for outcome in OUTCOMES:
            if attempts := getattr(each, outcome):
                top += attempts
                y, height = HEIGHT * (1 - top / most), HEIGHT * attempts / most
                parts.append(Part(outcome, WIDTH * (MINUTES - 1 - ago), round(y, 2), round(height, 2)))
    total = {outcome: sum(getattr(each, outcome) for _, each in shown) for outcome in OUTCOMES}
    return Chart(parts, total, most, shown[-1][1].minute)
