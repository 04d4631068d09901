"""windows — computes when a transport may deliver next

Owns: the meaning of delivery windows. Pure.
Guarantees: a window is open when the clock on the wall of its zone shows a time inside it, whatever changes of the
    clock there are: an hour that comes twice is open twice, and after a skipped hour the rest of a window is open. The
    answer is an open time, and no earlier one is.
See: shared.config.queued.pacing, Window; docs/explanation/pacing.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from shared import cron
from shared.config.queued.pacing import DAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import tzinfo

    from shared.config.queued.pacing import Window

_DAY: Final = timedelta(days=1)
_WEEK: Final = timedelta(days=7)
_MINUTE: Final = timedelta(minutes=1)
_STEPS: Final = 100  # changes of the clock to pass on the way; a week has one at most


def next_open(windows: Sequence[Window], now: datetime) -> datetime | None:
    """The earliest time from `now` on, itself included, at which one of these is open; None when there are none.

    `now` is in any zone; the answer is in UTC.
    """
    return min((_next(window, now) for window in windows), default=None)


def is_open(window: Window, at: datetime) -> bool:
    """Whether the clock of the window's zone shows a time inside it."""
    since = _since_monday(at.astimezone(cron.zone(window.zone)))
    return any((since - begin) % _WEEK < length for begin, length in _times(window))


def longest_closed(windows: Sequence[Window], now: datetime) -> timedelta:
    """For how long none of these is open at a stretch, to the minute, by the clocks of the week of `now`."""
    if not windows:
        return timedelta(0)
    week = _WEEK // _MINUTE
    closed = bytearray(b"x" * week)
    for window in windows:
        offset = now.astimezone(cron.zone(window.zone)).utcoffset() or timedelta(0)
        for begin, length in _times(window):
            for minute in range((begin - offset) // _MINUTE, (begin - offset + length) // _MINUTE):
                closed[minute % week] = ord(" ")
    # Twice, for what goes on from Sunday to Monday.
    return min(max(map(len, (closed * 2).split()), default=0), week) * _MINUTE


def _next(window: Window, now: datetime) -> datetime:
    place = cron.zone(window.zone)
    at = now.astimezone(UTC)
    for _ in range(_STEPS):
        if is_open(window, at):
            return at
        since = _since_monday(at.astimezone(place))
        target = at + min((begin - since) % _WEEK for begin, _ in _times(window))
        change = _change(place, at, target)
        at = target if change is None else change
    raise AssertionError("unreachable: a week has fewer changes of the clock")


def _times(window: Window) -> Iterator[tuple[timedelta, timedelta]]:
    """When it begins, since Monday 00:00 by its clock, and how long it lasts."""
    length = (window.end - window.begin) * _MINUTE % _DAY or _DAY
    for day in window.days:
        yield DAYS.index(day) * _DAY + window.begin * _MINUTE, length


def _since_monday(local: datetime) -> timedelta:
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return local.weekday() * _DAY + (local.replace(tzinfo=None) - midnight)


def _change(place: tzinfo, after: datetime, until: datetime) -> datetime | None:
    """The first second at which the zone has another offset than at `after`, if it has one at `until`."""
    offset = after.astimezone(place).utcoffset()
    if until.astimezone(place).utcoffset() == offset:
        return None
    low, high = 0, int((until - after).total_seconds()) + 1
    start = after.replace(microsecond=0)
    while high - low > 1:
        middle = (low + high) // 2
        same = (start + timedelta(seconds=middle)).astimezone(place).utcoffset() == offset
        low, high = (middle, high) if same else (low, middle)
    return start + timedelta(seconds=high)
