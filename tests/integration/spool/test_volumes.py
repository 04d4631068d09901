"""test_volumes — free space of PostgreSQL's volumes, reported on its host and obeyed by smtpd on another

Owns: proofs about `pillarbox volumes`, smtpd's reading of it, the reply to MAIL, and the findings of doctor.
See: shared/spool/space.py; scripts/commands/volumes.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from operate.doctor import server
from operate.doctor.checks import Severity
from scripts import cli
from scripts.commands import volumes
from shared.postgres import database as db
from shared.spool import space
from tests.fixtures.daemons.serving import Dialogue, configured, listening
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.heard import Heard

HUGE = 1 << 50  # octets: more than any volume of ours has
LEAST = configured(spool={"minfree": "1MiB"})
SET = """UPDATE pillarbox.volumes SET free = %(free)s, seen = now() - %(age)s::interval"""


@pytest.fixture
def folder(database: str, tmp_path: Path) -> Path:
    """A folder of configuration that names the test's own database."""
    written = {"environment": {"database": {"uri": database}}}
    (tmp_path / "smtpd.yaml").write_text(json.dumps(written), encoding="utf-8")  # JSON is YAML
    return tmp_path


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "_ASK", 0.05)
    monkeypatch.setattr(space, "_LOOK", 0.05)


def report(folder: Path, *more: str) -> int:
    return cli.main(["volumes", "report", str(folder), "--once", "--config", str(folder), *more])


async def doctors(factory: Factory, *, seen: bool = False) -> Severity:
    connection = await db.connect(factory.uri, "doctor")
    try:
        return server.volumes(await db.fetch(connection, "volume_figures"), 1 << 20, seen=seen).verdict
    finally:
        await connection.close()


async def test_reports_of_another_host_stop_and_resume_smtpd(
    factory: Factory, folder: Path, heard: Heard, quickly: None
) -> None:
    assert await asyncio.to_thread(report, folder, "--host", "db1") == 0
    factory.sql(SET, free=HUGE, age="0s")
    async with listening(factory.uri, LEAST) as (port, _), Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250 ")
        await client.ask(b"RSET")
        factory.sql(SET, free=1000, age="0s")
        [low] = await heard.wait("spool.space_low")
        assert (low["free"], low["volume"]) == (1000, f"db1:{folder}")
        # A pipelining client gets no 5yz to the following commands, which might look permanent.
        for command in (b"MAIL FROM:<a@sender.example>", b"RCPT TO:<b@example.com>", b"DATA", b"BDAT 0 LAST"):
            assert (await client.ask(command)).startswith("452 4.3.1 "), command
        factory.sql(SET, free=2 << 20, age="0s")
        await heard.wait("spool.space_restored")
        for command in (
            b"MAIL FROM:<a@sender.example> SIZE=1048577",
            b"RCPT TO:<b@example.com>",
            b"DATA",
            b"BDAT 0 LAST",
        ):
            assert (await client.ask(command)).startswith("452 4.3.1 "), command
        await client.ask(b"RSET")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503 ")
        assert (await client.ask(b"MAIL FROM:<a@sender.example> SIZE=1048576")).startswith("250 ")


async def test_an_outdated_report_is_logged_and_refuses_no_mail(
    factory: Factory, folder: Path, heard: Heard, quickly: None
) -> None:
    assert await asyncio.to_thread(report, folder, "--every", "1s") == 0
    factory.sql(SET, free=1000, age="6s")
    async with listening(factory.uri, LEAST) as (port, _), Dialogue(port) as client:
        [unknown] = await heard.wait("spool.space_unknown")
        assert str(folder) in str(unknown["error"])
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250 ")
    assert await doctors(factory) is Severity.ALARM


async def test_volumes_of_this_host_are_measured_without_a_report(
    factory: Factory, tmp_path: Path, heard: Heard, quickly: None
) -> None:
    settings = {"minfree": f"{HUGE >> 30}GiB", "volumes": [str(tmp_path)]}
    async with listening(factory.uri, configured(spool=settings)) as (port, _), Dialogue(port) as client:
        await heard.wait("spool.space_low")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("452 4.3.1 ")


