"""test_smtpd_speaks_to_systemd — smtpd notifies systemd of readiness, reloads, the watchdog and the stop

Owns: sd_notify(3) and sd_watchdog_enabled(3) from the receiver's side.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from time import CLOCK_MONOTONIC, clock_gettime_ns
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.system import ROOT
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Systemd:
    """The receiver at NOTIFY_SOCKET."""

    def __init__(self, door: socket.socket, program: asyncio.subprocess.Process) -> None:
        self.program = program
        self._door = door

    async def until(self, key: str) -> dict[str, str]:
        """The next message with this key."""
        async with asyncio.timeout(PATIENCE):
            while True:
                text = (await asyncio.get_running_loop().sock_recv(self._door, 4096)).decode()
                words = dict(line.partition("=")[::2] for line in text.splitlines())
                if key in words:
                    return words


@asynccontextmanager
async def started(folder: Path, uri: str, processes: int, **environment: str) -> AsyncIterator[Systemd]:
    """An smtpd as a unit of Type=notify-reload."""
    settings = {
        "environment": {"database": {"uri": uri}, "var": str(folder), "log": {"level": "error"}},
        "processes": processes,
        "servers": [{"listeners": [{"port": 0}]}],
    }
    (folder / "smtpd.yaml").write_text(json.dumps(settings))
    path = str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as door:
        door.bind(path)
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "smtpd", "--config", str(folder / "smtpd.yaml")),
            cwd=ROOT,
            env={**os.environ, "NOTIFY_SOCKET": path, **environment},
        )
        systemd = Systemd(door, program)
        try:
            yield systemd
        finally:
            program.terminate()
            assert (await systemd.until("STOPPING"))["STOPPING"] == "1"
            async with asyncio.timeout(PATIENCE):
                assert await program.wait() == 0


@pytest.mark.parametrize("processes", [1, 2])
async def test_systemd_is_notified_of_ready_reloading_and_stopping(
    tmp_path: Path, database: str, processes: int
) -> None:
    async with started(tmp_path, database, processes) as systemd:
        ready = await systemd.until("READY")
        assert ready["STATUS"].startswith("listening 127.0.0.1:")
        before = clock_gettime_ns(CLOCK_MONOTONIC) // 1000
        systemd.program.send_signal(signal.SIGHUP)
        reloading = await systemd.until("RELOADING")
        assert before <= int(reloading["MONOTONIC_USEC"]) <= clock_gettime_ns(CLOCK_MONOTONIC) // 1000
        again = await systemd.until("READY")
        assert again == ready


async def test_only_the_supervisor_notifies_the_watchdog(tmp_path: Path, database: str) -> None:
    async with started(tmp_path, database, 2, WATCHDOG_USEC="200000") as systemd:
        await systemd.until("READY")
        for _ in range(3):
            assert (await systemd.until("WATCHDOG"))["WATCHDOG"] == "1"
        systemd.program.send_signal(signal.SIGSTOP)
        try:
            _drain(systemd)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await systemd.until("WATCHDOG")
        finally:
            systemd.program.send_signal(signal.SIGCONT)


def _drain(systemd: Systemd) -> None:
    """Discard the messages received so far."""
    while True:
        try:
            systemd._door.recv(4096)
        except BlockingIOError:
            return


async def test_the_watchdog_of_another_process_is_not_notified(tmp_path: Path, database: str) -> None:
    async with started(tmp_path, database, 1, WATCHDOG_USEC="200000", WATCHDOG_PID="1") as systemd:
        await systemd.until("READY")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await systemd.until("WATCHDOG")
