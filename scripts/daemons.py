"""daemons — starts daemons as child processes, keeps them up, stops them in order

Owns: the child processes of `pillarbox up` and `pillarbox demo`, and their readiness (sd_notify).
Guarantees: `start` returns when the child says it is ready, or raises with the child's last line. A child that dies
    later is started again after a pause that grows. `stop` asks them to end in the order they were started, smtpd
    before the workers, and kills only after its patience ends.
Raises: ChildFailed.
See: sd_notify(3); shared/lifecycle.py for the other end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

from shared.errors import PillarboxError
from shared.lifecycle import how_it_ended, status_to_exit_with
from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STEADY = 30.0  # seconds up after which the next death is a first one again
_TAIL = 4096
_PATIENCE_READY = 120.0  # seconds a daemon may take from its start to ready


class DaemonFailed(PillarboxError):
    """A daemon ended before it was ready; the text is how, empty when it has said so on our terminal."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.exit_status = status


@dataclass(slots=True, eq=False)
class DaemonProcess:
    """One daemon: how to start it, where its log goes (None: our own standard error), and what it said when ready."""

    name: str
    arguments: Sequence[str]
    log: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    status: str = ""
    process: asyncio.subprocess.Process | None = None
    started: float = 0.0
    serves: bool = False
    stale: bool = False  # it was to reload while it was starting, and may have read its file before

    @property
    def pid(self) -> int:
        """Of the running process; 0 when there is none."""
        return self.process.pid if self.process else 0

    @property
    def address(self) -> tuple[str, int]:
        """The first address a daemon said it listens on."""
        host, _, port = self.status.split(",")[0].removeprefix("listening ").rpartition(":")
        return host, int(port)


class Daemons:
    """Holds children from `async with` to its end."""

    def __init__(self, patience: float = 45.0) -> None:
        self.children: list[DaemonProcess] = []
        self._patience = patience
        self._watchers: dict[DaemonProcess, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(*self.children)

    async def start(self, child: DaemonProcess) -> DaemonProcess:
        """Start a child and wait until it is ready; from then on it is kept up."""
        await self._spawn(child)
        self.children.append(child)
        self._watchers[child] = asyncio.create_task(self._keep_up(child))
        return child

    def reload(self) -> None:
        """Have every child reload its configuration: at once, or as soon as it serves."""
        for child in self.children:
            if child.serves:
                _hang_up(child)
            else:
                child.stale = True

    async def stop(self, *children: DaemonProcess) -> None:
        """End these children, one after the other: SIGTERM, patience, SIGKILL."""
        for child in children:
            watcher = self._watchers.pop(child, None)
            if watcher:
                watcher.cancel()
                await asyncio.gather(watcher, return_exceptions=True)
            if child.process and child.process.returncode is None:
                status = await self._end(child.process)
                if status:
                    events.emit("child.failed", name=child.name, pid=child.pid, status=status)
            if child in self.children:
                self.children.remove(child)

    async def _end(self, process: asyncio.subprocess.Process) -> int:
        """The exit status of a process asked to end, by force if it takes too long."""
        process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(process.wait(), self._patience)
        except TimeoutError:
            process.kill()
            return await process.wait()

    async def _spawn(self, child: DaemonProcess) -> None:
        with tempfile.TemporaryDirectory(prefix="pillarbox-") as room:
            path = str(Path(room) / "notify")
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as door:
                door.bind(path)
                log = child.log.open("ab") if child.log else None
                try:
                    child.process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        *child.arguments,
                        env={**os.environ, **child.environment, "NOTIFY_SOCKET": path},
                        stderr=log,
                        start_new_session=True,  # Ctrl-C in the terminal is for us; we stop children in order
                    )
                finally:
                    if log:
                        log.close()
                child.started = monotonic()
                child.serves = child.stale = False
                events.emit("child.started", name=child.name, pid=child.pid)
                try:
                    child.status = await self._ready(child, door)
                    child.serves = True
                    if child.stale:
                        _hang_up(child)
                except DaemonFailed:
                    if child.process.returncode is None:
                        await self._end(child.process)
                    raise

    async def _ready(self, child: DaemonProcess, door: socket.socket) -> str:
        """The child's STATUS that came with its READY."""
        assert child.process  # noqa: S101 - set by the only caller
        loop = asyncio.get_running_loop()
        ended = asyncio.create_task(child.process.wait())
        try:
            while True:
                heard = asyncio.create_task(loop.sock_recv(door, 4096))
                await asyncio.wait({heard, ended}, timeout=_PATIENCE_READY, return_when=asyncio.FIRST_COMPLETED)
                if not heard.done():
                    heard.cancel()
                    status = status_to_exit_with(ended.result()) if ended.done() else 1
                    raise DaemonFailed(_last_words(child), status)
                words = dict(line.partition("=")[::2] for line in heard.result().decode().splitlines())
                if words.get("READY") == "1":
                    return words.get("STATUS", "")
        finally:
            ended.cancel()

    async def _keep_up(self, child: DaemonProcess) -> None:
        pause = _FIRST_PAUSE
        while child.process:
            status = await child.process.wait()
            child.serves = False
            if monotonic() - child.started > _STEADY:
                pause = _FIRST_PAUSE
            while True:
                events.emit("child.died", name=child.name, pid=child.pid, status=status, seconds=pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                try:
                    await self._spawn(child)
                    break
                except (DaemonFailed, OSError):  # no room for a process, or for its log: there may be later
                    status = child.process.returncode or 0


def _hang_up(child: DaemonProcess) -> None:
    with suppress(ProcessLookupError):  # it has just died, and begins again with the file as it is
        if child.process:
            child.process.send_signal(signal.SIGHUP)


def _last_words(child: DaemonProcess) -> str:
    """The last line of the child's log, which is its one clear line; how it ended, if it was killed or said nothing."""
    status = child.process.returncode if child.process else None
    if status is None:
        return f"{child.name} was not ready within {_PATIENCE_READY:.0f} s"
    ended = f"{child.name} {how_it_ended(status)} before it was ready"
    if status < 0:
        return ended
    if child.log is None:
        return ""
    with child.log.open("rb") as log:
        log.seek(max(0, child.log.stat().st_size - _TAIL))
        lines = log.read().decode(errors="replace").splitlines()
    return lines[-1] if lines else f"{ended} and said nothing"
