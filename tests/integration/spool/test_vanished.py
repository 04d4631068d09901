"""test_vanished — a message is never reported as lost while any trace of it remains

Owns: proofs about the question that smtpd asks after an outage, with the rights that smtpd has.
See: tests/chaos/test_failover.py for a promoted standby; tests/unit/spool/test_spool_vanished.py for what is
    remembered.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from shared.mail.message import new_message_id
from shared.spool.vanished import Vanished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.heard import Heard

ARCHIVED = """
INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart, recipientdomain,
                               size, transportid, priority, retry_count)
VALUES (1, %(id)s, 1, now(), 'success', now(), 'r', 'example.com', 1, 'default', 0, 1)
"""


@asynccontextmanager
async def watching(conninfo: str, limit: int = 10) -> AsyncIterator[Vanished]:
    """One that asks as long as the block."""
    made = Vanished(conninfo, "watch under test", limit)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_only_messages_without_any_trace_are_reported_and_only_once(
    factory: Factory, logins: Logins, heard: Heard
) -> None:
    waiting, body, finished, gone = factory.message(), factory.message(), new_message_id(), new_message_id()
    factory.rows(message=waiting)
    factory.sql(ARCHIVED, id=finished)
    async with watching(logins.uri("smtpd")) as watch:
        watch.committed([waiting, gone])
        watch.committed([body, finished])
        watch.away()
        watch.reconnected()
        [said] = await heard.wait("spool.lost_after_failover")
        assert (said["messages"], said["ids"], said["before"]) == (1, str(gone), "unknown")
        assert said["history"].rpartition("/")[2] == "00000001"  # the timeline of a server that was never promoted
        later = new_message_id()
        watch.committed([later])
        watch.reconnected()
        _, again = await heard.wait("spool.lost_after_failover", 2)
        assert (again["ids"], again["before"]) == (str(later), said["history"])


async def test_a_failed_check_is_logged_and_repeated(factory: Factory, heard: Heard) -> None:
    gone = new_message_id()
    factory.sql("ALTER FUNCTION pillarbox.spool_vanished RENAME TO elsewhere")
    async with watching(factory.uri) as watch:
        watch.committed([gone])
        watch.reconnected()
        [unproven] = await heard.wait("spool.unproven")
        assert unproven["messages"] == 1
        factory.sql("ALTER FUNCTION pillarbox.elsewhere RENAME TO spool_vanished")
        watch.reconnected()
        [said] = await heard.wait("spool.lost_after_failover")
        assert said["ids"] == str(gone)
