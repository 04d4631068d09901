"""retry — when a deferred recipient is tried again, or that it no longer is

Owns: the arithmetic of the retry schedule.
Guarantees: pure; never sooner than the interval, unless the age limit comes first; never after it.
See: Postfix minimal_backoff_time, maximal_backoff_time, maximal_queue_lifetime, delay_warning_time; RFC 5321 §4.5.4.1.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

#: For how long at least mail is kept that stays only because our own login is refused: longer than an operator is away.
OWN_TROUBLE: Final = timedelta(days=14)


class RetrySchedule(Protocol):
    """The values of a transport's `retry` section."""

    @property
    def intervals(self) -> Sequence[timedelta]:
        """Waits after the first, second, … try; the last one repeats; at least one."""

    @property
    def jitter(self) -> float:
        """Largest fraction of the interval that is added to it, 0 to 1."""

    @property
    def count(self) -> int:
        """Further tries after the first before we give up (Halon retry.count)."""

    @property
    def age(self) -> timedelta:
        """How long after receipt we give up (Postfix maximal_queue_lifetime)."""

    @property
    def nullage(self) -> timedelta:
        """The same for mail from the null sender (Postfix bounce_queue_lifetime); the lesser of the two holds."""

    @property
    def notice(self) -> timedelta | None:
        """How long after receipt the sender is notified that the mail is late; None for never."""


def decide(
    now: datetime,
    *,
    received: datetime,
    tries: int,
    schedule: RetrySchedule,
    roll: float,
    null: bool = False,
    wait: timedelta | None = None,
    kept: bool = False,
) -> datetime | None:
    """When to try next after `tries` tries, the one just deferred included; None to give up.

    `roll` is a random number in [0, 1). It only ever lengthens the wait: spread out is the aim, and a wait
    cut short could become none. A wait that would pass the age limit ends at the limit, for one last try.
    `null`: the sender is null. `wait`: what a rule asks for; it too only lengthens. `kept`: our own login was refused,
    so that the number of tries says nothing about the mail.
    """
    left = limit(received, schedule, null=null, kept=kept) - now
    if (tries > schedule.count and not kept) or left.total_seconds() <= 0:
        return None
    interval = schedule.intervals[min(max(tries, 1), len(schedule.intervals)) - 1]
    if wait is not None:
        interval = max(interval, wait)
    return now + min(interval + interval * (schedule.jitter * roll), left)


def limit(received: datetime, schedule: RetrySchedule, *, null: bool = False, kept: bool = False) -> datetime:
    """When we give up at the latest; `kept`: what stops it is our own login."""
    age = min(schedule.age, schedule.nullage) if null else schedule.age
    return received + (max(age, OWN_TROUBLE) if kept else age)


def is_late(now: datetime, *, received: datetime, schedule: RetrySchedule) -> bool:
    """Whether a sender that gets notices of delays should get one now; the queue row knows whether it was sent."""
    return schedule.notice is not None and now - received >= schedule.notice
