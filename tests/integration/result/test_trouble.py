"""test_trouble — results survive outages, missing days and the refusal of a single result

Owns: proofs about queued.result.Recorder when PostgreSQL refuses a result.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from queued.result import Recorder
from tests.fixtures.database.results import (
    DEFERRED,
    DELIVERED,
    FAILED,
    RECORDER,
    Held,
    claim,
    deferred,
    finished,
    running_recorder,
)
from tests.fixtures.heard import until
from tests.fixtures.peers.pooler import pooling
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from shared.postgres.database import Connection
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


@pytest.mark.parametrize("history", ["attempts", "archive"])
async def test_a_missing_day_partition_is_created_on_demand(factory: Factory, history: str) -> None:
    factory.row()
    days = factory.sql(
        "SELECT relid::regclass::text AS day FROM pg_partition_tree(%(t)s) WHERE isleaf", t=f"pillarbox.{history}"
    )
    assert len(days) >= 8
    for row in days:
        factory.on(row.day.removeprefix("pillarbox."), "DROP TABLE {table}")
    async with running_recorder(factory.uri, ahead=2) as recorder:
        [c] = await claim(factory.uri)
        with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
            factory.on(history, "INSERT INTO {table} SELECT (NULL::{table}).*")
        recorder.add([finished(c, DELIVERED, "success")])
        await recorder.drained()
    assert len(factory.archive()) == len(factory.attempts()) == 1
    leaves = factory.one("SELECT count(*) FROM pg_partition_tree(%(t)s) WHERE isleaf", t=f"pillarbox.{history}")
    assert leaves == 4  # yesterday, today and the two days ahead


async def test_results_are_kept_through_an_outage_and_recorded_once_after_it(factory: Factory, heard: Heard) -> None:
    message = factory.message()
    factory.rows(20, message=message)
    async with running_recorder(factory.uri) as recorder:
        taken = await claim(factory.uri, 20)
        with factory.another() as holding:
            holding.execute("LOCK TABLE pillarbox.attempts IN ACCESS EXCLUSIVE MODE")
            recorder.add([finished(c, DELIVERED, "success") for c in taken[:10]])
            for failures in (1, 2):
                await until(lambda: factory.waiting(RECORDER), "the recorder to be at it")
                factory.terminate(RECORDER)
                await heard.wait("result.unrecorded", failures)
            recorder.add([finished(c, DELIVERED, "success") for c in taken[10:]])
            assert recorder.unrecorded == 20
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
        assert recorder.unrecorded == 0
    assert {archived.id for archived in factory.archive()} == {c.id for c in taken}
    assert len(factory.attempts()) == 20
    assert factory.bodies()[message].refcount == 0
    assert len(heard.all("result.delivered")) == 20


async def test_the_pause_grows_while_the_outage_lasts(factory: Factory, heard: Heard) -> None:
    factory.row()
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        with factory.another() as holding:
            holding.execute("LOCK TABLE pillarbox.attempts IN ACCESS EXCLUSIVE MODE")
            recorder.add([finished(c, DELIVERED, "success")])
            for failures in (1, 2, 3):
                await until(lambda: factory.waiting(RECORDER), "the recorder to be at it")
                factory.terminate(RECORDER)
                await heard.wait("result.unrecorded", failures)
        await recorder.drained()
    pauses = [failure["seconds"] for failure in heard.all("result.unrecorded")]
    assert pauses == [0.1, 0.2, 0.4]


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["NUL", "surrogate"])
async def test_a_success_with_a_refused_text_is_recorded_without_it(factory: Factory, heard: Heard, text: str) -> None:
    """Only this one: the others keep the replies of their peers."""
    factory.rows(9)
    async with running_recorder(factory.uri) as recorder:
        taken = await claim(factory.uri)
        poison = replace(DELIVERED, text=text)
        recorder.add([finished(c, poison if c is taken[4] else DELIVERED, "success") for c in taken])
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert factory.queue() == []
    assert [archived.result for archived in factory.archive()] == ["success"] * 9
    said = {row.queue__id: row.reply_text for row in factory.attempts()}
    assert said.pop(taken[4].id).startswith("(left out")
    assert set(said.values()) == {DELIVERED.text}
    [refused] = heard.all("result.refused")
    assert (refused["recipient_id"], refused["then"]) == (taken[4].id, "recorded without its texts")


async def test_results_do_not_depend_on_how_a_role_reads_null_in_arrays(factory: Factory, heard: Heard) -> None:
    """With array_nulls off it is a text like any other, and no result with a column left empty would be recorded."""
    factory.rows(2)
    async with running_recorder(make_conninfo(factory.uri, options="-c array_nulls=off")) as recorder:
        one, two = await claim(factory.uri)
        recorder.add([finished(one, DELIVERED, "success"), deferred(two, datetime.now(UTC) + timedelta(hours=1))])
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert heard.all("result.refused") == []
    assert [row.id for row in factory.queue()] == [two.id]


#: An operator's trigger on attempts that refuses one text, by a SQLSTATE.
REFUSING = """
CREATE FUNCTION pillarbox.mine() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.reply_text = 'poison' THEN
        RAISE EXCEPTION 'mine' USING ERRCODE = '{code}';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER mine BEFORE INSERT ON pillarbox.attempts FOR EACH ROW EXECUTE FUNCTION pillarbox.mine()
