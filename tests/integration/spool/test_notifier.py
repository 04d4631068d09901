"""test_notifier — notifications are sent after COMMIT, together, and their failure affects no client

Owns: proofs about shared/postgres/notifier.py on a real server and through a proxy that cuts.
See: sql/README.md, "Hints".
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from shared.postgres import database, notifier
from shared.postgres.notifier import Notifier
from tests.fixtures.database.listening import LISTEN, first
from tests.fixtures.peers.proxy import relaying
from tests.fixtures.waiting import in_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

NAME = "notifier under test"


@asynccontextmanager
async def running(uri: str) -> AsyncIterator[Notifier]:
    made = Notifier(uri, NAME)
    async with in_background(made.run()):
        yield made


async def test_notifications_queued_during_a_commit_are_sent_together(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, said = database.fetch, list[list[str]]()

    async def counted(connection: database.Connection, name: str, **values: Any) -> list[database.Row]:
        rows = await fetch(connection, name, **values)
        if name == "wakeup_notify":
            said.append(sorted(values["partids"]))
        return rows

    monkeypatch.setattr(database, "fetch", counted)
    with psycopg.connect(factory.uri, autocommit=True) as listener:
        listener.execute(LISTEN)
        async with running(factory.uri) as made:
            made.wake(["1"])
            assert [n.payload for n in await first(listener)] == ["1"]
            for _ in range(100):
                made.wake(["2", "3"])
                made.wake(["3", "2"])
            assert sorted(n.payload for n in await first(listener, 2)) == ["2", "3"]
            await made.drained()
        assert list(listener.notifies(timeout=0.2)) == []
    assert said == [["1"], ["2", "3"]], "one transaction for 200 calls"


async def test_notification_commits_are_asynchronous(factory: Factory) -> None:
    """Those of others that notify would wait behind them; and the setting does not outlive the statement."""
    async with running(factory.uri) as made:
        made.wake(["1"])
        await made.drained()
        [row] = factory.sql("SELECT query FROM pg_stat_activity WHERE application_name = %(name)s", name=NAME)
        assert "'synchronous_commit', 'off', true" in row.query
    assert factory.one("SHOW synchronous_commit") == "on"


async def test_hints_outlive_a_lost_connection_and_are_counted(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(notifier, "_LONGEST_PAUSE", 0.05)
    with psycopg.connect(factory.uri, autocommit=True) as listener:
        listener.execute(LISTEN)
        async with relaying(factory.uri) as proxy, running(proxy.uri) as made:
            made.wake(["1"])
            await first(listener)
            await made.drained()
            proxy.refuse = True
            proxy.cut()
            made.wake(["2"])
            await heard.wait("wakeup.unsent", 2)
            made.wake(["3", "2"])
            proxy.refuse = False
            assert [n.payload for n in await first(listener, 2)] == ["2", "3"]


def test_pending_notifications_are_bounded(factory: Factory, heard: Heard) -> None:
    made = Notifier(factory.uri, NAME)
    made.announce(range(10_500))
    made.wake(str(number) for number in range(10_001))
    assert [said["hints"] for said in heard.all("wakeup.unsent")] == [500, 1]
