"""times — whether a moment is within given hours of the week

Owns: the condition `time`. Pure.
Guarantees: a span belongs to the day it begins on, its end on the next day included; the clock is the zone's, so a span
    is shorter or longer on the days that clocks are changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from shared.config.smtpd.policy_condition import Day, zone

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.config.smtpd.policy_condition import TimeSpan

_DAYS: Final[tuple[str, ...]] = get_args(Day)
_DAY: Final = 24 * 60  # minutes


def within(now: datetime, spans: Iterable[TimeSpan]) -> bool:
    """Whether `now`, which has a zone, is in one of the spans."""
    return any(_in(now.astimezone(zone(span.zone)), span) for span in spans)


def _in(local: datetime, span: TimeSpan) -> bool:
    minute, (start, end) = local.hour * 60 + local.minute, span.hours
    today, yesterday = _DAYS[local.weekday()], _DAYS[local.weekday() - 1]
    end += _DAY if end <= start else 0
    begun_today = today in span.days and start <= minute < end
    return begun_today or (yesterday in span.days and start <= minute + _DAY < end)