"""
# Dropping the trigger would wait for a lock of the table, and the recorder for one of a partition: a deadlock.
AGREEING = "CREATE OR REPLACE FUNCTION pillarbox.mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"


async def nine_of_which_one_is_refused(factory: Factory, recorder: Recorder, code: str) -> int:
    """Give the recorder nine successes; the id of the one with a text that the trigger refuses by this SQLSTATE."""
    factory.rows(9)
    factory.sql(REFUSING.replace("{code}", code))
    taken = await claim(factory.uri)
    poison = replace(DELIVERED, text="poison")
    recorder.add([finished(c, poison if c is taken[4] else DELIVERED, "success") for c in taken])
    return taken[4].id


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_an_endless_conflict_does_not_block_other_results(factory: Factory, heard: Heard, code: str) -> None:
    async with running_recorder(factory.uri) as recorder:
        await nine_of_which_one_is_refused(factory, recorder, code)
        await until(lambda: recorder.unrecorded == 1, "the others to be recorded")
        await heard.wait("result.unrecorded")
        factory.sql(AGREEING)
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert [archived.result for archived in factory.archive()] == ["success"] * 9


@pytest.mark.parametrize("code", ["38000", "54000", "54001", "55000", "P0002", "P0004"])
async def test_a_text_refused_with_any_error_class_is_left_out(factory: Factory, code: str) -> None:
    """Too long for an index of the operator's (54000), or a trigger that ends in an error of its own."""
    async with running_recorder(factory.uri) as recorder:
        refused = await nine_of_which_one_is_refused(factory, recorder, code)
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert factory.queue() == []
    said = {row.queue__id: row.reply_text for row in factory.attempts()}
    assert said.pop(refused).startswith("(left out")
    assert set(said.values()) == {DELIVERED.text}


async def test_a_result_refused_for_an_unknown_reason_does_not_block_others(factory: Factory) -> None:
    """SQLSTATE 45000 is the operator's own, and may pass: the result waits as it is."""
    factory.rows(300)
    factory.sql(REFUSING.replace("{code}", "45000"))
    async with running_recorder(factory.uri) as recorder:
        taken = await claim(factory.uri, 300)
        texts = ["poison" if number == 5 else DELIVERED.text for number in range(300)]
        results = [finished(c, replace(DELIVERED, text=text), "success") for c, text in zip(taken, texts, strict=True)]
        for first in range(0, 300, 10):
            recorder.add(results[first : first + 10])
            await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE):
            await until(lambda: recorder.unrecorded == 1, "the others to be recorded")
        factory.sql(AGREEING)
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert len(factory.archive()) == 300


@pytest.mark.parametrize("code", ["40001", "42501", "57014"])
async def test_however_many_results_are_not_taken_others_are_recorded_at_once(factory: Factory, code: str) -> None:
    """Conflicts without end, a right that is missing for some rows, a statement that is always cancelled."""
    factory.rows(40)
    factory.sql(REFUSING.replace("{code}", code))
    async with running_recorder(factory.uri) as recorder:
        taken = await claim(factory.uri, 40)
        recorder.add([finished(c, replace(DELIVERED, text="poison"), "success") for c in taken[:20]])
        recorder.add([finished(c, DELIVERED, "success") for c in taken[20:]])
        async with asyncio.timeout(20):  # one pause for each took half a minute
            await until(lambda: recorder.unrecorded == 20, "the others to be recorded")
        factory.sql(AGREEING)
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert len(factory.archive()) == len(factory.attempts()) == 40


