"""core — `python -m scripts.bench.core`: measures the queue without SMTP, compared with pgmq and PgQueuer

Owns: the order of the measurements and their rounds. There is one embedded server, with fsync and synchronous_commit
    on. Ours and the peers alternate in every round, so that a slow moment of the machine affects both.
Guarantees: every figure's ledger was checked; the last line printed holds the report's figures. A figure that cannot be
    measured here is `unmeasured`, with a line that says how to measure it.
See: docs/explanation/benchmarks.md, the contract behind each number.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.bench import run
from scripts.bench.core import leaves, pgqueuer, settle
from scripts.bench.core.pgqueuer import CannotMeasureError
from scripts.bench.core.report import PGQUEUER, SETTLE, WITH_BODIES, Results, peer_row, row
from scripts.bench.core.schedule import schedule
from scripts.bench.core.server import running
from scripts.bench.core.wakeup import wake
from shared.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from scripts.bench.core.pgqueuer import PgQueuer
    from scripts.bench.core.server import Server

_PGMQ_SQL: Final = "PGMQ_SQL"
_WORKERS: Final = (1, 2, 4)
_progress = partial(run.progress, "bench-core")


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of a run. Leaves are measured in the first round only, because creating 500 takes long."""

    schedule: dict[tuple[str, int], dict[int, int]]  # (table, octets) → group → messages
    settle: dict[int, int]  # batch → rows
    alike: dict[int, int]  # batch → rows; ours reads the body too, and alternates with pgmq
    pgqueuer: dict[tuple[int, int, int], int]  # (processes, batch, consumers of each) → jobs
    samples: int  # of the wake-up
    backlog: int  # deferred rows
    leaves: dict[int, int]  # leaves → batches of 50


