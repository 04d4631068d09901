"""failure-points — named instants at which a test may make a daemon die, stop, hang or fail

Owns: POINTS, the names of all points; `reach`, called once at each; the parsing of PILLARBOX_FAIL.
Guarantees: unset, which is how every installation runs, `reach` is an empty function chosen when this module is
    imported: no lookup, no branch (measured by tests/unit/shared/test_failure_points.py). Set, one point acts once:
    at its `count`th passing in a process, and, where PILLARBOX_FAIL_MARK names a file, only in the process that
    creates it, so that no sibling and no later process dies as well.
    PILLARBOX_FAIL=point:action[:count]; actions: kill (SIGKILL), stop (SIGSTOP), exit (status 70), raise, hang.
Raises: SystemExit with one line, at import, for a value that is not understood; Provoked at a point with `raise`.
See: docs/explanation/crash-table.md; sql/README.md, "Crash table".
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from shared.errors import ConfigError
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Callable

#: Each instant, and its place in the path of a message.
POINTS: Final = {
    "spool.before_copy": "smtpd: the transaction of a group has begun, nothing was copied",
    "spool.before_commit": "smtpd: everything was copied, COMMIT was not sent",
    "spool.after_commit": "smtpd: COMMIT was answered, no submitter has a reply yet",
    "receive.before_reply": "smtpd: a submitter knows of the COMMIT, 250 was not sent",
    "claim.taken": "queued: rows are leased, nothing was sent",
    "deliver.after_data": "queued: the final dot was sent, its reply was not read",
    "deliver.after_reply": "queued: the reply is known, the result was not handed over",
    "result.before_record": "queued: a group of results is about to be recorded",
    "result.after_record": "queued: results are recorded, the worker has not drawn a line under them",
    "webhook.taken": "queued: an endpoint took events, their position was not noted",
    "maintain.sweep": "queued: inside a round of the sweep, as the maintainer",
    "collect.before_commit": "collect: tokens are marked and handed over, COMMIT was not sent",
    "partitions.step": "pillarbox partitions: between two steps",
    "migrate.before_commit": "pillarbox migrate: inside a migration's transaction",
}
ACTIONS: Final = ("kill", "stop", "exit", "raise", "hang")
_EXIT: Final = 70  # EX_SOFTWARE, sysexits.h


class Provoked(RuntimeError):
    """A failure that was asked for."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure to cause: the point, the action, the passing (from 1), and the file that records it."""

    point: str
    action: str
    count: int = 1
    mark: str | None = None


def parse(text: str, mark: str | None = None) -> Failure:
    """The failure that `point:action[:count]` asks for; ConfigError names what is allowed."""
    point, _, rest = text.partition(":")
    action, _, count = rest.partition(":")
    if point not in POINTS:
        raise ConfigError(f"PILLARBOX_FAIL: {show(point)} is not a failure point; allowed: {', '.join(POINTS)}")
    if action not in ACTIONS:
        raise ConfigError(f"PILLARBOX_FAIL: {show(action)} is not an action; allowed: {', '.join(ACTIONS)}")
    if count and not (count.isascii() and count.isdigit() and int(count)):
        raise ConfigError(f"PILLARBOX_FAIL: {show(count)} is not a valid count; allowed: a whole number from 1")
    return Failure(point, action, int(count or 1), mark)


def reaching(failure: Failure) -> Callable[[str], None]:
    """The `reach` that brings this failure about."""
    passings = 0

    def reach(point: str, /) -> None:
        nonlocal passings
        if point != failure.point:
            return
        passings += 1
        if passings == failure.count and _mark(failure.mark):
            _act(failure)

    return reach


def _mark(path: str | None) -> bool:
    """Whether it falls to this process."""
    if path is None:
        return True
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _act(failure: Failure) -> None:
    if failure.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif failure.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif failure.action == "exit":
        os._exit(_EXIT)
    elif failure.action == "hang":
        _hang()
    else:
        raise Provoked(failure.point)


def _hang() -> NoReturn:
    while True:
        signal.pause()


def _nothing(point: str, /) -> None:
    """The `reach` of every installation."""


def _chosen() -> Callable[[str], None]:
    text = os.environ.get("PILLARBOX_FAIL")
    if not text:
        return _nothing
    try:
        return reaching(parse(text, os.environ.get("PILLARBOX_FAIL_MARK")))
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201 - at import there is no log yet
        raise SystemExit(error.exit_status) from None


reach: Final[Callable[[str], None]] = _chosen()
