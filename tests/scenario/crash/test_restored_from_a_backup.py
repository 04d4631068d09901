"""test_restored_from_a_backup — mail that was delivered after the backup's moment is not delivered again

Owns: the proof, from pg_basebackup and archived WAL with real daemons, that a restored queue sends nothing until it was
    compared, and that what the next hop's own records prove is not sent twice.
See: sql/README.md, "A restored queue"; docs/how-to/operate/back-up-and-recover.md.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from scripts.sink import show
from scripts.sink.store import Store
from shared.postgres import migrate
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.daemons.system import System
from tests.fixtures.database.operating import Pillarbox
from tests.fixtures.servers.archived import archiving
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.servers.archived import Archived

BEFORE, AFTER, NEW = 30, 5, 3  # messages before the moment, between it and the loss, and after the restore
SENT = "ash.example", "beech.example"  # domains that were served between the moment and the loss
MOMENT = "monday"


@pytest.mark.slow
async def test_what_was_delivered_since_is_not_delivered_again(
    books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with archiving() as archived:
        migrate.migrate(archived.uri, LEAVES)
        await archived.back_up()
        lost, delivered, log = await run_until_lost(books, archived, tmp_path)

        uri = await archived.restore(MOMENT)
        recover = Pillarbox(configured(uri, tmp_path), capsys)
        with psycopg.connect(uri) as worker, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            worker.execute("UPDATE pillarbox.queue SET retry_count = 1")
        assert "not held: mail that was sent" in json.dumps(await diagnosis(recover))
        assert (await recover.done("recover", "begin", "--yes"))["done"] == BEFORE
        archived.allow_writes()
        assert "not held: mail that was sent" not in json.dumps(await diagnosis(recover))

        (tmp_path / "after").mkdir()
        system = System(uri, tmp_path / "after")
        try:
            await deliver_the_rest(system, books, recover, delivered=delivered, log=log, lost=lost)
        finally:
            await system.close()
        assert system.faults() == []
    account = books.account()
    # What was accepted after the moment is gone: that is what a restore to it means.
    assert (account.accepted, account.lost, account.duplicated, account.altered) == (
        BEFORE + AFTER + NEW,
        AFTER,
        0,
        0,
    )


async def run_until_lost(books: Books, archived: Archived, folder: Path) -> tuple[set[str], int, Path]:
    """Mail before the moment, of which a part is delivered after it; the ids of mail after it, how much, and a log."""
    (folder / "before").mkdir()
    system = System(archived.uri, folder / "before")
    try:
        smtpd = await system.smtpd()
        await books.submit(smtpd, numbered(BEFORE))
        archived.moment(MOMENT)
        await books.submit(smtpd, numbered(AFTER, ("yew.example",), first=1000))
        served = await system.value("SELECT count(*) FROM queue WHERE recipientdomain = ANY(%s)", list(SENT))
        await system.worker(books.sink.port, where=f"recipientdomain IN {SENT!r}")
        await system.until("SELECT count(*) = 0 FROM queue WHERE recipientdomain = ANY(%s)", list(SENT))
        lost = {event["id"] for event in (await smtpd.until_said("spool.committed", BEFORE + AFTER))[-AFTER:]}
    finally:
        await system.close()
    assert 0 < served == books.arrivals < BEFORE
    await archived.lose()
    return lost, served, folder / "before" / "smtpd.log"


async def deliver_the_rest(
    system: System, books: Books, recover: Pillarbox, *, delivered: int, log: Path, lost: set[str]
) -> None:
    """New mail goes out while the restored mail is held; then it is compared with the sink's records and released."""
    smtpd = await system.smtpd()
    await system.worker(books.sink.port)
    await books.submit(smtpd, numbered(NEW, first=2000))
    await books.until_arrived(delivered + NEW)
    await system.until("SELECT count(*) = %s AND bool_and(status = 'HOLD') FROM queue", BEFORE)

    store = Store(show.folder(system.folder))
    for record in books.sink.received[:delivered]:
        store.add(record)
    taken = await recover.start("sink", "show", "--limit", "1000")
    records = system.folder / "sink.jsonl"
    records.write_bytes((await taken.communicate())[0])
    preview = await recover.done("recover", "settle", str(records), str(log), "--dry-run")
    assert (preview["wanted"], set(preview["absent"])) == (delivered, lost)
    assert (await recover.done("recover", "settle", str(records), "--yes"))["done"] == delivered
    assert (await recover.done("recover", "release", "--yes"))["waiting"] == BEFORE - delivered
    await system.until_finished()
    await books.until_arrived(BEFORE + NEW)


def configured(uri: str, folder: Path) -> Path:
    """The configuration of the commands; the sink's mail is in the folder of the daemons."""
    environment = {"environment": {"database": {"uri": uri}, "var": str(folder / "after")}}
    (folder / "config").mkdir()
    for name in ("smtpd", "queued"):
        (folder / "config" / f"{name}.yaml").write_text(json.dumps(environment))
    return folder / "config"


async def diagnosis(recover: Pillarbox) -> object:
    """What doctor says, of whatever verdict."""
    process = await recover.start("doctor", "--offline", "--all")
    said, refused = await process.communicate()
    assert said, refused.decode()
    return json.loads(said)