@pytest.mark.parametrize("result", ["failed", None])
async def test_a_result_without_its_refused_text_still_notifies_and_reschedules(
    factory: Factory, result: str | None
) -> None:
    """The failure is recorded and its sender notified; the deferral waits until it is due."""
    factory.row()
    later = datetime.now(UTC) + timedelta(hours=1)
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        poison = replace(FAILED if result else DEFERRED, text="a\0b", enhanced=None)
        recorder.add([finished(c, poison, result) if result else deferred(c, later, poison)])
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert [archived.result for archived in factory.archive()] == ([result] if result else [])
    assert len(factory.sql("SELECT FROM pillarbox.notices")) == bool(result)
    assert [row.next_retry for row in factory.queue()] == ([] if result else [later])


async def test_a_success_refused_by_the_history_is_finished(factory: Factory, heard: Heard) -> None:
    """Despite an operator's own constraint on attempts: it was delivered, and must not be sent again."""
    factory.rows(3)
    factory.sql("ALTER TABLE pillarbox.attempts ADD CONSTRAINT mine CHECK (queue__id <> 2) NOT VALID")
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(c, DELIVERED, "success") for c in await claim(factory.uri)])
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert factory.queue() == []
    assert len(factory.archive()) == 3
    assert sorted(row.queue__id for row in factory.attempts()) == [1, 3]
    assert [each["then"] for each in heard.all("result.refused")] == [
        "recorded without its texts",
        "recorded without an attempt",
    ]


