"""around — faults of peers, of the clock, of memory, and of operators' commands

Owns: one function for each such strike; each returns when the fault is over.
Guarantees: a peer's fault may duplicate mail that the peer accepted but whose reply did not reach the worker; the relay
    to the sink records it.
    Only the daemons' wall clock is changed (libfaketime); leases and due times use PostgreSQL's.
See: tests/chaos/cells.py, which names them; tests/chaos/way_to_sink.py; cgroups(7), memory controller.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, LiteralString

import psycopg

from tests.chaos.arena import Arena, Struck
from tests.chaos.strikes.database import over
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.database.partitions import apply, configure
from tests.fixtures.servers.killable import POINTS, Ambush
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    import random

    from operate.partitions.layout import Layout
    from tests.chaos.way_to_sink import Mood

_MEMORY: Final = Path("/sys/fs/cgroup/memory")
_NEW_LEAVES: Final = {"all": frozenset("123456")}
_NAMES: Final = ("123", "456", "all")  # few, so that leaves are renamed and old names return
_CUTS: Final = 6


async def sink_hangs(arena: Arena) -> Struck:
    """Replies are lost; workers time out."""
    return await _moody(arena, "hang")


async def sink_resets(arena: Arena) -> Struck:
    """Connections are cut at the next reply."""
    return await _moody(arena, "reset")


async def sink_garbage(arena: Arena) -> Struck:
    """Replies are not SMTP."""
    return await _moody(arena, "garbage")


async def sink_after_dot(arena: Arena) -> Struck:
    """The peer has the content and dies before its reply."""
    return await _moody(arena, "after_dot")


async def _moody(arena: Arena, mood: Mood) -> Struck:
    await arena.until_arrived(arena.chance.randrange(100))
    before = _spoilt(arena)
    for way in arena.ways.values():
        way.mood = mood
    await eventually(lambda: _spoilt(arena) >= before + 20, f"answers are spoilt: {mood}", limit=90)
    for way in arena.ways.values():
        way.mood = "good"
    return Struck(monotonic())


def _spoilt(arena: Arena) -> int:
    return sum(way.spoilt for way in arena.ways.values())


async def clock_back(arena: Arena) -> Struck:
    """An hour back, as when an operator corrects a clock."""
    return await _step(arena, "-3600")


async def clock_forward(arena: Arena) -> Struck:
    """An hour forward."""
    return await _step(arena, "+3600")


async def _step(arena: Arena, offset: str) -> Struck:
    await arena.until_arrived(100)
    arena.clock.write_text(offset)
    await arena.until_arrived(200)
    arena.clock.write_text("+0")
    return Struck(monotonic())


async def out_of_memory(arena: Arena) -> Struck:
    """The kernel kills a worker at its memory limit; if no limit can be set, its address space is limited first."""
    await arena.until_arrived(100)
    victim = arena.chance.choice(arena.workers)
    group = _MEMORY / f"pillarbox-{os.getpid()}"
    try:
        with suppress(OSError):
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text("400K")
            (group / "cgroup.procs").write_text(str(victim.pid))
        if not group.exists():
            resource.prlimit(victim.pid, resource.RLIMIT_AS, (1, 1))
            await arena.until_arrived(20)
            await victim.kill()
        assert await victim.ended(60) == -9
    finally:
        with suppress(OSError):
            group.rmdir()
    ended = monotonic()
    await arena.died(victim.name)
    await victim.start()
    return Struck(ended)


async def hold_release(arena: Arena) -> Struck:
    """An operator holds everything and releases it; the first time each, the backend dies before COMMIT."""
    await arena.until_arrived(50)
    for sql in (
        "UPDATE pillarbox.queue SET status = 'HOLD' WHERE status = 'DELIVER'",
        "UPDATE pillarbox.queue SET status = 'DELIVER' WHERE status = 'HOLD'",
    ):
        for dies in (True, False):
            await arena.until_accepted(30)
            await asyncio.to_thread(_operator, arena.uri, sql, dies=dies)
    return Struck(monotonic())


def _operator(uri: str, sql: LiteralString, *, dies: bool) -> None:
    """One transaction, retried if a worker had locked one of the rows, or ended by its backend's death."""
    while True:
        try:
            with psycopg.connect(uri) as connection:
                connection.execute(sql)
                if dies:
                    connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            continue
        except psycopg.OperationalError:
            if not dies:
                raise
        return