async def test_a_volume_that_cannot_be_reached_hides_no_other(
    factory: Factory, tmp_path: Path, heard: Heard, quickly: None
) -> None:
    """As a tablespace that is not mounted beside a full data volume."""
    gone = tmp_path / "tablespace"
    gone.mkdir()
    config = configured(spool={"minfree": f"{HUGE >> 30}GiB", "volumes": [str(gone), str(tmp_path)]})
    gone.rmdir()
    async with listening(factory.uri, config) as (port, _), Dialogue(port) as client:
        [unknown] = await heard.wait("spool.space_unknown")
        assert str(gone) in str(unknown["error"])
        await heard.wait("spool.space_low")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("452 4.3.1 ")


async def test_the_reporter_goes_on_with_the_volumes_that_it_can_reach(
    factory: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "tablespace"
    options = argparse.Namespace(paths=[gone, tmp_path], host="db1", every=timedelta(seconds=1))
    reporting = asyncio.create_task(volumes._go_on(factory.uri, options))
    try:
        await eventually(
            lambda: [row.path for row in factory.sql("SELECT path FROM pillarbox.volumes")] == [str(tmp_path)],
            "the other volume is reported",
        )
        assert not reporting.done()
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
    assert str(gone) in capsys.readouterr().err


async def test_doctor_checks_that_volumes_are_reported(factory: Factory, folder: Path) -> None:
    assert await doctors(factory) is Severity.NOTE
    assert await doctors(factory, seen=True) is Severity.OK
    assert await asyncio.to_thread(report, folder) == 0
    factory.sql(SET, free=HUGE, age="0s")
    assert await doctors(factory) is Severity.OK
    factory.sql(SET, free=1000, age="0s")
    assert await doctors(factory) is Severity.ALARM
    assert await asyncio.to_thread(cli.main, ["volumes", "forget", "--config", str(folder)]) == 0
    assert factory.sql("SELECT FROM pillarbox.volumes") == []


def test_a_missing_path_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["volumes", "report", "/nowhere", "--once", "--config", str(folder)]) != 0
    assert "/nowhere" in capsys.readouterr().err


async def test_smtpd_reads_with_the_rights_of_its_role(factory: Factory, logins: Logins) -> None:
    connection = await db.connect(logins.uri("smtpd"), "smtpd")
    try:
        assert await db.fetch(connection, "volume_figures") == []
    finally:
        await connection.close()


async def test_a_current_report_counts_beside_an_outdated_one(
    factory: Factory, folder: Path, heard: Heard, quickly: None
) -> None:
    """As after a switchover: the figures of the old server grow old."""
    for host in ("old", "new"):
        assert await asyncio.to_thread(report, folder, "--host", host) == 0
    factory.sql("UPDATE pillarbox.volumes SET free = %(free)s", free=HUGE)
    factory.sql("UPDATE pillarbox.volumes SET seen = now() - interval '1 hour' WHERE host = 'old'")
    async with listening(factory.uri, LEAST) as (port, _), Dialogue(port) as client:
        await heard.wait("spool.space_unknown")
        factory.sql("UPDATE pillarbox.volumes SET free = 1000 WHERE host = 'new'")
        await heard.wait("spool.space_low")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("452 4.3.1 ")
        assert len(heard.all("spool.space_unknown")) == 1


async def test_a_deleted_report_refuses_no_mail(factory: Factory, folder: Path, heard: Heard, quickly: None) -> None:
    assert await asyncio.to_thread(report, folder, "--host", "db1") == 0
    factory.sql(SET, free=1000, age="0s")
    async with listening(factory.uri, LEAST) as (port, _), Dialogue(port) as client:
        await heard.wait("spool.space_low")
        assert await asyncio.to_thread(cli.main, ["volumes", "forget", "--host", "db1", "--config", str(folder)]) == 0
        await heard.wait("spool.space_unknown")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250 ")