async def test_a_result_refused_in_every_form_keeps_its_claim_until_recorded(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not sent again meanwhile, and holds up no other result."""
    monkeypatch.setattr("queued.result._AGAIN", 0.2)
    factory.rows(3)
    factory.sql("ALTER TABLE pillarbox.archive ADD CONSTRAINT mine CHECK (id <> 2) NOT VALID")
    in_flight = Held(3)
    async with running_recorder(factory.uri, in_flight=in_flight) as recorder:
        taken = await claim(factory.uri)
        recorder.add([finished(c, DELIVERED, "success") for c in taken])
        await until(lambda: [e for e in heard.all("result.refused") if e["then"].startswith("kept")], "it to be kept")
        await until(lambda: recorder.unrecorded == 1, "the others to be recorded")
        assert sorted(in_flight.recorded_ids) == [
            1,
            3,
        ]  # so this one stays in flight, and the heartbeat renews its lease
        await until(lambda: len(heard.all("result.refused")) > 4, "it to be tried again")
        factory.sql("ALTER TABLE pillarbox.archive DROP CONSTRAINT mine")
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert sorted(in_flight.recorded_ids) == [1, 2, 3]
    assert len(factory.archive()) == 3
    assert factory.queue() == []


async def test_a_result_during_a_concurrent_hold_is_recorded_after_it(factory: Factory, heard: Heard) -> None:
    """Deleting a row while it moves to another partition gives SQLSTATE 40001, which is not a refusal."""
    [id_] = factory.rows(1)
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        with factory.another() as operator:
            operator.execute("UPDATE pillarbox.queue SET status = 'HOLD' WHERE id = %s", (id_,))
            recorder.add([finished(c, DELIVERED, "success")])
            await until(lambda: factory.waiting(RECORDER), "the recorder to meet the move")
            operator.commit()
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert heard.all("result.refused") == []
    assert factory.queue() == []
    assert [archived.result for archived in factory.archive()] == ["success"]
    assert len(factory.attempts()) == 1


async def test_a_locked_row_does_not_block_other_results(factory: Factory, heard: Heard) -> None:
    ids = factory.rows(5)
    async with running_recorder(factory.uri) as recorder:
        taken = await claim(factory.uri)
        with factory.another() as operator:
            operator.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (ids[2],))
            recorder.add([finished(c, DELIVERED, "success") for c in taken])
            await until(lambda: recorder.unrecorded == 1, "all the others to be recorded")
            assert {row.id for row in factory.queue()} == {ids[2]}
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert sorted(row.id for row in factory.archive()) == ids
    assert heard.all("result.unrecorded")


async def test_however_many_rows_are_locked_other_results_are_recorded_soon(factory: Factory, heard: Heard) -> None:
    """By a session that keeps its transaction open, such as an application that changes its own mail."""
    message = factory.message()
    ids = [factory.row() for _ in range(20)] + factory.rows(5, message=message) + factory.rows(10)
    async with running_recorder(factory.uri) as recorder:
        taken = await claim(factory.uri, 40)
        with factory.another() as operator:
            operator.execute("SELECT FROM pillarbox.queue WHERE id = ANY(%s) FOR UPDATE", (ids[:20],))
            operator.execute("SELECT FROM pillarbox.refcounts WHERE messages__id = %s FOR UPDATE", (message,))
            recorder.add([finished(c, DELIVERED, "success") for c in taken])
            async with asyncio.timeout(15):  # a wait of two seconds for each took a minute
                await until(lambda: {row.id for row in factory.archive()} >= set(ids[25:]), "the others to be recorded")
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert sorted(row.id for row in factory.archive()) == sorted(ids)
    assert len(heard.all("result.unrecorded")) < len(ids)


async def test_a_locked_row_does_not_block_other_results_behind_a_pooler(factory: Factory, pgbouncer: Path) -> None:
    """The session there has no lock_timeout of ours, so each statement brings it."""
    ids = [factory.row() for _ in range(3)]
    with pooling(pgbouncer, factory.uri) as through:
        async with running_recorder(through) as recorder:
            taken = await claim(factory.uri)
            with factory.another() as operator:
                operator.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (ids[0],))
                recorder.add([finished(c, DELIVERED, "success") for c in taken])
                await until(lambda: recorder.unrecorded == 1, "the others to be recorded")
            async with asyncio.timeout(PATIENCE):
                await recorder.drained()
    assert sorted(row.id for row in factory.archive()) == ids


async def test_results_refused_by_a_read_only_server_are_kept(factory: Factory, heard: Heard) -> None:
    """A read-only server refuses every result alike; that says nothing about the results."""
    factory.rows(5)
    taken = await claim(factory.uri)
    name = factory.one("SELECT current_database()")
    factory.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(c, DELIVERED, "success") for c in taken])
        await heard.wait("result.unrecorded")
        factory.sql("SET default_transaction_read_only = off")
        factory.sql(f"ALTER DATABASE {name} RESET ALL")
        factory.terminate(RECORDER)
        await recorder.drained()
    assert heard.all("result.refused") == []
    assert (len(factory.archive()), len(factory.attempts()), factory.queue()) == (5, 5, [])


async def test_late_and_current_results_of_a_row_are_distinguished_in_one_group(factory: Factory, heard: Heard) -> None:
    [id_] = factory.rows(1)
    [late] = await claim(factory.uri)
    factory.sql("UPDATE pillarbox.queue SET lease_until = now()")
    [again] = await claim(factory.uri)
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(late, DELIVERED, "success"), finished(again, DELIVERED, "success")])
        await recorder.drained()
    assert [lost["recipient_id"] for lost in heard.all("claim.lost")] == [id_]
    assert len(heard.all("result.delivered")) == len(factory.archive()) == 1
    tried = sorted((row.token, row.outcome) for row in factory.attempts())
    expected = [(late.token, "delivered"), (late.token, "lease_expired"), (again.token, "delivered")]
    assert tried == sorted(expected)


async def test_a_group_with_failing_late_results_is_recorded_once(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = factory.rows(5)
    taken = await claim(factory.uri)
    factory.sql("UPDATE pillarbox.queue SET token = nextval('pillarbox.claim_token_seq') WHERE id = %(id)s", id=ids[0])
    write = Recorder._write
    failed: list[str] = []

    async def once(
        self: Recorder, connection: Connection, query: str, values: dict[str, Any], *parts: Any
    ) -> list[Any]:
        if query == "result_record_lost" and not failed:
            failed.append(query)
            raise psycopg.errors.LockNotAvailable("somebody makes an index on attempts")
        return await write(self, connection, query, values, *parts)

    monkeypatch.setattr(Recorder, "_write", once)
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(c, DELIVERED, "success") for c in taken])
        await recorder.drained()
    assert sorted(row.queue__id for row in factory.attempts()) == ids
    assert [lost["recipient_id"] for lost in heard.all("claim.lost")] == [ids[0]]
    assert len(heard.all("result.delivered")) == len(factory.archive()) == 4
