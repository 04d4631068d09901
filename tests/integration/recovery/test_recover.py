"""test_recover — what `pillarbox recover` holds, settles and releases

Owns: rows B2, B4 and B5 of sql/README.md, "A restored queue", and each kind of proof against real rows.
See: tests/scenario/crash/test_restored_from_a_backup.py for a real restore with daemons.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import namedtuple_row

from tests.fixtures.database.factory import Factory
from tests.fixtures.database.operating import Pillarbox, killed, write_config
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from uuid import UUID

    from tests.fixtures.servers.postgres import ServerUnderTest

TO = "r1@example.com"
HELD = 2500  # three batches
LOCK = b"SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE"


@pytest.fixture
def recover(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pillarbox:
    """`pillarbox recover` on the test's own database."""
    return Pillarbox(write_config(tmp_path / "config", database), capsys, "recover")


@pytest.fixture
def lost(server: ServerUnderTest, template_database: str) -> Iterator[Factory]:
    """Another database: the server that was lost."""
    with (
        server.fresh_database(template=template_database) as uri,
        psycopg.connect(uri, autocommit=True, row_factory=namedtuple_row) as connection,
    ):
        yield Factory(uri, connection)


def statuses(factory: Factory) -> dict[int, str]:
    return {row.id: row.status for row in factory.queue()}


def message(factory: Factory, msgid: str) -> UUID:
    made = factory.message()
    factory.sql("UPDATE pillarbox.messages SET msgid = %(msgid)s WHERE id = %(id)s", msgid=msgid, id=made)
    return made


def test_everything_is_held_and_released_as_it_was(recover: Pillarbox, factory: Factory) -> None:
    later = factory.row(due=timedelta(hours=5), tries=2)
    spam = factory.row(status="HOLD")
    factory.sql(
        """UPDATE pillarbox.queue SET metadata = metadata || '{"_quarantineid": "spam"}' WHERE id = %(id)s""", id=spam
    )
    [due] = [row.next_retry for row in factory.queue(later)]
    recover.run("begin", "--yes")
    assert statuses(factory) == {later: "HOLD", spam: "HOLD"}
    fresh = factory.row()
    assert recover.json("show") | {"begun": None} == {
        "begun": None,
        "held": 2,
        "waiting": 1,
        "settled": 0,
        "notices": 0,
    }
    recover.run("release", "--yes")
    assert statuses(factory) == {later: "DELIVER", spam: "HOLD", fresh: "DELIVER"}
    [row] = factory.queue(later)
    assert (row.next_retry, row.metadata) == (due, {"_partid": "1"})
    assert recover.json("show")["begun"] is None
    recover.run("release", "--yes")
    assert (recover.status, recover.refused) == (1, "pillarbox: recover: no recovery is under way\n")


def test_nothing_is_changed_without_a_yes(recover: Pillarbox, factory: Factory) -> None:
    held = factory.row()
    for words in (("begin", "--dry-run"), ("begin",)):
        recover.run(*words)
        assert statuses(factory) == {held: "DELIVER"}
    assert recover.status == 1
    recover.run("begin", "--yes")
    recover.run("release", "--dry-run")
    assert statuses(factory) == {held: "HOLD"}


def test_it_begins_on_a_server_that_refuses_writes_by_default(
    recover: Pillarbox, factory: Factory, administrator: str
) -> None:
    held = factory.row()
    with psycopg.connect(administrator, autocommit=True) as admin:
        name = factory.one("SELECT quote_ident(current_database())")
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
        try:
            with (
                psycopg.connect(factory.uri) as daemon,
                pytest.raises(psycopg.errors.ReadOnlySqlTransaction),
            ):
                daemon.execute("UPDATE pillarbox.queue SET retry_count = 1")
            recover.run("begin", "--yes")
        finally:
            with psycopg.connect(make_conninfo(administrator, options="-c default_transaction_read_only=off")) as back:
                back.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
    assert recover.status == 0, recover.refused
    assert statuses(factory) == {held: "HOLD"}


