"""test_register — a worker is in the register exactly while it claims

Owns: entering, renewing, leaving, the state after a crash; a fault of the register does not affect mail.
See: queued/claiming/register.py; sql/schema/13_register.sql.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from queued.claiming.register import Register, beat
from shared.config.queued.settings import Claim
from shared.observe.flow import Flow
from shared.postgres import database
from shared.postgres.presence import Identity
from tests.fixtures.waiting import eventually, in_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

WHERE = "metadata->>'_partid' IN ('1', '50%')"
ME = Identity("mine", "host", 7, "abc")


@asynccontextmanager
async def running(uri: str, *, size: int = 1, where: str = WHERE, poll: str = "500ms") -> AsyncIterator[Register]:
    """A register that beats as often as it polls as long as the block, but at most once a second."""
    pool = await database.open_pool(uri, "register under test", size)
    register = Register(pool, ME, where, Claim.model_validate({"poll": poll, "lease": "3m"}), ["default"])
    try:
        async with in_background(register.run()):
            yield register
    finally:
        await pool.close()


def entries(factory: Factory) -> list[Any]:
    return factory.sql("SELECT * FROM pillarbox.workers_seen ORDER BY worker")


async def entered(factory: Factory) -> Any:
    await eventually(lambda: entries(factory), "the worker is on the register")
    [entry] = entries(factory)
    return entry


async def test_transports_are_registered_by_the_first_beat_and_after_a_reload(
    factory: Factory,
) -> None:
    def known() -> list[str]:
        return [row.id for row in factory.sql("SELECT id FROM pillarbox.transports ORDER BY id")]

    factory.sql("INSERT INTO pillarbox.transports VALUES ('unused', now() - interval '31 days')")
    async with running(factory.uri) as register:
        await eventually(
            lambda: known() == ["default"], "the transport of this worker is known, the unused one forgotten"
        )
        register.know(["default", "bulk"])
        await eventually(lambda: known() == ["bulk", "default"], "the new transport is known")


async def test_a_reload_is_registered_at_once(factory: Factory) -> None:
    """Before, mail for a new transport was refused until the next beat."""
    async with running(factory.uri, poll="1h") as register:
        first = await entered(factory)
        register.know(["default", "bulk"])
        await eventually(
            lambda: factory.one("SELECT count(*) FROM pillarbox.transports WHERE id = 'bulk'") == 1,
            "the new transport is known",
        )
        [soon] = factory.sql("SELECT now() - %(seen)s < interval '15 s' AS is_so", seen=first.seen)
        assert soon.is_so


SPAN = timedelta(seconds=5)
WHO = {"id": ME.id, "host": ME.host, "pid": ME.pid, "started": None, "beat": SPAN}
WORKER = WHO | {"worker": str(ME), "where_condition": WHERE, "lease": SPAN, "poll": SPAN, "transports": ["default"]}
DAEMON = (
    WHO
    | {"daemon": str(ME), "kind": "queued", "version": "1"}
    | {result: Flow().sums(result) for result in ("accepted", "delivered", "deferred", "failed")}
    | {what: [] for what in ("destinations", "attempts", "allowed", "waiting")}
)
REPORT = {"messages": [uuid4()], "localparts": ["r1"], "domains": ["example.com"]}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("register_beat", WORKER),
        ("daemon_beat", DAEMON),
        ("report_known", REPORT),
        ("report_only_recipient", {"message": uuid4()}),
    ],
)
async def test_what_a_crash_may_take_waits_for_no_disk(
    connection: database.Connection, name: str, values: dict[str, Any]
) -> None:
    """Before, daemons without mail waited for the disk several times a second, and so did each report that is read."""
    async with connection.transaction():
        await database.fetch(connection, name, **values)
        written, waits = await (
            await connection.execute("SELECT pg_current_xact_id_if_assigned(), current_setting('synchronous_commit')")
        ).fetchone() or (None, None)
    assert written is not None
    assert waits == "off"


@pytest.mark.parametrize(("poll", "every"), [(0.1, 1), (5, 5), (3600, 15)])
def test_a_worker_beats_as_it_polls_within_reason(poll: float, every: float) -> None:
    assert beat(timedelta(seconds=poll)) == timedelta(seconds=every)


async def test_a_worker_registers_and_renews_its_entry(database: str, factory: Factory) -> None:
    async with running(database):
        first = await entered(factory)
        assert (first.worker, first.id, first.host, first.pid) == ("mine@host:7-abc", "mine", "host", 7)
        assert first.where_condition == WHERE
        assert (first.poll, first.lease) == (timedelta(milliseconds=500), timedelta(minutes=3))
        assert first.live
        await eventually(lambda: entries(factory)[0].seen > first.seen, "it beats")
        assert entries(factory)[0].started == first.started


async def test_an_ended_worker_is_not_registered_again(database: str, factory: Factory) -> None:
    async with running(database) as register:
        await entered(factory)
        await register.leave()
        assert entries(factory) == []
        await register._renew_unless_left(timedelta(seconds=1))
        assert entries(factory) == []


async def test_a_running_beat_does_not_register_an_ended_worker_again(database: str, factory: Factory) -> None:
    async with running(database, size=3) as register:
        await entered(factory)
        with factory.another() as holder:
            holder.execute("LOCK TABLE pillarbox.workers IN SHARE MODE")
            await eventually(lambda: factory.waiting("register under test"), "a beat waits for the lock")
            leaving = asyncio.create_task(register.leave())
            await asyncio.wait({leaving}, timeout=0.2)
            holder.commit()
        await leaving
        assert entries(factory) == []


async def test_a_deleted_entry_is_registered_again(database: str, factory: Factory) -> None:
    async with running(database):
        first = await entered(factory)
        factory.sql("DELETE FROM pillarbox.workers")
        again = await entered(factory)
        assert again.started == first.started


async def test_a_worker_silent_for_five_beats_is_not_live(database: str, factory: Factory) -> None:
    async with running(database):
        await entered(factory)
    [left] = entries(factory)
    for silence, live in ((4.5, True), (5.5, False)):
        factory.sql(
            "UPDATE pillarbox.workers SET seen = now() - %(silence)s * beat WHERE worker = %(worker)s",
            silence=silence,
            worker=left.worker,
        )
        assert entries(factory)[0].live is live


async def test_entries_of_workers_that_crashed_a_day_ago_are_deleted(database: str, factory: Factory) -> None:
    for name, ago in (("old", 25), ("young", 23)):
        factory.sql(
            """INSERT INTO pillarbox.workers
               SELECT %(name)s, %(name)s, 'h', 1, 'true', now(), now() - make_interval(hours => %(ago)s), s, s, s
                 FROM CAST('1 s' AS interval) AS s""",
            name=name,
            ago=ago,
        )
    async with running(database):
        await eventually(
            lambda: [e.worker for e in entries(factory)] == ["mine@host:7-abc", "young"], "old is forgotten"
        )


async def test_a_lost_connection_is_a_missed_beat(
    database: str, factory: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(database):
        first = await entered(factory)
        factory.sql("ALTER TABLE pillarbox.workers RENAME TO workers_away")
        await eventually(lambda: "register.failed" in caplog.text, "the missed beat is logged")
        factory.sql("ALTER TABLE pillarbox.workers_away RENAME TO workers")
        factory.terminate("register under test")
        await eventually(lambda: entries(factory)[0].seen > first.seen, "it beats again")


async def test_the_role_of_workers_suffices(administrator: str, factory: Factory) -> None:
    separator = "&" if "?" in administrator else "?"
    async with running(f"{administrator}{separator}options=-c%20role%3Dpillarbox_queued") as register:
        await entered(factory)
        await register.leave()
        assert entries(factory) == []


async def test_a_real_worker_is_registered_while_it_runs(system: System) -> None:
    worker = await system.worker(9, "mine", WHERE)
    await system.until("SELECT count(*) = 1 FROM workers_seen WHERE id = 'mine' AND live AND pid = %s", worker.pid)
    assert await worker.stop() == 0
    assert await system.value("SELECT count(*) FROM workers") == 0


async def test_a_killed_worker_stays_registered_until_it_is_not_live(system: System) -> None:
    worker = await system.worker(9, "mine", claim={"lease": "6s"})
    await system.until("SELECT count(*) = 1 FROM workers_seen WHERE live")
    worker.signal(signal.SIGKILL)
    await worker.ended()
    assert await system.value("SELECT count(*) FROM workers") == 1
    await system.until("SELECT NOT live FROM workers_seen")


async def test_mail_selected_by_the_condition_is_removed_from_the_unserved_list(
    factory: Factory, logins: Logins
) -> None:
    """With the rights of a worker, and row by row where the condition is not about partitions alone."""
    hour = timedelta(hours=1)
    for partid in ("1", "2", "50%", None):
        factory.rows(2, partid=partid, due=-hour)
    stranger = factory.row(partid="1", due=-hour, domain="elsewhere.example")
    factory.sql("SELECT pillarbox.maintain_unserved(now(), '1m', 10)")
    where = f"{WHERE} AND recipientdomain = 'example.com'"
    async with running(logins.uri("queued"), where=where):
        left = "SELECT partid, queue__id FROM pillarbox.unserved ORDER BY queue__id"
        await eventually(lambda: len(factory.sql(left)) == 5, "the mail that this worker selects is removed")
    assert {row.partid for row in factory.sql(left)} == {"", "1", "2"}
    assert [row.queue__id for row in factory.sql(left) if row.partid == "1"] == [stranger]


def test_a_served_backlog_does_not_hide_an_unserved_partition_of_its_leaf(factory: Factory) -> None:
    """By default a leaf holds three partitions: one has a slow worker, another a dead one."""
    factory.rows(60, partid="1", due=-timedelta(hours=2))
    forgotten = factory.row(partid="2", due=-timedelta(hours=1))
    factory.sql("SELECT pillarbox.maintain_unserved(now(), '1m', 10)")
    noted = factory.sql("SELECT partid, queue__id FROM pillarbox.unserved WHERE partid <> '1'")
    assert [(row.partid, row.queue__id) for row in noted] == [("2", forgotten)]
    assert factory.one("SELECT count(*) FROM pillarbox.unserved") == 11


def test_two_starts_with_the_same_name_host_and_process_id_differ() -> None:
    """Containers with the network of their host share its name, and are process 1 in each."""
    assert str(Identity("mine", "host", 1)) != str(Identity("mine", "host", 1))
