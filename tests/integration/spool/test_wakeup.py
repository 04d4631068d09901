"""test_wakeup — a notification wakes the workers that it may concern, and a lost connection wakes its own

Owns: proofs about shared/postgres/wakeup.py and wakeup_concerns.sql.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from shared.postgres import database as db
from shared.postgres import wakeup
from tests.fixtures.daemons.submissions import recipient, running_spool, submission
from tests.fixtures.heard import until
from tests.fixtures.waiting import PATIENCE, in_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


class Rung(asyncio.Event):
    """An event that counts how often it was set."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def set(self) -> None:
        """Count, then set."""
        self.times += 1
        super().set()

    async def heard(self) -> None:
        """Wait until it is set, and clear it."""
        async with asyncio.timeout(PATIENCE):
            await self.wait()
        self.clear()


@asynccontextmanager
async def listening(uri: str, name: str, where: str) -> AsyncIterator[Rung]:
    """A listener that has heard of its own beginning."""
    due = Rung()
    async with in_background(wakeup.listen(uri, name, where, due)):
        await due.heard()
        yield due


def concerns_asked(factory: Factory, name: str) -> object:
    """When the listener last asked PostgreSQL whether a partition concerns it; None while it never has."""
    found = factory.sql(
        """SELECT query_start FROM pg_stat_activity WHERE datname = current_database()
              AND application_name = %(name)s AND query LIKE '%%IS NOT FALSE%%' AND state = 'idle'""",
        name=name,
    )
    return found[0].query_start if found else None


async def weighed_again(factory: Factory, name: str, before: object) -> object:
    """Wait until the listener has asked once more since `before`; returns when."""
    await until(lambda: concerns_asked(factory, name) not in {None, before}, f"{name} to weigh a partition")
    return concerns_asked(factory, name)


async def test_only_the_worker_that_owns_the_partition_is_woken(factory: Factory) -> None:
    async with (
        listening(factory.uri, "one", "metadata->>'_partid' IN ('1','2')") as one,
        listening(factory.uri, "four", "metadata->>'_partid' = '4'") as four,
        running_spool(factory.uri) as spool,
    ):
        await spool.submit(submission(recipient("1")))
        await one.heard()
        await spool.submit(submission(recipient("4")))
        weighed = await weighed_again(factory, "four", None)
        # As older daemons notify. When it checks a later notification, it has finished with the earlier ones.
        factory.sql("SELECT pg_notify('pillarbox', '1')")
        weighed = await weighed_again(factory, "four", weighed)
        factory.sql("SELECT pg_notify('pillarbox', 'elsewhere')")
        await weighed_again(factory, "four", weighed)
        assert four.times == 2  # its beginning, and its own mail
        await four.heard()
        await one.heard()
        await spool.submit(submission(recipient("2"), recipient("4")))
        await asyncio.gather(one.heard(), four.heard())
        assert (one.times, four.times) == (4, 3)


async def test_held_mail_wakes_no_worker(factory: Factory) -> None:
    async with listening(factory.uri, "all", "true") as due, running_spool(factory.uri) as spool:
        await spool.submit(submission(recipient("1", hold=True)))
        await spool.submit(submission(recipient("2")))
        await due.heard()
        assert due.times == 2


async def test_the_answer_for_a_partition_is_cached(factory: Factory) -> None:
    async with listening(factory.uri, "worker", "metadata->>'_partid' IN ('1','4')") as due:
        for partid in ("1", "4"):
            factory.sql("SELECT pg_notify('pillarbox', %(p)s)", p=partid)
            await due.heard()
        asked = concerns_asked(factory, "worker")
        assert asked is not None
        for partid in ("1", "1", "4"):
            factory.sql("SELECT pg_notify('pillarbox', %(p)s)", p=partid)
            await due.heard()
        assert concerns_asked(factory, "worker") == asked


@pytest.mark.parametrize("times", [1, 2])
async def test_a_lost_connection_is_reopened_and_wakes_the_worker(factory: Factory, heard: Heard, times: int) -> None:
    async with listening(factory.uri, "worker", "metadata->>'_partid' = '1'") as due:
        for time in range(1, times + 1):
            assert factory.terminate("worker") == 1
            await due.heard()
            assert len(heard.all("wakeup.lost")) == time
        factory.sql("SELECT pg_notify('pillarbox', '1')")
        await due.heard()
    assert len(heard.all("wakeup.listening")) == times + 1


@pytest.mark.parametrize(
    ("where", "partid", "concerns"),
    [
        ("true", "1", True),
        ("false", "1", False),
        ("metadata->>'_partid' IN ('1','2')", "2", True),
        ("metadata->>'_partid' IN ('1','2')", "3", False),
        ("metadata->>'_partid' NOT IN ('1')", "1", False),
        ("metadata->>'_partid' = '4' OR metadata->>'_partid' IS NULL", "1", False),
        ("metadata->>'_partid' ~ '^1'", "12", True),
        # Other columns are unknown here, so the worker is woken.
        ("transportid = 'relay'", "1", True),
        ("metadata->>'_partid' = '1' AND recipientdomain LIKE '%.example'", "1", True),
        ("metadata->>'_partid' = '1' AND recipientdomain LIKE '%.example'", "2", False),
        ("priority > 5 OR metadata->>'_partid' = '1'", "2", True),
        ("metadata->>'tenant' = 'acme'", "1", True),
    ],
)
async def test_any_answer_but_false_wakes_the_worker(database: str, where: str, partid: str, *, concerns: bool) -> None:
    connection = await db.connect(database, "asking")
    [row] = await db.fetch(connection, "wakeup_concerns", where=where, partid=partid)
    await connection.close()
    assert row[0] is concerns


async def test_a_condition_that_fails_for_an_id_wakes_the_worker(factory: Factory) -> None:
    """Renotifying sends an empty payload for rows without a partition id, and any login may send any payload."""
    async with listening(factory.uri, "casting", "(metadata->>'_partid')::integer <= 3") as due:
        for payload in ("", "x", "2"):
            factory.sql("SELECT pg_notify('pillarbox', %(p)s)", p=payload)
            await due.heard()
