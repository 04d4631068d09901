"""lifecycle — the start and stop of a daemon, and its reports about them

Owns: exit statuses, signals, the steps of a stop, and status reports to the process that started us (sd_notify).
Guarantees: a daemon says that it has started only once it heeds signals, so that its starter may then send one.
    The first SIGTERM or SIGINT asks for a stop; the second has its default effect and kills. A part that dies
    stops the daemon, with an error in the log. Every step of a stop is bounded and logs what it waits for. SIGHUP
    reloads where the daemon can, one reload after the other. A watchdog gets heartbeats as long as our event loop
    turns.
See: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from time import CLOCK_MONOTONIC, clock_gettime_ns, monotonic
from typing import TYPE_CHECKING

from shared.command_line import status_of_refusal
from shared.errors import PillarboxError
from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_EX_SOFTWARE = 70
_RELOAD = "reload"  # the task's name
_AGAIN = 5.0  # seconds until a part that goes on although it was cancelled is cancelled again


class PartDied(Exception):
    """A part of a daemon that must run as long as the daemon ended by itself; its text is `part: error`."""


def how_it_ended(status: int) -> str:
    """In words, from what wait() says of a process: a negative status is the signal that killed it."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}{' (perhaps for want of memory)' if -status == signal.SIGKILL else ''}"


def status_to_exit_with(status: int) -> int:
    """Our exit status when another process ended so; for a signal 128 and its number, as in a shell."""
    return status if status > 0 else 128 - status if status else 1


def exit_status(name: str, work: Callable[[], None]) -> int:
    """Run a daemon's entry point: 0 after a stop; an operator's error gives one line and its status (sysexits.h)."""
    try:
        work()
    except PillarboxError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return error.exit_status
    except PartDied as error:
        sys.stderr.write(f"{name}: stopped because a part of it died: {error}\n")
        return _EX_SOFTWARE
    except KeyboardInterrupt:  # Ctrl-C before `serve` listens to signals
        return status_to_exit_with(-signal.SIGINT)
    except Exception as error:  # noqa: BLE001 - others are raised again
        return status_of_refusal(name, error)
    return 0


async def serve(
    parts: Mapping[str, Coroutine[object, object, None]],
    ready: str,
    stop: Callable[[], Awaitable[None]],
    reload: Callable[[], Awaitable[None]] | None = None,
    *,
    started: Mapping[str, object] | None = None,
) -> None:
    """Run the parts until a signal comes or one of them ends, then run `stop` and cancel what is left.

    `ready` is the one line that tells what is served. `reload` runs on SIGHUP and says itself how it went. PartDied is
    raised after the stop when a part ended by itself. started: the fields of `daemon.started`, where it is to be said.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask(number: signal.Signals) -> None:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
        events.emit("daemon.stopping", signal=number.name)
        asked.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, ask, number)
    beside = {} if (interval := watchdog_interval()) is None else {"watchdog": _live(interval)}
    if reload is not None:
        hangup = asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, hangup.set)
        beside[_RELOAD] = _reload_at_each(hangup, reload, ready)
    if started is not None:
        events.emit("daemon.started", **started)
    running = {asyncio.create_task(coroutine, name=name) for name, coroutine in {**parts, **beside}.items()}
    waiting = asyncio.create_task(asked.wait(), name="signal")
    notify(f"READY=1\nSTATUS={ready}")
    died: str | None = None
    try:
        done, _ = await asyncio.wait({waiting, *running}, return_when=asyncio.FIRST_COMPLETED)
        for ended in done - {waiting}:
            error = None if ended.cancelled() else ended.exception()
            died = f"{ended.get_name()}: {error!r}"
            events.emit("daemon.failed", part=ended.get_name(), error=repr(error))
        await _end_reload(running)
        notify("STOPPING=1")
        began = monotonic()
        await stop()
        events.emit("daemon.stopped", seconds=monotonic() - began)
    finally:
        left: set[asyncio.Task[object]] = {waiting, *running}
        while left:  # a part may take the cancelling of its statement for a refusal, and go on
            for each in left:
                each.cancel()
            _, left = await asyncio.wait(left, timeout=_AGAIN)
        await asyncio.gather(waiting, *running, return_exceptions=True)
    if died:
        raise PartDied(died)


async def step(name: str, work: Awaitable[object], limit: float, on: Callable[[], object] = str) -> bool:
    """One step of a stop, at most `limit` seconds; says every two seconds what it waits for. False: time ran out."""
    future = asyncio.ensure_future(work)
    deadline = monotonic() + limit
    while not future.done():
        left = deadline - monotonic()
        if left <= 0:
            future.cancel()
            await asyncio.gather(future, return_exceptions=True)
            return False
        await asyncio.wait({future}, timeout=min(left, 2.0))
        if not future.done():
            events.emit("daemon.waiting", step=name, on=on())
    future.result()
    return True


async def _reload_at_each(asked: asyncio.Event, reload: Callable[[], Awaitable[None]], ready: str) -> None:
    """Reload at each SIGHUP; several that come during one reload are one more."""
    while True:
        await asked.wait()
        asked.clear()
        # Type=notify-reload of systemd.service(5) wants to know when it began, by this clock.
        notify(f"RELOADING=1\nMONOTONIC_USEC={clock_gettime_ns(CLOCK_MONOTONIC) // 1000}\nSTATUS=reloading")
        try:
            await reload()
        finally:
            notify(f"READY=1\nSTATUS={ready}")


async def _end_reload(running: Iterable[asyncio.Task[None]]) -> None:
    """End a reload that is under way, so that it replaces no part while the parts end."""
    reloads = [task for task in running if task.get_name() == _RELOAD]
    for each in reloads:
        each.cancel()
    if reloads:
        await asyncio.wait(reloads, timeout=_AGAIN)


async def _live(interval: float) -> None:
    """Tell the watchdog twice in each of its intervals that we are alive."""
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval / 2)


def watchdog_interval() -> float | None:
    """The interval in seconds in which our supervisor expects a heartbeat; None when it expects none."""
    text, meant = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if not text.isdecimal() or int(text) == 0 or meant not in {None, str(os.getpid())}:
        return None
    return int(text) / 1e6


def notify(message: str) -> None:
    """Notify the supervisor (systemd, `pillarbox up`, a test) through NOTIFY_SOCKET; do nothing without one."""
    path = os.environ.get("NOTIFY_SOCKET")
    if path:
        address = "\0" + path[1:] if path.startswith("@") else path
        # As sd_notify(3) says: if no process listens any more, go on as before.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as door:
            door.connect(address)
            door.sendall(message.encode())
