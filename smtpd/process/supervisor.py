"""supervisor — keeps several processes of smtpd, or of httpd, on the same ports

Owns: the children, the listening sockets they inherit, their questions to what counts for all of them, their reports.
Guarantees: a child that dies takes only its own sessions with it: its sockets stay open here, so connections made
    meanwhile wait for the next child, which is started at once, or a second later where it died young (master(8) of
    Postfix throttles in the same way). A child that dies young too often in a row ends the daemon with an error. A
    child without heartbeats is killed. Every child has the same configuration, or reported why not.
Raises: ChildFailed at the start, CrashLoop later.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from shared import lifecycle
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.observe import events
from shared.observe.smtpd_table import SMTPD
from smtpd.connection import sockets
from smtpd.process.channel import Channel
from smtpd.process.metrics_children import Reports
from smtpd.process.serve import TRANSFER

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from shared.observe.queued_table import Table
    from smtpd.connection.sockets import Bound

_YOUNG: Final = 10.0  # seconds of life below which a death is an early one
_PAUSES: Final = (0.0, 1.0, 1.0, 1.0)  # seconds before the next start, by early deaths in a row; then it is a loop
_COUNTING: Final = 1.0
_STUCK: Final = 60.0  # seconds without a sign of life
_READY: Final = 60.0  # seconds from a child's start to its ready
_RELOAD: Final = 10.0  # seconds for all children to have reloaded
_CLOSING: Final = 5.0  # seconds a child may take beside its own limits when stopping
# systemd's variables for the daemon are for the supervisor alone (sd_notify(3), sd_watchdog_enabled(3)).
_OURS: Final = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})


class ChildFailed(PillarboxError):
    """A child ended before it was ready; it has said why itself."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.exit_status = status


class CrashLoop(Exception):
    """A child dies again and again."""


class Counting(Protocol):
    """What counts for all children of a daemon."""

    def asked(self, process: int, question: dict[str, Any], reply: Callable[[dict[str, object]], None]) -> None:
        """A child asks something; `reply` takes the answer to it, now or later, where one is awaited."""

    def gone(self, process: int) -> None:
        """A child has ended, and everything that was counted for as long as it lives."""


class Program(NamedTuple):
    """The daemon whose processes are kept. values: of its start message, beside those of every child; files: numbers
    of open files that a child inherits.
    """

    name: str = "smtpd"
    table: Table = SMTPD
    values: Mapping[str, Any] = {}
    files: Sequence[int] = ()


@dataclass(slots=True, eq=False)
class Child:
    """The place of one process: its sockets, and the current child."""

    program: str
    number: int
    doors: Sequence[Bound]
    process: asyncio.subprocess.Process | None = None
    channel: Channel | None = None
    began: float = 0.0
    heard: float = 0.0
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        """For the log."""
        return f"{self.program}-{self.number}"


