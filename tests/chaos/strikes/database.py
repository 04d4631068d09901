"""database — faults of PostgreSQL and of the network to it

Owns: one function for each such strike; each returns when the fault is over, which is when PostgreSQL answers again.
Guarantees: the workers survive and keep their results, so nothing may arrive twice if the fault is shorter than a
    lease; if it lasts longer, claimed mail may.
See: tests/chaos/cells.py, which names them; tests/fixtures/peers/proxy.py; sql/README.md, "Crash table", 17.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import psycopg

from tests.chaos.arena import RESULTS_WAIT, Arena, Struck
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.chaos.accounts import Key
    from tests.fixtures.peers.proxy import Proxy

_END: Final = """SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                 WHERE application_name LIKE 'pillarbox%' AND datname = current_database()"""
_CLAIMED: Final = b".example"  # of senders and recipients: no other answer to a worker names them
_OURS: Final = "FROM pg_stat_activity WHERE application_name LIKE 'pillarbox%%' AND datname = current_database()"


async def terminate(arena: Arena) -> Struck:
    """pg_terminate_backend of all the daemons' connections, three times."""
    for _ in range(3):
        await arena.until_arrived(arena.chance.randrange(10, 60))
        await arena.rows(f"SELECT pg_terminate_backend(pid) {_OURS}")
    return Struck(monotonic())


async def backend(arena: Arena) -> Struck:
    """Kill -9 of one backend: PostgreSQL ends all the others and recovers."""
    await arena.until_arrived(arena.chance.randrange(150))
    claimed, began = await arena.claims(), monotonic()
    pids = sorted(pid for (pid,) in await arena.rows(f"SELECT pid {_OURS}"))
    os.kill(arena.chance.choice(pids), signal.SIGKILL)
    await arena.until_refused(1)
    await arena.value("SELECT 1")
    return await over(arena, began, claimed)


async def postmaster(arena: Arena) -> Struck:
    """Kill -9 of the server; it is restarted once clients have noticed."""
    await arena.until_arrived(arena.chance.randrange(150))
    claimed, began = await arena.claims(), monotonic()
    arena.server.kill()
    await arena.until_refused(20)
    await arena.serving()
    return await over(arena, began, claimed)


async def no_connections(arena: Arena) -> Struck:
    """Another client takes every connection, including our idle ones."""
    await arena.until_arrived(arena.chance.randrange(150))
    claimed, began = await arena.claims(), monotonic()
    with ExitStack() as held:
        await asyncio.to_thread(_take_all, arena.uri, held)
        await arena.until_refused(20)
    await arena.value("SELECT 1")
    return await over(arena, began, claimed)


def _take_all(uri: str, held: ExitStack) -> None:
    """Open connections until none is left, terminate the daemons', and take those too."""
    first = held.enter_context(psycopg.connect(uri, autocommit=True))
    ended = True
    while ended:
        with suppress(psycopg.OperationalError):
            while True:
                held.enter_context(psycopg.connect(uri))
        ended = bool(first.execute(_END).fetchall())


async def network_cut(arena: Arena) -> Struck:
    """All connections are cut and new ones refused, until clients have noticed."""
    network = _network(arena)
    await arena.until_arrived(arena.chance.randrange(150))
    claimed, began = await arena.claims(), monotonic()
    network.refuse = True
    network.cut()
    await arena.until_refused(20)
    network.refuse = False
    return await over(arena, began, claimed)


async def results_wait(arena: Arena) -> Struck:
    """The network is cut while results are recorded, until a worker reports that it still has them."""
    network = _network(arena)
    await arena.until_arrived(arena.chance.randrange(150))
    async with arena.results_held():
        network.refuse = True
        network.cut()
        await arena.rows(f"SELECT pg_terminate_backend(pid, 5000) {RESULTS_WAIT}")
        await eventually(lambda: any(worker.said("result.unrecorded") for worker in arena.workers), "results wait")
    network.refuse = False
    return Struck(monotonic())


async def network_slow(arena: Arena) -> Struck:
    """Every answer takes 300 ms more, for two hundred recipients."""
    network = _network(arena)
    network.delay = 0.3
    await arena.until_accepted(200)
    network.delay = 0.0
    return Struck(monotonic())


async def network_deaf(arena: Arena) -> Struck:
    """Connections stay open without replies; the middlebox drops them only after a lease."""
    network = _network(arena)
    await arena.until_arrived(arena.chance.randrange(150))
    claimed = await arena.claims()
    began: Any = await arena.value("SELECT now()")
    network.deaf()
    await arena.until("SELECT now() > %s + make_interval(secs => %s)", began, arena.cell.lease)
    arena.accounts.strike(claimed | await arena.claims(), alive=True)
    network.cut()
    await eventually(lambda: network.open > 0, "they connect again")
    return Struck(monotonic())


async def claims_unanswered(arena: Arena) -> Struck:
    """Ten times a claim's connection breaks after its COMMIT, before its answer."""
    network = _network(arena)
    for _ in range(10):
        await arena.until_arrived(arena.chance.randrange(10, 60))
        network.swallow = _CLAIMED
        await eventually(lambda: not network.swallow, "an answer is lost")
    return Struck(monotonic())


async def over(arena: Arena, began: float, claimed: set[Key]) -> Struck:
    """The fault is over; mail in flight may arrive twice if it lasted so long that leases expired."""
    ended = monotonic()
    if ended - began > arena.cell.lease / 2:
        arena.accounts.outage(claimed, await arena.claims(), began)
    return Struck(ended)


def _network(arena: Arena) -> Proxy:
    assert arena.network is not None
    return arena.network
