"""soak — injects random faults for hours and checks resources that must not grow

Owns: `make soak`: a line every minute; the bounds on memory, files, connections, dead rows and the age of the queue.
Guarantees: exit status 0 if nothing was lost, each duplicate is of mail that was in flight when a fault struck (by the
    sinks and the claims) and that the history marks as uncertain, and every bound held at the end; 1 otherwise, with
    the failures. A killed process is replaced by a new one, so memory is measured in running processes.
See: tests/chaos/strikes/storm.py for the faults; docs/explanation/crash-table.md for a run and its figures.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from tests.chaos.arena import arena
from tests.chaos.cells import Cell
from tests.chaos.strikes.storm import one
from tests.fixtures.servers.killable import killable

if TYPE_CHECKING:
    from tests.chaos.arena import Arena
    from tests.fixtures.servers.killable import Killable

_CELL: Final = Cell("soak", "all, at random", "at random", "storm", crosses=True, processes=2)
_MINUTE: Final = 60.0
#: The limits of a sample. Memory in MiB and open files, of the largest process; our connections;
#: dead rows of all our tables; seconds that the oldest due recipient has waited.
BOUNDS: Final = {"memory": 300, "files": 300, "connections": 60, "dead": 200_000, "age": 60}


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources at the end of a minute."""

    memory: int
    files: int
    connections: int
    dead: int
    age: int

    def beyond(self) -> list[str]:
        """The bounds that it exceeds."""
        found = {name: int(getattr(self, name)) for name in BOUNDS}
        return [f"{name}={value} > {BOUNDS[name]}" for name, value in found.items() if value > BOUNDS[name]]


async def soak(server: Killable, folder: Path, seconds: float, seed: int) -> list[str]:
    """Run for this long; the broken promises."""
    async with arena(_CELL, server, folder, seed) as arena_:
        await arena_.start()
        submitting = asyncio.create_task(arena_.load.run())
        began = reported = monotonic()
        faults: Counter[str] = Counter()
        broken: list[str] = []
        try:
            await arena_.until_arrived(30)
            while monotonic() - began < seconds:
                async with asyncio.timeout(300):
                    name, _ = await one(arena_)
                    await arena_.until_arrived(20)
                faults[name] += 1
                if monotonic() - reported >= _MINUTE:
                    reported = monotonic()
                    broken += await _minute(arena_, (reported - began) / 60, faults)
        finally:
            arena_.load.stop()
            await submitting
        await arena_.until("SELECT count(*) = 0 FROM queue WHERE status = 'DELIVER'", limit=180)
        figures = arena_.accounts.figures()
        uncertain = int(await arena_.value("SELECT count(*) FROM attempts WHERE uncertain"))
        arena_.unanswered()
        bound, unexplained = len(arena_.accounts.in_flight), len(arena_.accounts.unexplained())
        minutes = (monotonic() - began) / 60
        print(f"faults={faults.total()} {figures} bound={bound} uncertain={uncertain} minutes={minutes:.0f}")
        print("faults: " + " ".join(f"{name}={count}" for name, count in sorted(faults.items())))
        checks = {
            f"{figures.lost} are lost": figures.lost,
            f"{figures.altered} are altered": figures.altered,
            f"{unexplained} duplicates of what was not in flight": unexplained,
            f"{figures.duplicated} duplicates, {uncertain} uncertain": figures.duplicated > uncertain,
        }
        return broken + [what for what, wrong in checks.items() if wrong]


async def _minute(arena_: Arena, minutes: float, faults: Counter[str]) -> list[str]:
    sample = await take(arena_)
    f = arena_.accounts.figures()
    print(
        f"{minutes:6.1f} min faults={faults.total()} accepted={f.accepted} waiting={f.lost} duplicates={f.duplicated} "
        f"memory={sample.memory}MiB files={sample.files} connections={sample.connections} dead={sample.dead} "
        f"age={sample.age}s",
        flush=True,
    )
    return [f"minute {minutes:.0f}: {what}" for what in sample.beyond()]


async def take(arena_: Arena) -> Sample:
    """Measure processes and tables now."""
    pids = [daemon.pid for daemon in arena_.daemons]
    pids += [pid for pid in (int(line["pid"]) for line in arena_.smtpd.said("child.started")[-2:]) if pid not in pids]
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pillarbox%%'"
    dead = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = 'pillarbox'"
    age = "SELECT coalesce(extract(epoch FROM now() - min(ts)), 0) FROM queue WHERE status = 'DELIVER'"
    return Sample(
        memory=max(_resident(pid) for pid in pids),
        files=max(_files(pid) for pid in pids),
        connections=int(await arena_.value(ours)),
        dead=int(await arena_.value(dead)),
        age=int(await arena_.value(age)),
    )


def _resident(pid: int) -> int:
    """MiB; 0 if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = dict(line.partition(":")[::2] for line in status.splitlines())
    return int(lines.get("VmRSS", "0").split()[0]) // 1024


def _files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def main(argv: list[str] | None = None) -> int:
    """Parse the options, run, and check."""
    parser = argparse.ArgumentParser(prog="soak", description="All faults at random, for hours.")
    parser.add_argument("--hours", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="what the faults are drawn by (default: 1)")
    arguments = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="pillarbox-soak-")) / "soak"
    with killable() as server:
        try:
            broken = asyncio.run(soak(server, folder, arguments.hours * 3600, arguments.seed))
        except (AssertionError, TimeoutError) as error:  # an expected event did not happen
            broken = [repr(error)]
    for what in broken:
        print(f"BROKEN: {what}")
    if broken:
        print(f"soak: logs: {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder.parent)
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
