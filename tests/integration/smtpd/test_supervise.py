"""test_supervise — the supervisor's treatment of children that crash repeatedly or hang

Owns: proofs about smtpd/process/supervisor.py that need a daemon to be hurt on purpose; the scenarios have its
    ordinary life.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scripts import daemons as up_supervise
from shared.config.smtpd.load import smtpd_from
from shared.errors import PillarboxError
from smtpd.connection import sockets
from smtpd.process.supervisor import Supervisor
from smtpd.rates.server import RateServer
from tests.fixtures.daemons.serving import Dialogue
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fixtures.heard import Heard

LIMIT = 180.0  # seconds, for several starts of a Python on a busy machine


def values(uri: str, folder: Path) -> dict[str, Any]:
    return {
        "environment": {"database": {"uri": uri}, "var": str(folder), "log": {"level": "warning"}},
        "processes": 2,
        "servers": [{"hostname": "mx.test", "listeners": [{"port": 0}]}],
    }


@asynccontextmanager
async def supervised(uri: str, folder: Path, *, stuck: float = 60.0) -> AsyncIterator[int]:
    """The port of two children that are kept up as long as the block."""
    config = values(uri, folder)
    doors = sockets.bind(smtpd_from(config))
    supervisor = Supervisor(config, uri, doors, RateServer(), stuck=stuck)
    await supervisor.open()
    keeping = [asyncio.create_task(part) for part in supervisor.parts().values()]
    try:
        yield doors[0][0].door.getsockname()[1]
    finally:
        await supervisor.stop(5)
        for each in keeping:
            each.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)


@pytest.mark.slow
async def test_a_hanging_child_is_killed_and_replaced(database: str, tmp_path: Path, heard: Heard) -> None:
    async with supervised(database, tmp_path, stuck=8.0) as port:
        stuck = heard.all("child.started")[0]
        os.kill(int(stuck["pid"]), signal.SIGSTOP)
        async with asyncio.timeout(LIMIT):
            await eventually(lambda: len(heard.all("child.stuck")) == 1, "it is found out", limit=LIMIT)
            await eventually(lambda: len(heard.all("child.started")) == 3, "it is replaced", limit=LIMIT)
        [killed] = heard.all("child.stuck")
        assert killed["pid"] == stuck["pid"]
        for _ in range(6):
            async with Dialogue(port, ehlo=None) as client:
                assert client.greeting[0].startswith("220 mx.test")


@pytest.mark.slow
async def test_a_crash_loop_ends_the_daemon_with_an_error(database: str, tmp_path: Path) -> None:
    path = tmp_path / "smtpd.yaml"
    path.write_text(json.dumps({**values(database, tmp_path), "environment": {"database": {"uri": database}}}))
    daemon = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "smtpd", "--config", str(path)), cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    assert daemon.stderr
    said = ""
    async with asyncio.timeout(LIMIT):
        while line := (await daemon.stderr.readline()).decode():
            said += line
            # A child that dies before all are ready ends the start; this is a later death.
            if "daemon.started" in said and re.search(r"daemon\.started|child\.started name=smtpd-1", line):
                os.kill(int(re.findall(r"child\.started name=smtpd-1 pid=(\d+)", said)[-1]), signal.SIGKILL)
            if "daemon.failed" in line:
                break
        rest = (await daemon.stderr.read()).decode()
        assert await daemon.wait() == 70
    assert "smtpd-1 died 5 times in a row" in said
    assert "stopped because a part of it died: smtpd-1" in rest
    assert said.count("child.died") == 4


async def test_a_child_that_cannot_start_fails_the_start(database: str, tmp_path: Path) -> None:
    config = values(database, tmp_path)
    doors = sockets.bind(smtpd_from(config))
    config["servers"][0]["tls"] = {"certificate": "absent.pem", "privatekey": "absent.key"}
    supervisor = Supervisor(config, database, doors, RateServer())
    with pytest.raises(PillarboxError, match=r"smtpd-\d ended with status 78 before it was ready") as failed:
        await supervisor.open()
    assert failed.value.exit_status == 78
    for bound in (each for process in doors for each in process):
        bound.door.close()


def hanging(folder: Path) -> Path:
    """A folder from which Python imports a module at its start that never ends."""
    (folder / "sitecustomize.py").write_text("import time\ntime.sleep(600)\n")
    return folder


async def test_a_child_killed_while_starting_is_named_with_the_signal(
    database: str, tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not ready before it is killed: it hangs at the first thing it does.
    monkeypatch.setenv("PYTHONPATH", str(hanging(tmp_path)))
    config = values(database, tmp_path)
    doors = sockets.bind(smtpd_from(config))
    supervisor = Supervisor(config, database, doors, RateServer())
    opening = asyncio.create_task(supervisor.open())
    await heard.wait("child.started")
    for started in heard.all("child.started"):
        os.kill(int(started["pid"]), signal.SIGKILL)
    with pytest.raises(PillarboxError, match=r"smtpd-\d was killed by SIGKILL .*before it was ready") as failed:
        await opening
    assert failed.value.exit_status == 137
    for bound in (each for process in doors for each in process):
        bound.door.close()


@pytest.mark.parametrize(
    ("ends", "said", "status", "logged"),
    [
        ("os.kill(os.getpid(), 9)", "worker was killed by SIGKILL", 137, False),
        ("print('busy', file=sys.stderr); os.kill(os.getpid(), 9)", "worker was killed by SIGKILL", 137, True),
        ("os.kill(os.getpid(), 15)", "worker was killed by SIGTERM", 143, False),
        ("os._exit(3)", "worker ended with status 3", 3, True),
    ],
)
async def test_a_daemon_that_ends_silently_before_it_is_ready_is_named(
    tmp_path: Path, ends: str, said: str, status: int, *, logged: bool
) -> None:
    child = up_supervise.DaemonProcess(
        "worker", ("-c", f"import os, sys; {ends}"), tmp_path / "log" if logged else None
    )
    with pytest.raises(up_supervise.DaemonFailed, match=f"{said}.* before it was ready") as failed:
        await up_supervise.Daemons().start(child)
    assert failed.value.exit_status == status


async def test_children_of_a_stopped_supervisor_have_ended(database: str, tmp_path: Path, heard: Heard) -> None:
    async with supervised(database, tmp_path):
        pids = [int(line["pid"]) for line in heard.all("child.started")]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
