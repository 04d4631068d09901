"""test_recovery — the embedded server recovers from kill -9, and survives the process that started it

Owns: proofs that a kill of the postmaster, of all processes, or of the starter at a bad moment loses no commit and
    needs no operator.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import psycopg
import pytest

from shared.postgres.embedded import embedded
from shared.postgres.embedded.postmaster import POLL, ServerFiles
from tests.fixtures.servers.postgres import temporary_var

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE = 120.0  # seconds
START_AND_LINGER = """
import pathlib, signal, sys
from shared.postgres.embedded import embedded
print(embedded.ensure_running(pathlib.Path(sys.argv[1])), flush=True)
signal.pause()
"""


@pytest.fixture
def var() -> Iterator[Path]:
    with temporary_var() as made:
        yield made


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal a process that is not our child and wait until it is gone."""
    opened = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(opened, number)
        assert select.select([opened], [], [], DEADLINE)[0], f"process {pid} lives on"
    finally:
        os.close(opened)


def pid_of(var: Path) -> int:
    found = embedded.status(var)
    assert found is not None
    return found.pid


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def commit_one_row(uri: str) -> None:
    with psycopg.connect(uri) as connection:
        connection.execute("CREATE TABLE public.kept AS SELECT 7 AS n")


def rows(uri: str) -> list[tuple[int]]:
    with psycopg.connect(uri) as connection:
        return connection.execute("SELECT n FROM public.kept").fetchall()


def test_a_killed_postmaster_recovers_committed_rows(var: Path) -> None:
    uri = embedded.ensure_running(var)
    commit_one_row(uri)
    with closing(psycopg.connect(uri)) as open_transaction:
        open_transaction.execute("INSERT INTO public.kept VALUES (8)")
        kill(pid_of(var))
        assert embedded.status(var) is None
        assert embedded.ensure_running(var) == uri
    assert rows(uri) == [(7,)]
    assert "was not properly shut down" in ServerFiles(var).log.read_text()


def test_a_busy_backend_does_not_block_the_recovery(var: Path) -> None:
    uri = embedded.ensure_running(var)
    commit_one_row(uri)
    postmaster = pid_of(var)
    with closing(psycopg.connect(uri)) as connection:
        backend = connection.info.backend_pid
        # Counts for minutes without waiting for anything: such a backend does not notice its postmaster's end.
        connection.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 9) b")
        opened = os.pidfd_open(backend)
        try:
            kill(postmaster)
            assert not select.select([opened], [], [], 0)[0], "the backend is gone: this test proves nothing"
            assert embedded.ensure_running(var) == uri
            assert select.select([opened], [], [], DEADLINE)[0], "the orphan lives beside the new server"
        finally:
            os.close(opened)
    assert rows(uri) == [(7,)]


def test_a_reused_process_id_does_not_block_the_recovery(var: Path) -> None:
    uri = embedded.ensure_running(var)
    commit_one_row(uri)
    postmaster = pid_of(var)
    everything = children(postmaster)
    os.kill(postmaster, signal.SIGSTOP)  # it must not see its children die and tidy up
    for pid in everything:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    kill(postmaster)
    place = ServerFiles(var)
    pid_files = (place.data / "postmaster.pid", place.socket() / ".s.PGSQL.5432.lock")
    owner = place.data.stat() if os.geteuid() == 0 else None
    # Another program of the same account now has the recorded id, as happens in containers, where ids are small.
    stranger = subprocess.Popen(
        ("sleep", "600"), user=owner.st_uid if owner else None, group=owner.st_gid if owner else None
    )
    try:
        for recorded in pid_files:
            recorded.write_text(recorded.read_text().replace(f"{postmaster}\n", f"{stranger.pid}\n", 1))
        assert embedded.status(var) is None
        assert embedded.stop(var) is False
        assert embedded.ensure_running(var) == uri
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
    assert rows(uri) == [(7,)]


def test_a_killed_initdb_does_not_block_the_next_start(var: Path) -> None:
    unfinished = ServerFiles(var).unfinished
    (unfinished / "base").mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    with psycopg.connect(embedded.ensure_running(var)) as connection:
        assert connection.info.dbname == "pillarbox"
    assert not unfinished.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_server_survives_its_starter(var: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        (sys.executable, "-c", START_AND_LINGER, var),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        process_group=0,
    ) as starter:
        assert starter.stdout is not None
        uri = starter.stdout.readline().strip()
        before = pid_of(var)
        with psycopg.connect(uri) as connection:
            os.killpg(starter.pid, number)  # like Ctrl-C in a terminal, for SIGINT
            starter.wait(DEADLINE)
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert embedded.ensure_running(var) == uri
    assert pid_of(var) == before


def test_a_starter_killed_while_it_waits_leaves_the_server_usable(var: Path) -> None:
    embedded.ensure_running(var)
    embedded.stop(var)
    log = ServerFiles(var).log
    for _ in range(3):
        with subprocess.Popen(
            (sys.executable, "-c", START_AND_LINGER, var), stdout=subprocess.DEVNULL, process_group=0
        ) as starter:
            while not (var / "postgres" / "postmaster.pid").exists():
                assert starter.poll() is None
            os.killpg(starter.pid, signal.SIGKILL)
        with psycopg.connect(embedded.ensure_running(var)) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        embedded.stop(var)
    assert log.read_text().count("starting PostgreSQL") == 4


def test_a_server_that_has_not_written_its_process_id_yet_is_waited_for(var: Path) -> None:
    """As it is when its starter was killed a moment after it had begun."""
    uri = embedded.ensure_running(var)
    before = pid_of(var)
    record = var / "postgres" / "postmaster.pid"
    whole = record.read_text()
    with psycopg.connect(uri) as connection:
        record.write_text("")
        record.with_name("postmaster.pid.whole").write_text(whole)
        later = Timer(2 * POLL, lambda: record.with_name("postmaster.pid.whole").rename(record))
        later.start()
        assert embedded.ensure_running(var) == uri
        later.join()
        assert connection.execute("SELECT 1").fetchone() == (1,), "the processes of a running server are not orphans"
    assert pid_of(var) == before


def test_a_stop_from_outside_is_waited_for_and_followed_by_a_start(var: Path) -> None:
    uri = embedded.ensure_running(var)
    before = pid_of(var)
    os.kill(before, signal.SIGINT)
    assert embedded.ensure_running(var) == uri
    with psycopg.connect(uri) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