class Supervisor:
    """The children of one daemon."""

    def __init__(
        self,
        values: Mapping[str, Any],
        conninfo: str,
        doors: Sequence[Sequence[Bound]],
        counts: Counting,
        *,
        program: Program = Program(),  # noqa: B008 - immutable
        stuck: float = _STUCK,
        counting: float = _COUNTING,
    ) -> None:
        """`values`: the configuration at the start, as read_smtpd and read_httpd of shared.config give it.

        `counting`: seconds a page of metrics waits for what the children have counted.
        """
        self._program = program
        self._start: dict[str, Any] = {**program.values, "values": values, "conninfo": conninfo, "reload": None}
        self._children = [Child(program.name, number, own) for number, own in enumerate(doors, start=1)]
        self._counts = counts
        self.reports = Reports(len(self._children), self._ask_reports, counting, program.name, program.table)
        self._stuck = stuck
        self._generation = 0
        self._stopping = False
        self._reloaded: dict[Child, str | None] = {}
        self._answered = asyncio.Event()
        self._listening: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start every child, and return when all are ready."""
        try:
            await asyncio.gather(*(self._spawn(child) for child in self._children))
            await asyncio.gather(*(self._until_ready(child) for child in self._children))
        except BaseException:
            await self._end(0)
            raise

    def parts(self) -> dict[str, Coroutine[object, object, None]]:
        """The tasks that must run as long as the daemon."""
        return {child.name: self._keep_up(child) for child in self._children}

    async def reload(self, values: Mapping[str, Any]) -> list[str]:
        """Give every child this configuration, which was proven usable; returns the errors of those that refuse it."""
        self._generation += 1
        self._start["reload"] = values
        self._reloaded.clear()
        asked = [child for child in self._children if child.ready.is_set() and child.channel]
        for child in asked:
            assert child.channel  # noqa: S101 - for the type
            child.channel.send({"reload": values, "generation": self._generation})
        with suppress(TimeoutError):
            async with asyncio.timeout(_RELOAD):
                # A child that dies meanwhile begins again with the new one.
                while any(child.ready.is_set() and child not in self._reloaded for child in asked):
                    self._answered.clear()
                    await self._answered.wait()
        late = [f"{child.name}: no answer" for child in asked if child.ready.is_set() and child not in self._reloaded]
        return late + [f"{child.name}: {error}" for child, error in self._reloaded.items() if error]

    async def stop(self, patience: float) -> None:
        """Stop the children as smtpd.process.serve does it, with `patience` for what is to be committed."""
        # As long as we hold the sockets, connections would be made that are never accepted.
        self._stopping = True
        for child in self._children:
            sockets.close(child.doors)
        await self._end(TRANSFER + patience + _CLOSING)

    def _ask_reports(self) -> list[str]:
        """Ask every child that serves what it has counted; their names."""
        serving = [child for child in self._children if child.ready.is_set() and child.channel]
        for child in serving:
            assert child.channel  # noqa: S101 - for the type
            child.channel.send({"report": True})
        return [child.name for child in serving]

    async def _end(self, limit: float) -> None:
        running = [child for child in self._children if child.process and child.process.returncode is None]
        for child in running:
            _signal(child, signal.SIGTERM)

        async def ended() -> None:
            for child in running:
                assert child.process  # noqa: S101 - for the type
                await child.process.wait()

        def alive() -> str:
            return " ".join(child.name for child in running if child.process and child.process.returncode is None)

        if not await lifecycle.step("processes", ended(), limit, on=alive):
            for child in running:
                _signal(child, signal.SIGKILL)
            await ended()
        for listening in self._listening:
            listening.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)

    async def _spawn(self, child: Child) -> None:
        ours, theirs = socket.socketpair()
        doors = [(bound.server, bound.listener, bound.door.fileno()) for bound in child.doors]
        try:
            child.ready = asyncio.Event()
            child.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._program.name, "--child", str(theirs.fileno())),
                pass_fds=[theirs.fileno(), *(number for _, _, number in doors), *self._program.files],
                env={name: value for name, value in os.environ.items() if name not in _OURS},
                start_new_session=True,  # Ctrl-C in the terminal is for us; we stop children in order
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        child.began = child.heard = monotonic()
        child.channel = await Channel.over(ours)
        child.channel.send({**self._start, "doors": doors, "name": child.name, "number": child.number})
        events.emit("child.started", name=child.name, pid=child.process.pid)
        listening = asyncio.create_task(self._listen(child, child.channel))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)

    async def _listen(self, child: Child, channel: Channel) -> None:
        """Answer what a child asks, until it is gone."""
        async for message in channel:
            child.heard = monotonic()
            if "ask" in message:
                self._counts.asked(child.number, message, channel.send)
            elif "reloaded" in message:
                if message["reloaded"] == self._generation:
                    self._reloaded[child] = message["error"]
                    self._answered.set()
            elif "report" in message:
                self.reports.heard(child.name, message["report"])
            elif "ready" in message:
                child.ready.set()
        channel.close()

    async def _until_ready(self, child: Child) -> None:
        assert child.process  # noqa: S101 - for the type
        ended, ready = asyncio.ensure_future(child.process.wait()), asyncio.ensure_future(child.ready.wait())
        try:
            await asyncio.wait({ended, ready}, timeout=_READY, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                if not ended.done():
                    raise ChildFailed(f"{child.name} was not ready within {_READY:.0f} s", 1)
                status = ended.result()
                how = lifecycle.how_it_ended(status)
                raise ChildFailed(f"{child.name} {how} before it was ready", lifecycle.status_to_exit_with(status))
        finally:
            for each in (ended, ready):
                each.cancel()

    async def _keep_up(self, child: Child) -> None:
        """Watch over one place until it cannot be kept."""
        early = 0
        while True:
            status = await self._gone(child)
            if self._stopping:
                await asyncio.Event().wait()  # until cancelled: its end was asked for
            self._counts.gone(child.number)
            self.reports.gone(child.name)
            child.ready.clear()
            self._answered.set()
            early = early + 1 if monotonic() - child.began < _YOUNG else 0
            if early > len(_PAUSES):
                raise CrashLoop(
                    f"{child.name} died {how_many(early, 'time')} in a row within {_YOUNG:.0f} s of its start"
                )
            pause = _PAUSES[early - 1] if early else 0.0
            assert child.process  # noqa: S101 - for the type
            events.emit("child.died", name=child.name, pid=child.process.pid, status=status, seconds=pause)
            await asyncio.sleep(pause)
            await self._spawn(child)

    async def _gone(self, child: Child) -> int:
        """The status of the child's end; a child that is stuck is killed for it."""
        assert child.process  # noqa: S101 - for the type
        while True:
            silent = monotonic() - child.heard
            if silent > self._stuck:
                events.emit("child.stuck", name=child.name, pid=child.process.pid, seconds=silent)
                _signal(child, signal.SIGKILL)
                return await child.process.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._stuck - silent + 0.1):
                    return await child.process.wait()


def _signal(child: Child, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if child.process:
            child.process.send_signal(number)
