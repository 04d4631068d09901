"""events — one line of log for each event, and the watchers of events

Owns: the log format of the daemons; the watchers of each event (metrics, health); when an outage of PostgreSQL begins
    and ends.
Guarantees: a name not in the table cannot be emitted. One event is one line, with any values. An event that
    is neither watched nor logged costs two look-ups. An outage of PostgreSQL is one line, and its end another.
See: shared/observe/events_table.py for the names.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from shared.errors import in_words
from shared.observe.events_table import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_PLAIN = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f]+")
_LOG = logging.getLogger("pillarbox")


#: Called with the fields of an event. It must be quick, and what it raises would end the part that emits.
type Watcher = Callable[[Mapping[str, object]], None]


class Ended(NamedTuple):
    """An outage that is over: how long it was, in seconds, and how many failures there were."""

    seconds: float
    failures: int


class Outage:
    """Whether PostgreSQL is away, as the failures of this process tell; pure, and times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._failures = 0

    @property
    def lasts(self) -> bool:
        """Whether there is one now."""
        return self._since is not None

    def failed(self, now: float) -> bool:
        """PostgreSQL did not answer; whether that is the first failure of an outage."""
        self._failures += 1
        if self._since is not None:
            return False
        self._since = now
        return True

    def answered(self, now: float) -> Ended | None:
        """PostgreSQL answered; the outage that this ends, if there was one."""
        if self._since is None:
            return None
        ended = Ended(now - self._since, self._failures)
        self._since, self._failures = None, 0
        return ended


_WATCHERS: dict[str, tuple[Watcher, ...]] = {}
_OUTAGE = Outage()


@contextmanager
def watched(watchers: Mapping[str, Sequence[Watcher]]) -> Iterator[None]:
    """Call these at every event of their name, whatever the log's level, as long as the block lasts."""
    for event, each in watchers.items():
        _WATCHERS[event] = (*_WATCHERS.get(event, ()), *each)
    try:
        yield
    finally:
        for event, each in watchers.items():
            _WATCHERS[event] = tuple(watcher for watcher in _WATCHERS[event] if watcher not in each)


def emit(event: str, /, *, away: object = False, **fields: object) -> None:
    """Log one event of the table, and call its watchers. Values of any type; None is left out of the log.

    away: true where it happened because PostgreSQL does not answer. All such events of one outage are one line,
    database.lost; each of them is logged at DEBUG.
    """
    level, _ = EVENTS[event]
    for watcher in _WATCHERS.get(event, ()):
        watcher(fields)
    if away:
        if _OUTAGE.failed(time.monotonic()):
            emit("database.lost", noticed=event, error=fields.get("error"))
        level = logging.DEBUG
    if _LOG.isEnabledFor(level):
        _LOG.log(level, event, extra={"fields": fields})


def is_away() -> bool:
    """Whether PostgreSQL was away when this process last heard of it."""
    return _OUTAGE.lasts


def answered() -> None:
    """PostgreSQL has answered: an outage, if there was one, is over."""
    if ended := _OUTAGE.answered(time.monotonic()):
        emit("database.back", seconds=ended.seconds, failures=ended.failures)


def quote(value: object) -> str:
    """A value on one line: plain where that is safe, else quoted with every control character escaped.

    An exception is what it says, and never nothing.
    """
    if isinstance(value, float):
        return f"{value:.3f}"
    text = in_words(value) if isinstance(value, BaseException) else str(value)
    if text.isprintable():
        if _PLAIN.fullmatch(text):
            return text
        if '"' not in text and "\\" not in text:
            return f'"{text}"'
    escaped = "".join(
        c if c.isprintable() and c not in '"\\' else c.encode("unicode_escape").decode() if c != '"' else '\\"'
        for c in text
    )
    return f'"{escaped}"'


@lru_cache(maxsize=2)  # of all lines of a second
def _stamp(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


class Line(logging.Formatter):
    """`2026-11-21T07:00:00.123Z info spool.committed id=… recipients=3` (logfmt)."""

    def format(self, record: logging.LogRecord) -> str:
        """One record, one line."""
        stamp = _stamp(int(record.created))
        text = record.getMessage()
        fields: dict[str, object] = getattr(record, "fields", {})
        words = [
            f"{stamp}.{int(record.msecs):03d}Z",
            record.levelname.lower(),
            text if fields or text in EVENTS else quote(text),
        ]
        words += [f"{name}={quote(value)}" for name, value in fields.items() if value is not None]
        if record.exc_info:
            words.append(f"trace={quote(self.formatException(record.exc_info))}")
        return " ".join(words)


def setup(level: str) -> None:
    """Send the log of this process to standard error; `level` is debug, info, warning or error."""
    # What no line has: the caller, its thread, process and task (logging's HOWTO, "Optimization").
    logging._srcfile = None  # noqa: SLF001
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.logAsyncioTasks = False  # type: ignore[attr-defined]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Line())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _LOG.setLevel(level.upper())
    # aiosmtpd: mail.log has every line of every session at INFO, mail.debug warns of what session.refused says.
    logging.getLogger("mail").setLevel(logging.ERROR)
    # psycopg warns of each connection that cannot be made; database.lost says so once.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
