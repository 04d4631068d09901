"""daemons — faults of our own processes: killed, stopped, restarted as by a service manager

Owns: one function for each such strike; each returns when the fault is over.
Guarantees: the mail in flight is recorded after the death and before a restart, when it cannot change any
    more (tests/chaos/arena.py).
See: tests/chaos/cells.py, which names them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from tests.chaos.arena import WORKERS, Arena, Struck, alive
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.chaos.accounts import Key
    from tests.fixtures.daemons.system import Daemon


async def nothing(arena: Arena) -> Struck:
    """No fault: shows losses and duplicates of the harness itself."""
    await arena.until_arrived(200)
    return Struck(monotonic())


async def at_point(arena: Arena) -> Struck:
    """A daemon kills itself at the cell's failure point; it is restarted at once."""
    await eventually(arena.mark.exists, f"{arena.cell.point} is reached", limit=90)
    if arena.cell.point.partition(":")[2].startswith("raise") or arena.cell.processes > 1:
        return Struck(monotonic())
    await eventually(arena.ended, "the daemon is gone")
    [dead] = arena.ended()
    ended = monotonic()
    if dead.name in WORKERS:
        await arena.died(dead.name)
        await dead.start()
        return Struck(_healed(arena, ended))
    await dead.start()
    return Struck(monotonic())


async def worker(arena: Arena) -> Struck:
    """Kill -9 of a busy worker."""
    victim, ended = await _killed(arena)
    await victim.start()
    return Struck(_healed(arena, ended))


async def worker_gone(arena: Arena) -> Struck:
    """The same, and it stays away: the other worker takes over its mail."""
    _, ended = await _killed(arena)
    return Struck(ended)


async def _killed(arena: Arena) -> tuple[Daemon, float]:
    """A busy worker, killed, and when."""
    victim, _ = await _stopped_while_busy(arena)
    await victim.kill()
    ended = monotonic()
    await arena.died(victim.name)
    return victim, ended


async def _stopped_while_busy(arena: Arena) -> tuple[Daemon, set[Key]]:
    """A worker stopped by SIGSTOP at a random moment at which it has mail in flight, and that mail."""
    await arena.until_arrived(arena.chance.randrange(150))
    victim = arena.chance.choice(arena.workers)
    held: set[Key] = set()
    while not held:  # without mail in flight the fault would prove nothing
        victim.signal(signal.SIGCONT)
        await arena.until_arrived(5)
        victim.signal(signal.SIGSTOP)
        await eventually(lambda: victim in arena.stopped(), "the worker is stopped")
        held = await arena.stopped_with(victim.name)
    return victim, held


def _healed(arena: Arena, killed: float) -> float:
    """The end of a fault of a worker that runs again: now, where its mail waits for it, and not for the lease."""
    return monotonic() if arena.cell.recovers == "whole" else killed


async def maintainer_in_statement(arena: Arena) -> Struck:
    """A session locks the table that the sweep reads; the worker that waits for the lock is killed."""
    await arena.until_arrived(arena.chance.randrange(100))
    waits = """SELECT application_name FROM pg_stat_activity
                WHERE query LIKE '%%maintain_sweep%%' AND wait_event_type = 'Lock' AND datname = current_database()"""
    async with await psycopg.AsyncConnection.connect(arena.uri) as locking:
        await locking.execute("LOCK TABLE pillarbox.released IN EXCLUSIVE MODE")

        async def sweeping() -> bool:
            return bool(await arena.rows(waits))

        await eventually(sweeping, "a sweep waits for the lock")
        [(name,)] = await arena.rows(waits)
        [victim] = [each for each in arena.workers if name == f"pillarbox {each.name}"]
        await victim.kill()
        ended = monotonic()
    await arena.died(victim.name)
    await victim.start()
    return Struck(ended)


async def smtpd_child(arena: Arena) -> Struck:
    """Kill -9 of one process of two; the supervisor starts another."""
    await arena.until_accepted(arena.chance.randrange(150))
    before = len(arena.smtpd.said("child.started"))
    os.kill(int(arena.smtpd.said("child.started")[-1]["pid"]), signal.SIGKILL)
    ended = monotonic()
    await arena.smtpd.until_said("child.started", before + 1)
    return Struck(ended)


