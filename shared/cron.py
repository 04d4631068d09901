"""cron — when a recurring message is due next

Owns: the meaning of a cron expression in a time zone. Pure.
Guarantees: occurrences are in UTC and strictly later than the time asked from. Changes of the clock are treated as
    Debian's cron does: a fixed time that is skipped comes right after the change, one that happens twice comes once;
    a schedule of every hour or minute follows real time. Time zone names are those of the system's database; UTC is
    known without it.
Raises: CronRefused, one line that quotes the value and says what is allowed.
See: crontab(5); cron(8) of Debian, "Notes" on daylight saving. cronsim is made for a service that watches cron itself,
    follows Debian's cron at each change of the clock, and needs only zoneinfo.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from shared.masking import show

_FIELDS: Final = 5  # cronsim would take a sixth, of seconds: more often than mail should recur
_ALLOWED: Final = 'minute hour day-of-month month day-of-week as in crontab(5), such as "0 9 * * mon"'


class CronRefused(ValueError):
    """The expression or the time zone is not valid."""


def zone(name: str) -> tzinfo:
    """The time zone of this name, such as Europe/Berlin."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CronRefused(
            f"{show(name)} is not a time zone; allowed: UTC or a name like Europe/Berlin that this system knows"
        ) from None


def following(expression: str, timezone: str, after: datetime) -> datetime:
    """The first occurrence after this time."""
    place = zone(timezone)
    if len(expression.split()) != _FIELDS:
        raise CronRefused(f"{show(expression)} does not have five fields; allowed: {_ALLOWED}")
    try:
        occurrence = next(CronSim(expression, after.astimezone(place)))
    except (CronSimError, ValueError) as error:  # int() refuses thousands of digits
        reason = str(error).lower()
        raise CronRefused(f"{show(expression)} is not a cron expression ({reason}); allowed: {_ALLOWED}") from None
    except StopIteration:
        raise CronRefused(f"{show(expression)} never comes; allowed: {_ALLOWED}") from None
    return occurrence.astimezone(UTC)


def explain(expression: str) -> str:
    """The expression in words, for people; it must be one that `following` takes."""
    return CronSim(expression, datetime.now(UTC)).explain()
