"""test_message_lookup — a look-up by message id opens the days since the message was made, and no others

Owns: proofs about operate/queue/message.py, with three months of history in tables by day.
See: RFC 9562 section 5.7; docs/reference/http.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from operate.errors import NotThere
from operate.queue.message import message
from shared.postgres import database

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

DAYS = 90
_OPENED = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text ~ '_20[0-9]{6}$'"


def made(ago: timedelta) -> UUID:
    """An id that was made so long ago."""
    at = int((datetime.now(UTC) - ago).timestamp() * 1000)
    return UUID(int=at << 80 | uuid4().int & ((1 << 62) - 1) | 7 << 76 | 2 << 62)


def finish(factory: Factory, id_: UUID, ago: timedelta) -> None:
    """A recipient of this message was delivered so long ago, at the first try."""
    factory.sql(
        """WITH done AS (
               INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                                              recipientdomain, size, transportid, priority, retry_count)
               VALUES (1, %(id)s, 1, now() - %(ago)s, 'success', now() - %(ago)s, 'a', 'a.example', 1, 'default', 0, 1))
           INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid,
                                           recipientdomain, size, outcome, scope, duration)
           VALUES (now() - %(ago)s, 1, %(id)s, 1, 1, 'w', 'default', 'a.example', 1, 'delivered', 'recipient',
                   '1 s')""",
        id=id_,
        ago=ago,
    )


@pytest.fixture
def factory_with_history(factory: Factory) -> Factory:
    """Tables for the last three months."""
    factory.sql(f"SELECT pillarbox.history_create(now() - interval '{DAYS} days', {DAYS})")
    return factory


@pytest.mark.parametrize("ago", [timedelta(0), timedelta(days=30), timedelta(days=80)])
async def test_a_message_is_found_in_the_days_since_it_was_made(factory_with_history: Factory, ago: timedelta) -> None:
    id_ = made(ago)
    finish(factory_with_history, id_, ago)
    connection = await database.connect(factory_with_history.uri, "httpd")
    try:
        await database.fetch(connection, "connection_walk")
        async with connection.transaction():
            found = await message(connection, id_, own=False)
            [[opened]] = await (await connection.execute(_OPENED.encode())).fetchall()
    finally:
        await connection.close()
    assert [(r.state, len(r.attempts)) for r in found.recipients] == [("success", 1)]
    days = ago.days + 1 + 1 + 7 + 1  # one for clocks, today, and the coming ones
    assert opened <= 2 * days  # of attempts and of the archive


@pytest.mark.parametrize(
    ("id_", "ago"),
    [
        (uuid4(), timedelta(days=1)),
        (made(timedelta(hours=-20)), timedelta(0)),
        (made(timedelta(days=40)), timedelta(0)),
    ],
    ids=["version 4", "clock ahead", "requeued"],
)
async def test_a_message_is_found_whatever_its_id_says(
    factory_with_history: Factory, id_: UUID, ago: timedelta
) -> None:
    finish(factory_with_history, id_, ago)
    connection = await database.connect(factory_with_history.uri, "httpd")
    try:
        found = await message(connection, id_, own=False)
        assert [(r.state, len(r.attempts)) for r in found.recipients] == [("success", 1)]
        with pytest.raises(NotThere):
            await message(connection, UUID(int=(2**48 - 1) << 80 | 7 << 76 | 2 << 62), own=False)
    finally:
        await connection.close()
