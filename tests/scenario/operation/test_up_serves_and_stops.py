"""test_up_serves_and_stops — one command starts everything, and SIGTERM stops everything

Owns: `pillarbox up` on its own database: it serves, and leaves no child and no PostgreSQL behind.
See: scripts/commands/up.py, scripts/daemons.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from shared.postgres.embedded import embedded
from tests.fixtures.daemons.running_up import Up
from tests.fixtures.daemons.submit import Client, numbered
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.servers.postgres import temporary_var
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books

WORKERS = {
    "queued-123": "metadata->>'_partid' IN ('1', '2', '3')",
    "rest": "metadata->>'_partid' NOT IN ('1', '2', '3')",
}
STARTED = re.compile(r" child\.started name=(\S+) pid=(\d+)")
MESSAGES = 30
OUR_OWN = "127.0.0.90"  # no other test listens here, so none gets the port of what was stopped


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def workers(up: Up) -> set[int]:
    return {int(pid) for name, pid in STARTED.findall(up.err.read_text()) if name in WORKERS}


def archived(uri: str) -> int:
    with psycopg.connect(uri) as connection:
        row = connection.execute("SELECT count(*) FROM pillarbox.archive").fetchone()
        assert row
        return int(row[0])


def write_configuration(folder: Path, var: Path, port: int, listening: int = 0) -> None:
    environment = {"database": {"uri": "embedded:"}, "var": str(var)}
    listener = {"address": OUR_OWN, "port": listening}
    smtpd = {"environment": environment, "servers": [{"hostname": "mx.test", "listeners": [listener]}]}
    queued = {
        "environment": environment,
        "workers": [{"id": name, "where": where} for name, where in WORKERS.items()],
        "transports": [{"hostname": "queued.test", "connection": {"port": port}}],
    }
    (folder / "smtpd.yaml").write_text(json.dumps(smtpd))
    (folder / "queued.yaml").write_text(json.dumps(queued))


async def submit(books: Books, address: tuple[str, int], first: int) -> None:
    client = await Client.open(address)
    for sample in numbered(MESSAGES, first=first):
        [reply] = await client.send(sample)
        assert reply.startswith("250")
        books.ledger.accept(sample.sender, sample.recipients[0], sample.content)
    await client.close()


@pytest.mark.slow
async def test_mail_flows_and_a_signal_ends_everything(books: Books, tmp_path: Path) -> None:
    with temporary_var() as var:
        write_configuration(tmp_path, var, books.sink.port)
        up = Up(tmp_path)
        await up.start()
        try:
            address = await up.ready(WORKERS["rest"])
            children = up.children()
            assert len(children) == 1 + len(WORKERS)
            await submit(books, address, 0)
            await books.until_arrived(MESSAGES)
            status = embedded.status(var)
            assert status is not None
        finally:
            assert await up.stop() == 0
        assert alive(children) == set()
        assert embedded.status(var) is None
        with pytest.raises(ConnectionError):
            await Client.open(address)
        assert "Traceback" not in up.err.read_text()
        assert books.account().clean


@pytest.mark.slow
async def test_a_full_disk_for_its_output_stops_no_mail(books: Books, tmp_path: Path) -> None:
    with temporary_var() as var, open("/dev/full", "wb") as full:  # noqa: ASYNC230, PTH123 - no file is behind it
        address = OUR_OWN, free_port()
        write_configuration(tmp_path, var, books.sink.port, address[1])
        command = (sys.executable, "-m", "scripts.cli", "up", "--config", str(tmp_path))
        up = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=full, stderr=full)
        try:
            await eventually(lambda: listens(address) or up.returncode is not None, "smtpd listens")
            await submit(books, address, 0)
            await books.until_arrived(MESSAGES)
        finally:
            if up.returncode is None:
                up.terminate()
        assert await up.wait() == 0
        assert books.account().clean


def listens(address: tuple[str, int]) -> bool:
    with suppress(OSError), socket.create_connection(address):
        return True
    return False


@pytest.mark.slow
async def test_up_restarts_its_daemons_and_leaves_a_running_database_alone(books: Books, tmp_path: Path) -> None:
    with temporary_var() as var:
        uri = embedded.ensure_running(var)
        write_configuration(tmp_path, var, books.sink.port)
        up = Up(tmp_path)
        await up.start()
        try:
            address = await up.ready(WORKERS["rest"])
            before = up.children()
            await submit(books, address, 0)
            await books.until_arrived(MESSAGES)
            await eventually(lambda: archived(uri) == MESSAGES, "all of it is recorded")
            for pid in workers(up):
                os.kill(pid, signal.SIGKILL)
            await eventually(lambda: len(up.children() - before) == len(WORKERS), "both workers are started again")
            await submit(books, address, MESSAGES)
            await books.until_arrived(2 * MESSAGES)
        finally:
            assert await up.stop() == 0
        assert up.out.read_text().endswith(f"goes on under {var}; `pillarbox database stop` ends it\n")
        assert up.err.read_text().count(" child.died ") == len(WORKERS)
        assert archived(uri) == 2 * MESSAGES
        assert books.account().clean


async def test_sighup_while_workers_start_is_obeyed_by_every_daemon(books: Books, tmp_path: Path) -> None:
    """Smtpd may have read its file before it was changed."""
    with temporary_var() as var:
        write_configuration(tmp_path, var, books.sink.port)
        up = Up(tmp_path)
        await up.start()
        try:
            await eventually(lambda: "role=smtpd" in up.err.read_text(), "smtpd has started, and no worker has")
            up.running.send_signal(signal.SIGHUP)
            await eventually(
                lambda: up.err.read_text().count(" daemon.reloaded") == 1 + len(WORKERS), "each daemon has reloaded"
            )
        finally:
            assert await up.stop() == 0


@pytest.mark.slow
async def test_sighup_reloads_every_daemon_or_none(books: Books, tmp_path: Path) -> None:
    with temporary_var() as var:
        write_configuration(tmp_path, var, books.sink.port)
        up = Up(tmp_path)
        await up.start()
        try:
            address = await up.ready(WORKERS["rest"])
            before = up.children()
            settings = json.loads((tmp_path / "queued.yaml").read_text())
            (tmp_path / "queued.yaml").write_text(json.dumps({**settings, "transports": 5}))
            up.running.send_signal(signal.SIGHUP)
            await eventually(lambda: "daemon.reload_refused" in up.err.read_text(), "it reports the fault")
            assert "daemon.reloaded" not in up.err.read_text()
            (tmp_path / "queued.yaml").write_text(json.dumps({**settings, "shutdown": {"timeout": "3s"}}))
            up.running.send_signal(signal.SIGHUP)
            await eventually(
                lambda: up.err.read_text().count(" daemon.reloaded") == 1 + len(WORKERS), "each daemon has reloaded"
            )
            await submit(books, address, 0)
            await books.until_arrived(MESSAGES)
            assert up.children() == before
        finally:
            assert await up.stop() == 0
        assert up.err.read_text().count("daemon.reload_refused") == 1