async def smtpd_supervisor(arena: Arena) -> Struck:
    """Kill -9 of the supervisor alone; its processes must not outlive it, and the daemon is restarted."""
    await arena.until_accepted(arena.chance.randrange(150))
    children = [int(line["pid"]) for line in arena.smtpd.said("child.started")]
    await arena.smtpd.kill()
    await arena.smtpd.start()
    ended = monotonic()
    await eventually(lambda: not any(map(alive, children)), "the orphans end")
    return Struck(ended)


async def stopped_worker(arena: Arena) -> Struck:
    """SIGTERM while a session locks the table of results: the stop waits for them, so nothing may arrive twice."""
    await arena.until_arrived(arena.chance.randrange(150))
    victim = arena.chance.choice(arena.workers)
    async with arena.results_held(victim.name):
        stopping = asyncio.create_task(victim.stop())
        await eventually(lambda: _waits_for_results(victim) or stopping.done(), "the stop comes to the results")
    assert await stopping == 0
    await victim.start()
    return Struck(monotonic())


def _waits_for_results(daemon: Daemon) -> bool:
    return any(line["step"] == "results" for line in daemon.said("daemon.waiting"))


async def stopped_smtpd(arena: Arena) -> Struck:
    """SIGTERM under load: accepted mail is committed, all other clients get 421."""
    await arena.until_accepted(arena.chance.randrange(150))
    assert await arena.smtpd.stop() == 0
    await arena.smtpd.start()
    return Struck(monotonic())


async def smtpd_and_worker(arena: Arena) -> Struck:
    """Both at once."""
    await arena.until_arrived(arena.chance.randrange(150))
    victim = arena.chance.choice(arena.workers)
    await asyncio.gather(arena.smtpd.kill(), victim.kill())
    ended = monotonic()
    await arena.died(victim.name)
    await asyncio.gather(arena.smtpd.start(), victim.start())
    return Struck(ended)


async def everything(arena: Arena) -> Struck:
    """Kill -9 of PostgreSQL and of every daemon; all are restarted."""
    await arena.until_arrived(arena.chance.randrange(150))
    arena.server.kill()
    await asyncio.gather(*(daemon.kill() for daemon in arena.daemons))
    await arena.serving()
    await arena.died(*WORKERS)
    await asyncio.gather(*(daemon.start() for daemon in arena.daemons))
    return Struck(monotonic())


async def sleeper(arena: Arena) -> Struck:
    """SIGSTOP until the other worker has taken over all its mail, then SIGCONT: its late results are fenced off."""
    victim, held = await _stopped_while_busy(arena)
    arena.accounts.strike(held, alive=True)
    began = monotonic()
    await arena.until("SELECT count(*) = 0 FROM queue WHERE token IS NOT NULL AND worker LIKE %s", f"{victim.name}@%")
    victim.signal(signal.SIGCONT)
    return Struck(began)


async def late_deferral(arena: Arena) -> Struck:
    """A worker stops with deferrals in flight; the other one delivers; the deferrals must not bring the mail back.

    The peer defers everything the first time, so the mail in flight was not delivered: no duplicate is allowed.
    """
    await eventually(arena.stopped, f"{arena.cell.point} is reached", limit=90)
    [asleep] = arena.stopped()
    arena.gate.clear()
    arena.gated = {sender for sender, _ in await arena.stopped_with(asleep.name)}
    taken = [entry for (sender, _), entry in arena.accounts.entries.items() if sender in arena.gated]
    await eventually(lambda: any(entry.arrivals for entry in taken), "the other one sends the mail it took over")
    await arena.until("SELECT count(*) = 0 FROM queue WHERE token IS NOT NULL AND worker LIKE %s", f"{asleep.name}@%")
    spoken = _recorded(asleep)
    asleep.signal(signal.SIGCONT)
    began = monotonic()
    await eventually(lambda: _recorded(asleep) > spoken, "the late results are recorded or refused")
    # Both workers scan the whole queue meanwhile, several times.
    await arena.until_arrived(400)
    arena.gate.set()
    return Struck(began)


def _recorded(daemon: Daemon) -> int:
    return len(daemon.said("claim.lost")) + len(daemon.said("result.deferred"))
