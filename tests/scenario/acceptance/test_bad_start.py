"""test_bad_start — a daemon that cannot start gives the reason in one line and a status, and leaves nothing behind

Owns: every mistake an operator makes on the first day, for smtpd, for queued and for `pillarbox up`.
See: sysexits.h for 69 (unavailable) and 78 (configuration).
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures.daemons.system import ROOT
from tests.fixtures.peers.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE = 120.0  # seconds; a daemon that began to serve would outlive it
UNAVAILABLE, CONFIG = 69, 78
NOWHERE = "postgresql://pillarbox@127.0.0.1:1/none"
SERVING = re.compile(r"daemon\.started|(?:all|queued): worker")

type Settings = dict[str, Any]


class Folder:
    """A folder with both configuration files, valid until a test changes them."""

    def __init__(self, path: Path, uri: str, port: int) -> None:
        self.path = path
        self.smtpd: Settings = {"servers": [{"listeners": [{"port": port}]}]}
        self.queued: Settings = {"workers": [{"id": "all", "where": "true"}]}
        self.use(uri)

    def use(self, uri: str) -> None:
        """Put this database into both files."""
        for settings in (self.smtpd, self.queued):
            settings["environment"] = _environment(uri, self.path)
        self.write()

    def write(self) -> None:
        for name, settings in (("smtpd", self.smtpd), ("queued", self.queued)):
            (self.path / f"{name}.yaml").write_text(json.dumps(settings))

    def start(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run `smtpd`, `queued` or `up` until it ends by itself."""
        arguments = {
            "smtpd": ("smtpd", "--config", str(self.path / "smtpd.yaml")),
            "queued": ("queued", "--config", str(self.path / "queued.yaml")),
            "up": ("scripts.cli", "up", "--config", str(self.path)),
        }[command]
        return subprocess.run(
            (sys.executable, "-m", *arguments, *more),
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """A port in use by another process."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other


@pytest.fixture
def free() -> int:
    """A free port."""
    return free_port()


@pytest.fixture
def folder(tmp_path: Path, database: str, free: int) -> Folder:
    return Folder(tmp_path, database, free)


def refused(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """It ended with this status and one line that holds these words, and never served."""
    assert "Traceback" not in done.stderr, done.stderr
    [line] = done.stderr.splitlines()
    assert [word for word in words if word not in line] == [], done.stderr
    assert done.returncode == status, done.stderr
    assert not SERVING.search(done.stderr + done.stdout), done.stderr + done.stdout


def _environment(uri: str, var: Path) -> Settings:
    return {"database": {"uri": uri}, "var": str(var), "log": {"level": "error"}}


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("command", ["smtpd", "queued", "up"])
def test_a_missing_configuration_file_refuses_the_start(folder: Folder, command: str) -> None:
    for file in folder.path.glob("*.yaml"):
        file.unlink()
    refused(folder.start(command), CONFIG, "smtpd.yaml" if command == "up" else f"{command}.yaml")


@pytest.mark.parametrize("command", ["smtpd", "queued", "up"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("environment: {database: [", ("yaml:",)),
        ("environment: {databse: {}}", ("databse", "did you mean database?")),
        ("environment: {var: [1]}", ("environment.var",)),
        ("environment: {log: {level: loud}}", ("environment.log.level", "loud", "info")),
        ("- environment", ("yaml:1",)),
    ],
)
def test_a_mistake_in_a_file_refuses_the_start(folder: Folder, command: str, text: str, words: tuple[str, ...]) -> None:
    broken = "queued" if command == "queued" else "smtpd"
    (folder.path / f"{broken}.yaml").write_text(text)
    refused(folder.start(command), CONFIG, f"{broken}.yaml", *words)


def test_up_reads_the_workers_file_before_it_starts_anything(folder: Folder, free: int) -> None:
    (folder.path / "queued.yaml").write_text("claim: {lease: soon}")
    refused(folder.start("up"), CONFIG, "queued.yaml", "claim.lease", "soon")
    assert is_free(free)


def test_up_requires_one_database_in_both_files(folder: Folder, free: int) -> None:
    folder.queued["environment"] = _environment(NOWHERE, folder.path)
    folder.write()
    refused(folder.start("up"), CONFIG, "different databases")
    assert is_free(free)


@pytest.mark.parametrize("command", ["smtpd", "queued", "up"])
@pytest.mark.parametrize(
    ("uri", "status", "words"),
    [
        (NOWHERE, UNAVAILABLE, ("PostgreSQL is unavailable",)),
        ("postgresql://127.0.0.1:port/none", UNAVAILABLE, ("port",)),
        ("postgresql:///none?hots=x", CONFIG, ("environment.database.uri", "hots")),
    ],
)
def test_a_missing_database_refuses_the_start(
    folder: Folder, free: int, command: str, uri: str, status: int, words: tuple[str, ...]
) -> None:
    folder.use(uri)
    refused(folder.start(command), status, *words)
    assert is_free(free)


@pytest.mark.parametrize("command", ["smtpd", "queued"])
def test_a_missing_schema_refuses_the_start(folder: Folder, empty_database: str, free: int, command: str) -> None:
    folder.use(empty_database)
    refused(folder.start(command), CONFIG, "schema", "pillarbox migrate")
    assert is_free(free)


@pytest.mark.parametrize("command", ["smtpd", "queued", "up"])
def test_a_newer_schema_refuses_the_start(folder: Folder, database: str, free: int, command: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO pillarbox.migrations (number, name) VALUES (9999, '9999_post_later')")
    refused(folder.start(command), CONFIG, "newer", "9999_post_later")
    assert is_free(free)


@pytest.mark.parametrize("command", ["smtpd", "up"])
def test_a_port_in_use_refuses_the_start(folder: Folder, taken: socket.socket, free: int, command: str) -> None:
    port = taken.getsockname()[1]
    # The first listener could be opened; it must be closed again.
    folder.smtpd["servers"][0]["listeners"].append({"port": port})
    folder.write()
    refused(folder.start(command), UNAVAILABLE, "listeners[1]", f"127.0.0.1:{port}", "cannot listen")
    assert is_free(free)


def test_a_metrics_port_in_use_refuses_the_start(folder: Folder, taken: socket.socket) -> None:
    address = f"127.0.0.1:{taken.getsockname()[1]}"
    folder.queued["metrics"] = {"listen": address}
    folder.write()
    refused(folder.start("queued"), UNAVAILABLE, "metrics.listen", address, "cannot listen")


CONDITIONS = [
    ("metadata->>'_partid' IN ('1'", ("parentheses",)),
    ("metadata->>'_partid' IN", ("syntax error",)),
    ("_partid IN ('1')", ("_partid", "does not exist")),
    ("priority = 'high'", ("high",)),
    ("1", ("boolean",)),
    ("true); DROP TABLE pillarbox.queue; SELECT (true", ("parentheses",)),
    ("(true); DROP TABLE pillarbox.queue; SELECT (true)", ('";"',)),
    ("true; DROP TABLE pillarbox.queue", ('";"',)),
    ("true -- and nothing else", ('"--"',)),
]


# `up` repeats the error of its worker, so one refused by PostgreSQL and one refused by us are enough.
@pytest.mark.parametrize(
    ("command", "where", "words"),
    [("queued", *each) for each in CONDITIONS] + [("up", *CONDITIONS[2]), ("up", *CONDITIONS[7])],
)
def test_an_invalid_condition_refuses_the_start(
    folder: Folder, database: str, free: int, command: str, where: str, words: tuple[str, ...]
) -> None:
    folder.queued["workers"] = [{"id": "all", "where": where}]
    folder.write()
    worker = ("--worker", "all") if command == "queued" else ()
    refused(folder.start(command, *worker), CONFIG, *words)
    assert is_free(free)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pillarbox.queue").fetchone() == (0,)


def test_an_unknown_worker_refuses_the_start(folder: Folder) -> None:
    refused(folder.start("queued", "--worker", "nobody"), CONFIG, "queued.yaml", "nobody", "allowed: all")


@pytest.mark.parametrize("whom", ["smtpd", "all"])
def test_up_names_a_daemon_that_is_killed_while_it_starts(database: str, tmp_path: Path, free: int, whom: str) -> None:
    folder = Folder(tmp_path, database, free)
    for settings in (folder.smtpd, folder.queued):
        settings["environment"]["log"]["level"] = "info"
    folder.write()
    with subprocess.Popen(
        (sys.executable, "-m", "scripts.cli", "up", "--config", str(tmp_path)),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        assert up.stderr
        for line in up.stderr:
            if found := re.search(rf"child\.started name={whom} pid=(\d+)", line):
                os.kill(int(found[1]), signal.SIGKILL)
                break
        rest = up.stderr.read()
        assert up.wait(timeout=DEADLINE) == 137
    assert f"pillarbox: {whom} was killed by SIGKILL (perhaps for want of memory) before it was ready\n" in rest
    assert "Traceback" not in rest
