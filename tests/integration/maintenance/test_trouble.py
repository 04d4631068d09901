"""test_trouble — a failed step of maintenance does not stop other steps or later rounds

Owns: proofs about queued/maintain.py when PostgreSQL refuses something, keeps it waiting, or goes away.
See: test_maintain.py for the work of the steps.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from queued import maintain
from queued.maintain import Maintainer
from shared.config.queued.settings import Maintenance
from shared.postgres import database as db
from tests.fixtures.heard import until
from tests.fixtures.peers.proxy import relaying

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.heard import Heard

HOUR = timedelta(hours=1)


async def one_round(connection: db.Connection, **settings: Any) -> bool:
    elected = await Maintainer("worker", Maintenance.model_validate(settings)).round_if_elected(connection)
    await maintain.vacuum(connection)
    return elected


@pytest.mark.parametrize(
    "setting",
    [
        "default_transaction_isolation = 'repeatable read'",
        "DateStyle = 'German, DMY'",
        "IntervalStyle = 'sql_standard'",
    ],
)
async def test_settings_of_the_database_do_not_stop_a_round(factory: Factory, heard: Heard, setting: str) -> None:
    """The sweep needs READ COMMITTED, and the driver reads times and spans in one style only."""
    factory.message()  # which no recipient needs
    factory.sql("INSERT INTO pillarbox.released SELECT id, now() - interval '1 hour' FROM pillarbox.messages")
    name = factory.one("SELECT current_database()")
    factory.sql(f"ALTER DATABASE {name} SET {setting}")
    try:
        connection = await db.connect(factory.uri, "maintainer")
        pool = await db.open_pool(factory.uri, "worker", 1)
        try:
            assert await one_round(connection)
            async with pool.connection() as pooled:
                [asked] = await db.fetch(pooled, "schedule_clock")
                [[span]] = await (await pooled.execute("SELECT interval '1 day 2 hours'")).fetchall()
        finally:
            await pool.close()
            await connection.close()
    finally:
        factory.sql(f"ALTER DATABASE {name} RESET ALL")
    assert heard.all("maintain.failed") == []
    assert factory.one("SELECT count(*) FROM pillarbox.messages") == 0
    assert (asked.now.tzinfo is not None, span) == (True, timedelta(days=1, hours=2))


@pytest.mark.parametrize(
    ("setting", "theirs", "ours"),
    [
        # Debian's servers have jit = on, and a plan that avoids sequential scans can cost enough to be compiled.
        ("jit", "on", "off"),
        # Every daemon lost its listening session, and reported an outage, as often as this time passed.
        ("idle_session_timeout", "1h", "0"),
        ("enable_partition_pruning", "off", "on"),
        ("extra_float_digits", "-15", "1"),
        ("quote_all_identifiers", "on", "off"),
        ("row_security", "off", "on"),
        ("transform_null_equals", "on", "off"),
    ],
)
async def test_a_session_has_our_setting_whatever_the_server_s_default(
    factory: Factory, setting: str, theirs: str, ours: str
) -> None:
    uri = make_conninfo(factory.uri, options=f"-c {setting}={theirs}")
    connection, pool = await db.connect(uri, "maintainer"), await db.open_pool(uri, "worker", 1)
    try:
        async with pool.connection() as pooled:
            for each in (connection, pooled):
                assert await (await each.execute(f"SHOW {setting}".encode())).fetchall() == [(ours,)]
    finally:
        await pool.close()
        await connection.close()


# Statements that break each step, by the event that logs its work.
BREAKS = {
    "make_days": "ALTER FUNCTION pillarbox.history_create(timestamptz, integer) RENAME TO away",
    "hold_poison": "ALTER FUNCTION pillarbox.maintain_hold_poison(timestamptz, integer, integer) RENAME TO away",
    "finish": "ALTER FUNCTION pillarbox.maintain_finish(timestamptz, text, integer) RENAME TO away",
    "sweep": """ALTER FUNCTION pillarbox.maintain_sweep_since(timestamptz, interval, interval, integer, timestamptz)
                RENAME TO away""",
    "renotify": """ALTER FUNCTION pillarbox.maintain_renotify_since(timestamptz, interval, integer, timestamptz,
                                                                    text, integer) RENAME TO away""",
    "unserved": """ALTER FUNCTION pillarbox.maintain_unserved_since(timestamptz, interval, integer, timestamptz,
                                                                    text, integer) RENAME TO away""",
    "forget_keys": "ALTER TABLE pillarbox.idempotency RENAME TO away",
    "clock": "ALTER FUNCTION pillarbox.maintain_clock(timestamptz, integer) RENAME TO away",
    "vacuum": "ALTER VIEW pillarbox.maintain_vacuum RENAME TO away",
    "drop_days": "ALTER FUNCTION pillarbox.maintain_history_drop(timestamptz, interval, interval) RENAME TO away",
}
DID = {
    "make_days": "maintain.days",
    "hold_poison": "maintain.poison",
    "finish": "maintain.finished",
    "sweep": "maintain.swept",
    "renotify": "maintain.renotified",
    "vacuum": "maintain.vacuumed",
    "drop_days": "maintain.dropped",
}


@pytest.mark.parametrize("broken", BREAKS)
async def test_a_failed_step_is_logged_and_stops_no_other(
    factory: Factory, connection: db.Connection, heard: Heard, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    plenty_to_do(factory)
    monkeypatch.setattr(maintain, "_DEAD", 1)
    factory.sql(BREAKS[broken])
    assert await one_round(
        connection, ahead=9, grace="1m", overdue="1m", keep={"history": "1d", "find": "1d", "idempotency": "1d"}
    )
    assert [failed["step"] for failed in heard.all("maintain.failed")] == [broken]
    assert "away" not in heard.all("maintain.failed")[0]["error"]
    assert {step for step, event in DID.items() if heard.all(event)} == DID.keys() - {broken}
    [keys] = factory.on("away" if broken == "forget_keys" else "idempotency", "SELECT count(*) AS left FROM {table}")
    assert keys.left == (broken == "forget_keys")
    rival = await db.connect(factory.uri, "rival")
    assert await Maintainer("rival", Maintenance()).round_if_elected(rival), "the election was not given up"
    await rival.close()


def plenty_to_do(factory: Factory) -> None:
    """Something for every step."""
    factory.row(status="DELETE")
    message = factory.message()
    factory.sql("INSERT INTO pillarbox.released VALUES (%(id)s, now() - interval '1 hour')", id=message)
    factory.row(due=-HOUR)
    poison = factory.row()
    factory.lease([poison], ends=-HOUR)
    factory.sql("UPDATE pillarbox.queue SET lost_count = 9 WHERE id = %(id)s", id=poison)
    factory.sql("INSERT INTO pillarbox.idempotency VALUES ('a', 'k', gen_random_uuid(), now() - interval '9 days')")
    factory.sql("SELECT pillarbox.history_create(now() - interval '40 days', 0)")
    factory.sql("ALTER TABLE pillarbox.queue_def_456 SET (autovacuum_enabled = off)")
    factory.rows(5, partid="4", due=HOUR)
    factory.sql("DELETE FROM pillarbox.queue WHERE metadata->>'_partid' = '4'")
    factory.sql("SELECT pg_stat_force_next_flush()")


async def test_a_step_with_a_lock_timeout_stops_no_other(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    """LockNotAvailable looks like trouble with the server (class OperationalError), and is none."""
    plenty_to_do(factory)
    await connection.execute("SET lock_timeout = '50ms'")
    with factory.another() as holding:
        holding.execute("LOCK TABLE pillarbox.archive IN ACCESS EXCLUSIVE MODE")
        assert await one_round(connection, overdue="1m")
    assert "finish" in {failed["step"] for failed in heard.all("maintain.failed")}
    assert heard.all("maintain.renotified")


async def test_a_commit_that_is_cancelled_before_it_begins_stops_no_other_step(factory: Factory, heard: Heard) -> None:
    """The driver leaves such a transaction open, and PostgreSQL refuses every statement in it."""
    deleted = factory.row(status="DELETE")
    async with relaying(factory.uri) as proxy:
        connection = await db.connect(proxy.uri, "maintainer")
        try:
            proxy.cancel_commit = True
            assert await one_round(connection)
        finally:
            await connection.close()
    assert [failed["step"] for failed in heard.all("maintain.failed")] == ["hold_poison"]
    assert [row.id for row in factory.archive()] == [deleted]


async def test_a_round_that_loses_its_connection_ends(factory: Factory, connection: db.Connection) -> None:
    factory.row(status="DELETE")
    with factory.another() as holding:
        holding.execute("LOCK TABLE pillarbox.archive IN ACCESS EXCLUSIVE MODE")
        going = asyncio.create_task(one_round(connection))
        await until(lambda: factory.waiting("connection"), "the round to be at it")
        factory.terminate("connection")
        with pytest.raises(psycopg.OperationalError):
            await going


async def test_a_role_that_may_not_vacuum_does_not_try(
    factory: Factory, logins: Logins, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    plenty_to_do(factory)
    monkeypatch.setattr(maintain, "_DEAD", 1)
    least = await db.connect(logins.uri("queued"), "least")
    warned: list[str] = []
    least.add_notice_handler(lambda notice: warned.append(notice.message_primary or ""))
    try:
        assert await one_round(least, overdue="1m")
        assert heard.all("maintain.failed") == heard.all("maintain.vacuumed") == []
        assert [text for text in warned if "vacuum" in text] == []
        if least.info.server_version >= 170000:
            factory.sql("GRANT MAINTAIN ON ALL TABLES IN SCHEMA pillarbox TO pillarbox_queued")
            assert await one_round(least, overdue="1m")
            assert "queue_def_456" in {vacuumed["leaf"] for vacuumed in heard.all("maintain.vacuumed")}
            assert warned == []
    finally:
        await least.close()


async def test_rounds_continue_after_a_failed_one(factory: Factory, heard: Heard) -> None:
    factory.row(status="DELETE")
    pool = await db.open_pool(factory.uri, "maintainer", 1)
    settings = Maintenance.model_validate({"interval": "10ms"})
    with factory.another() as holding:
        holding.execute("LOCK TABLE pillarbox.archive IN ACCESS EXCLUSIVE MODE")
        running = asyncio.create_task(maintain.run(pool, "worker", settings))
        await until(lambda: factory.waiting("maintainer"), "the round to be at it")
        factory.terminate("maintainer")
        await heard.wait("maintain.failed")
    await heard.wait("maintain.finished")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await pool.close()
    assert len(factory.archive()) == 1