async def late_recipient(arena: Arena) -> Struck:
    """Bodies without recipients get another one within the grace, after sweeps, as documented."""
    done = "FROM archive a WHERE NOT EXISTS (SELECT FROM queue q WHERE q.messages__id = a.messages__id)"
    # So long ago that sweeps, which run twice a second, have seen it.
    await arena.until(f"SELECT count(*) > 0 {done} AND finished < now() - interval '2 s'")
    [(body, sender)] = await arena.rows(f"SELECT messages__id, senderlocalpart {done} ORDER BY finished LIMIT 1")
    recipient = ("again.r", "oak.example")
    key = f"{sender}@origin.example"
    arena.accounts.promise(key, "@".join(recipient), monotonic())
    with suppress(psycopg.errors.ForeignKeyViolation):
        await arena.system.rows(
            """INSERT INTO queue (messages__id, senderlocalpart, senderdomain, recipientlocalpart, recipientdomain,
                                  size, metadata)
               SELECT id, %s, 'origin.example', %s, %s, size, '{"_partid": "1"}' FROM messages WHERE id = %s""",
            sender,
            *recipient,
            body,
        )
    return Struck(monotonic())


async def repartition(arena: Arena) -> Struck:
    """The command dies between two of its steps; the same command then completes the rest while mail flows.

    Then the leaves are divided at random, and the same few names move from leaf to leaf.
    """
    folder = arena.folder / "config"
    folder.mkdir()
    configure(folder, arena.uri, LEAVES)
    await arena.until_arrived(50)
    words = ("partitions", "merge", "123", "456", "into", "all", "--yes", "--config", str(folder))
    failing = {"PILLARBOX_FAIL": "partitions.step:kill:4", "PILLARBOX_FAIL_MARK": str(arena.mark)}
    assert await pillarbox(*words, **failing) == -9
    await arena.until_arrived(50)
    assert await pillarbox(*words) == 0
    for layout in ({"123": frozenset("123456")}, *(_cut(arena.chance) for _ in range(_CUTS))):
        await apply(arena.uri, layout)
    return Struck(monotonic())


def _cut(chance: random.Random) -> Layout:
    """All ids in up to three leaves."""
    layout: dict[str, set[str]] = {}
    for id_ in "123456":
        layout.setdefault(chance.choice(_NAMES), set()).add(id_)
    return {name: frozenset(ids) for name, ids in layout.items()}


async def repartition_postmaster(arena: Arena) -> Struck:
    """PostgreSQL dies during the copy of a repartitioning; the next run starts again."""
    await arena.until_arrived(50)
    claimed, began = await arena.claims(), monotonic()
    ambush = Ambush(arena.server, POINTS["workplace"], uri=arena.uri)
    assert await ambush.run(_NEW_LEAVES) is not None
    await arena.serving()
    struck = await over(arena, began, claimed)
    await apply(arena.uri, _NEW_LEAVES)
    return struck


async def migration(arena: Arena) -> Struck:
    """Mail flows after a migration that was killed midway and run again (`prepare`)."""
    await arena.until_arrived(50)
    return Struck(monotonic())


async def prepare(arena: Arena) -> None:
    """Kill `pillarbox migrate` inside a migration, and run it again."""
    folder = arena.folder / "config"
    folder.mkdir()
    configure(folder, arena.uri, LEAVES)
    words = ("migrate", "--config", str(folder))
    failing = {"PILLARBOX_FAIL": "migrate.before_commit:kill", "PILLARBOX_FAIL_MARK": str(arena.mark)}
    assert await pillarbox(*words, **failing) == -9
    assert await arena.value("SELECT to_regclass('pillarbox.migrations') IS NULL")
    assert await pillarbox(*words) == 0


async def pillarbox(*words: str, **environment: str) -> int:
    """Run one of our commands; its exit status."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.cli", *words),
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await running.wait()
