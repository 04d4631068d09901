"""ageing — decides about mail that waits without a try: wait on, notify its sender, or give it up

Owns: the decision, and the results of mail that is given up or whose sender is notified.
Guarantees: pure but for the clock of the claim. No mail is given up before its age is over. Mail that a suspend or a
    dead destination stops is given up then, and so is mail that waits for its turn (a policy, a window, a warm-up, a
    busy destination), unless that is near; but mail that was not checked when its age was over, because it was on hold
    or no worker ran, has its try first. Mail that stays because our login is refused is given up after OWN_TROUBLE at
    the earliest. No mail is parked past the end of its age without a check.
See: queued/outcome/retry.py, for mail that is tried; docs/explanation/retries.md; Postfix maximal_queue_lifetime and
    delay_warning_time, which count for defer_transports too.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from queued.dsn.requested import notice
from queued.outcome.retry import is_late, limit
from queued.values import Result
from shared.mail.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from queued.outcome.retry import RetrySchedule
    from queued.values import Claimed
    from queued.waiting.deferral import Deferral

type Fate = Literal["waits", "late", "expired"]

_NEAR: Final = 60.0  # seconds: mail with its turn within them is not reported late and not given up
_AFTERWARDS: Final = timedelta(hours=1)  # within which a worker that runs looks at what has come to the end of its age


class Aged(NamedTuple):
    """The results of recipients that are given up or reported late, and for how long to park the others."""

    results: list[Result]
    parked: tuple[Claimed, ...]
    until: Deferral


def fate(
    now: datetime,
    until: Deferral,
    *,
    received: datetime,
    schedule: RetrySchedule,
    null: bool = False,
    kept: bool = False,
) -> Fate:
    """The decision about mail that must wait as `until` says; `null`: its sender is null; `kept`: as for `aged`."""
    end = limit(received, schedule, null=null, kept=kept)
    if until.stopped != "destination" and until.seconds <= _NEAR:
        return "waits"
    if now >= end:
        return "expired" if until.stopped or now < end + _AFTERWARDS else "waits"
    return "late" if is_late(now, received=received, schedule=schedule) else "waits"


def aged(
    delivery: Sequence[Claimed],
    until: Deferral,
    schedule: RetrySchedule,
    *,
    may_notify: Callable[[Claimed], bool],
    kept: Callable[[Claimed], bool] = lambda _: False,
) -> Aged:
    """The results of recipients that are given up, or whose sender is notified, once: these count as tries.

    may_notify: whether the sender may be notified of a recipient's result. kept: whether it stays, or did until just
    now, because our login is refused.
    """
    results: list[Result] = []
    parked: list[Claimed] = []
    seconds = until.seconds
    for c in delivery:
        now, null = c.now(), c.sender is None
        stays = until.stopped != "us" and kept(c)  # a suspend is somebody's will
        end = limit(c.received, schedule, null=null, kept=stays)
        became = fate(now, until, received=c.received, schedule=schedule, null=null, kept=stays)
        if became == "expired":
            results.append(Result(c, _outcome("delivery time expired", until), None, timedelta(0), "expired", None))
            continue
        if became == "late" and not c.noticed and may_notify(c):
            due = min(now + timedelta(seconds=until.seconds), end)
            late = Result(c, _outcome("waiting", until), None, timedelta(0), None, due, late=end)
            if notice(late):
                results.append(late)
                continue
        parked.append(c)
        if now < end:
            seconds = min(seconds, (end - now).total_seconds())
    return Aged(results, tuple(parked), until._replace(seconds=seconds))


def _outcome(why: str, until: Deferral) -> Outcome:
    return Outcome("deferred", until.stopped or "us", None, "4.4.7", f"{why}: {until.reason}")