def test_schedules_notices_and_bounces_of_the_backup_are_not_sent_again(recover: Pillarbox, factory: Factory) -> None:
    factory.sql(
        """INSERT INTO pillarbox.schedules (id, cron, sender, recipients, content, next_at)
           VALUES ('daily', '0 9 * * *', '', '{a@example.com}', 'x', now() - interval '2 days')"""
    )
    bounced = factory.row(status="BOUNCE")
    recover.run("begin", "--yes")
    assert factory.one("SELECT next_at > now() FROM pillarbox.schedules")
    assert [(row.id, row.result) for row in factory.archive()] == [(bounced, "bounced")]
    assert factory.one("SELECT min(due) > now() + interval '100 years' FROM pillarbox.notices")
    assert recover.json("show")["notices"] == 1
    recover.run("release", "--yes")
    assert factory.one("SELECT max(due) <= now() FROM pillarbox.notices")


def test_notices_are_dropped_on_request(recover: Pillarbox, factory: Factory) -> None:
    factory.row(status="BOUNCE")
    recover.run("begin", "--yes")
    recover.run("release", "--drop-notices", "--yes")
    assert factory.one("SELECT count(*) FROM pillarbox.notices") == 0


def test_each_kind_of_proof_settles_its_recipient_and_nothing_else(
    recover: Pillarbox, factory: Factory, lost: Factory, tmp_path: Path
) -> None:
    names = [f"{number}@shop.example" for number in range(5)]
    messages = [message(factory, name) for name in names]
    ids = [factory.row(message=each) for each in messages]
    recover.run("begin", "--yes")
    lost.sql(
        """INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                                          recipientdomain, size, transportid, priority, retry_count, last_error)
           VALUES (%(id)s, %(message)s, 1, now(), 'failed', now(), 'r1', 'example.com', 1, 'default', 0, 1, '550 no'),
                  (%(other)s, gen_random_uuid(), 1, now(), 'success', now(), 'r1', 'example.com', 1, 'default', 0, 1,
                   NULL)""",
        id=ids[0],
        message=messages[0],
        other=ids[4],  # a number that was given again, to other mail
    )
    hook = {"id": "e", "type": "delivered", "data": {"id": ids[1], "message": str(messages[1]), "recipient": TO}}
    files = {
        "hooks": json.dumps(hook),
        "log": f"2026-11-25T08:00:00Z INFO result.delivered id={messages[2]} to={TO} reply=250",
        "peer": f"<{names[3]}> {TO}",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    words = ("settle", *(str(tmp_path / name) for name in files), "--history", lost.uri)
    preview = recover.lines(*words, "--dry-run")[0]
    assert preview["proofs"] == {"history": 1, "webhook": 1, "record of the delivery": 2}
    assert statuses(factory) == dict.fromkeys(ids, "HOLD")
    assert recover.json(*words, "--yes")["done"] == 4
    assert statuses(factory) == {ids[4]: "HOLD"}
    finished = {row.id: (row.result, row.metadata["_recovered"], row.worker) for row in factory.archive()}
    assert finished == {
        ids[0]: ("failed", "history", "recover"),
        ids[1]: ("success", "webhook", "recover"),
        ids[2]: ("success", "record of the delivery", "recover"),
        ids[3]: ("success", "record of the delivery", "recover"),
    }
    assert {body.refcount for body in factory.bodies().values() if body.refcount} == {1}
    recover.run("release", "--yes")
    assert statuses(factory) == {ids[4]: "DELIVER"}


def test_mail_that_was_on_hold_before_is_settled_too_and_mail_that_came_later_is_not(
    recover: Pillarbox, factory: Factory, tmp_path: Path
) -> None:
    first, later = message(factory, "a@x"), message(factory, "b@x")
    factory.row(message=first, status="HOLD")
    recover.run("begin", "--yes")
    fresh = factory.row(message=later, status="HOLD")
    (tmp_path / "log").write_text(f"a@x {TO}\nb@x {TO}\n")
    recover.run("settle", str(tmp_path / "log"), "--yes")
    assert recover.status == 0, recover.refused
    assert statuses(factory) == {fresh: "HOLD"}


def test_a_delivery_that_fits_several_recipients_settles_none_of_them(
    recover: Pillarbox, factory: Factory, tmp_path: Path
) -> None:
    ids = [factory.row(message=message(factory, "twice@x")) for _ in range(2)]
    recover.run("begin", "--yes")
    log = tmp_path / "log"
    log.write_text(f"twice@x {TO}\n")
    assert recover.lines("settle", str(log), "--dry-run")[0]["ambiguous"] == ids
    assert recover.json("settle", str(log), "--yes")["done"] == 0
    log.write_text(f"twice@x {TO}\ntwice@x {TO}\n")
    assert recover.json("settle", str(log), "--yes")["done"] == 2


def test_a_delivery_that_the_archive_explains_proves_nothing_about_a_held_copy(
    recover: Pillarbox, factory: Factory, tmp_path: Path
) -> None:
    body = message(factory, "copy@x")
    held = factory.row(message=body, status="HOLD")
    factory.sql(
        """INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                                          recipientdomain, size, transportid, priority, retry_count, msgid)
           VALUES (1, %(message)s, 1, now(), 'success', now(), 'r1', 'example.com', 1, 'default', 0, 1, 'copy@x')""",
        message=body,
    )
    recover.run("begin", "--yes")
    for name in ("copy@x", str(body)):
        (tmp_path / "log").write_text(f"{name} {TO}\n")
        assert recover.json("settle", str(tmp_path / "log"), "--yes")["done"] == 0
    assert statuses(factory) == {held: "HOLD"}


def test_settling_needs_a_recovery_and_a_file_that_proves_something(
    recover: Pillarbox, factory: Factory, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("nothing of interest here\n")
    recover.run("settle", str(tmp_path / "log"), "--yes")
    assert recover.status == 1
    assert "log has no line that proves a delivery; allowed: lines of queued's log" in recover.refused
    recover.run("settle", "--yes")
    assert "nothing proves a delivery; allowed: --history URI" in recover.refused
    (tmp_path / "log").write_text(f"a@x {TO}\n")
    recover.run("settle", str(tmp_path / "log"), "--yes")
    assert "no recovery is under way; `pillarbox recover begin` begins one" in recover.refused


@pytest.mark.parametrize("verb", ["begin", "release", "settle"])
async def test_killed_within_a_batch_the_same_command_does_the_rest(
    recover: Pillarbox, factory: Factory, tmp_path: Path, verb: str
) -> None:
    body = factory.message()
    ids = factory.rows(HELD, message=body)
    log = tmp_path / "log"
    log.write_text("".join(f"{body} r{n}@example.com\n" for n in range(1, HELD + 1)))
    words = (verb, str(log), "--yes") if verb == "settle" else (verb, "--yes")
    if verb != "begin":
        await recover.done("begin", "--yes")
    with factory.another() as other:
        other.execute(LOCK, (ids[1500],))
        process = await recover.start(*words)
        await eventually(lambda: factory.waiting("pillarbox recover"), "the command waits for the lock", limit=60)
        await killed(process)
    await eventually(lambda: not factory.waiting("pillarbox recover"), "its backend is gone")
    changed = {"begin": "HOLD", "release": "DELIVER", "settle": None}[verb]
    unchanged = "DELIVER" if verb == "begin" else "HOLD"
    counted = factory.one("SELECT count(*) FROM pillarbox.queue WHERE status = %(status)s", status=unchanged)
    assert counted == HELD - 1000
    await recover.done(*words)
    left = [] if changed is None else [changed]
    assert sorted(set(statuses(factory).values())) == left
    assert len(factory.queue()) + len(factory.archive()) == HELD
