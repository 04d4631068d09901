"""test_outage — many failures of one outage are one line, and its end another

See: shared/observe/events.py; shared/postgres/database.py, is_away.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg_pool import PoolClosed, PoolTimeout

from shared.errors import DatabaseUnavailable
from shared.observe import events
from shared.observe.events import Ended, Outage
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The events logged at INFO or above."""
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    log, handler = logging.getLogger("pillarbox"), Keep()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    events.answered()
    found.clear()
    yield found
    events.answered()
    log.setLevel(before)
    log.removeHandler(handler)


def test_an_outage_begins_once_and_ends_once() -> None:
    outage = Outage()
    assert outage.answered(0.0) is None
    assert [outage.failed(float(second)) for second in range(1, 4)] == [True, False, False]
    assert outage.lasts
    assert outage.answered(11.0) == Ended(10.0, 3)
    assert outage.answered(12.0) is None
    assert outage.failed(13.0)


def test_only_the_first_failure_and_the_end_are_lines(lines: list[str]) -> None:
    failures: list[object] = []
    with events.watched({"claim.failed": [failures.append]}):
        for _ in range(132):
            events.emit("claim.failed", error="gone", seconds=1.0, away=True)
        events.emit("claim.failed", error="refused", seconds=1.0)
    assert lines == ["database.lost", "claim.failed"]
    assert len(failures) == 133, "metrics count each of them"
    events.answered()
    events.answered()
    assert lines == ["database.lost", "claim.failed", "database.back"]


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.CannotConnectNow(), True),
        (psycopg.errors.ConnectionFailure(), True),
        (psycopg.InterfaceError("the connection is closed"), True),
        (PoolTimeout(), True),
        (DatabaseUnavailable("no"), True),
        (TimeoutError(), True),
        (PoolClosed(), False),
        (psycopg.errors.LockNotAvailable(), False),
        (psycopg.errors.QueryCanceled(), False),
        (psycopg.errors.DiskFull(), False),
        (psycopg.errors.InsufficientPrivilege(), False),
    ],
)
def test_an_error_answer_is_not_an_outage(error: Exception, *, away: bool) -> None:
    assert database.is_away(error) is away
