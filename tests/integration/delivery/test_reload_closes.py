"""test_reload_closes — resources replaced by a reload are closed after their last session, so that reloads do not leak

Owns: proofs about smtpd.connection.listener.Listeners.use, with the table of users and its pool of connections to
    PostgreSQL. See: tests/scenario/acceptance/test_smtpd_reloads.py for SIGHUP from end to end.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from tests.fixtures.daemons.serving import Dialogue, configured, listening
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

LOGIN = b"AUTH PLAIN " + b64encode(b"\0nobody\0secret")
BY_TABLE = {"authentication": {"source": "table", "tlsonly": False, "failures": {"delay": "0s"}}}


def asking(factory: Factory) -> set[int]:
    """The backends that are asked for users; a pool has one or two."""
    found = factory.sql("SELECT pid FROM pg_stat_activity WHERE application_name LIKE '%%smtpd users'")
    return {row.pid for row in found}


async def test_replaced_connections_are_closed_after_their_last_session(factory: Factory) -> None:
    config = configured(**BY_TABLE)
    async with listening(factory.uri, config) as (port, listeners), Dialogue(port) as old:
        assert (await old.say(LOGIN))[0].startswith("535")
        first = asking(factory)
        assert first
        for _ in range(5):
            listeners.use(config)
            async with Dialogue(port) as client:
                assert (await client.say(LOGIN))[0].startswith("535")
        await until(lambda: len(asking(factory) - first) <= 2, "those in between to be closed")
        assert (await old.say(LOGIN))[0].startswith("535"), "an open session keeps its resources"
        assert (await old.say(b"QUIT"))[0].startswith("221")
        await until(lambda: not asking(factory) & first, "the first to be closed")