_FULL = Plan(
    schedule={
        ("schedule, 1 KB", 1024): {1: 500, 100: 5000, 500: 10_000},
        ("schedule, 50 KB", 51_200): {1: 200, 100: 1000, 500: 1500},
    },
    settle={1: 1500, 50: 15_000, 500: 30_000},
    alike={1: 1500, 100: 20_000, 500: 30_000},
    pgqueuer={
        (1, 10, 5): 20_000,
        (1, 200, 2): 30_000,
        (1, 500, 1): 30_000,
        (2, 100, 2): 30_000,
        (2, 200, 1): 30_000,
        (2, 200, 2): 30_000,
    },
    samples=300,
    backlog=1_000_000,
    leaves={3: 40, 100: 40, 500: 40},
)
_QUICK = Plan(
    schedule={("schedule, 1 KB", 1024): {1: 20, 100: 200}, ("schedule, 50 KB", 51_200): {100: 100}},
    settle={50: 200, 500: 1000},
    alike={100: 1000},
    pgqueuer={},
    samples=20,
    backlog=2000,
    leaves={3: 2},
)


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit status."""
    parser = run.parser("core", "Measure the queue core.", quick="tiny sizes, no PgQueuer")
    options = parser.parse_args(arguments)
    return run.run("bench-core", options, lambda: _measured(options), Results({}), "benchmarks.md")


def _measured(options: argparse.Namespace) -> Results:
    pgmq = _pgmq_sql()
    with running(options.var) as server:
        return asyncio.run(_measure(server, _QUICK if options.quick else _FULL, options.rounds, pgmq))


async def _measure(server: Server, plan: Plan, rounds: int, pgmq: bytes | None) -> Results:
    await server.prepare()
    book = Results({"machine": run.machine(), "rounds": str(rounds), **await server.settings()})
    peer = await _pgqueuer(server, plan, book)
    if pgmq is None:
        book.notes.append(f"pgmq: unmeasured; to measure, set {_PGMQ_SQL} to its plain SQL file (sql/pgmq.sql of pgmq)")
    for number in range(1, rounds + 1):
        _progress(f"round {number} of {rounds}: schedule")
        await _schedule(server, plan, book)
        _progress(f"round {number} of {rounds}: claim and settle, and the peers")
        await _settle(server, plan, book, pgmq)
        if peer is not None:
            for (processes, batch, consumers), jobs in plan.pgqueuer.items():
                rate = await pgqueuer.drain(server, peer, jobs, batch, consumers, processes)
                book.add(PGQUEUER, peer_row(processes, batch, consumers), **{"rows/s": rate})
        if number == 1:
            await _leaves(server, plan, book)
        _progress(f"round {number} of {rounds}: wake-up")
        await _wake(server, plan, book)
    return book


async def _schedule(server: Server, plan: Plan, book: Results) -> None:
    for (table, size), groups in plan.schedule.items():
        for group, messages in groups.items():
            found = await schedule(server, messages, size, group)
            book.add(table, f"group {group}", **{"rows/s": found.rows_s, "WAL octets": found.wal})


async def _settle(server: Server, plan: Plan, book: Results, pgmq: bytes | None) -> None:
    for workers in _WORKERS:
        for batch, rows in plan.settle.items():
            found = await settle.ours(server, rows, batch, workers)
            figures = {"rows/s": found.rows_s, "WAL octets": found.wal, "HOT": found.hot}
            book.add(SETTLE, row(batch, workers), **figures)
    for workers in _WORKERS:
        for batch, rows in plan.alike.items():
            found = await settle.ours(server, rows, batch, workers, "bodies")
            book.add(WITH_BODIES, row(batch, workers), **{"rows/s": found.rows_s, "WAL octets": found.wal})
            if pgmq is not None:
                theirs = await settle.pgmq(server, pgmq, rows, batch, workers)
                book.beside_pgmq(batch, workers, found.rows_s, theirs.rows_s)
                book.add("WAL octets a row of pgmq", row(batch, workers), **{"WAL octets": theirs.wal})


async def _leaves(server: Server, plan: Plan, book: Results) -> None:
    for number, batches in plan.leaves.items():
        _progress(f"{number} leaves, {leaves.WORKERS} workers")
        found = await leaves.measured(server, number, batches)
        figures = {"50 results ms": found.settle, "rows/s": found.rows_s, "locks": float(found.locks)}
        book.add("leaves", f"{number} leaves", **figures)


async def _wake(server: Server, plan: Plan, book: Results) -> None:
    for what, backlog, snapshot in (
        ("quiet", 0, False),
        ("held snapshot", 0, True),
        ("deferred backlog", plan.backlog, False),
    ):
        found = await wake(server, plan.samples, backlog=backlog, snapshot=snapshot)
        book.add(
            "wake-up", what, **{"p50 ms": found.p50 * 1e3, "p99 ms": found.p99 * 1e3, "claim ms": found.claim * 1e3}
        )


async def _pgqueuer(server: Server, plan: Plan, book: Results) -> PgQueuer | None:
    """PgQueuer, ready to be measured; None, and a note, when it is unavailable."""
    if not plan.pgqueuer:
        book.notes.append("PgQueuer: unmeasured; to measure, run without --quick")
        return None
    _progress("installing PgQueuer into a scratch environment")
    try:
        peer = await pgqueuer.prepare(server.place.var / "pgqueuer")
    except CannotMeasureError as error:
        book.notes.append(f"PgQueuer: unmeasured; it must be installable from a package index ({error})")
        return None
    book.settings["PgQueuer"] = peer.version
    return peer


def _pgmq_sql() -> bytes | None:
    """The content of the file named by PGMQ_SQL; None if the variable is empty."""
    named = os.environ.get(_PGMQ_SQL)
    if not named:
        return None
    if not Path(named).is_file():
        raise ConfigError(f"{_PGMQ_SQL}: {named} is not a file; allowed: the path of pgmq's plain SQL file, or empty")
    return Path(named).read_bytes()


if __name__ == "__main__":
    sys.exit(main())
