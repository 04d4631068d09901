"""settle — measures rows per second through claim and settle, ours and pgmq's, with the same kind of processes

Owns: filling a queue, draining it with N processes, and checking afterwards that every row was settled once.
Guarantees: the clock runs from the start signal to all processes until the last commit of the last one. A cell whose
    ledger does not agree is an error, never a figure.
See: scripts/bench/core/worker.py.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from scripts.bench.core.server import LEAVES, agree, content, fill, settle_down, wal_octets
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scripts.bench.core.server import Server

SIZE: Final = 1024
_PGMQ_PORTION = 1000


@dataclass(frozen=True, slots=True)
class Drained:
    """One cell: rows per second, WAL octets a row, the share of HOT updates (0 to 1; None if not measured)."""

    rows_s: float
    wal: float
    hot: float | None = None


async def ours(server: Server, rows: int, batch: int, workers: int, kind: str = "pillarbox") -> Drained:
    """Claim and settle `rows` single-recipient messages of 1 KB; kind "bodies" reads the bodies too."""
    async with server.cell() as uri:
        async with server.session(uri) as connection:
            await fill(connection, rows, SIZE)
            await settle_down(connection)
            before = await wal_octets(connection)
            seconds = await drained([worker(kind, uri, batch, where) for where in _conditions(workers)], rows, kind)
            wal = await wal_octets(connection) - before
            [ledger] = await database.fetch(connection, "bench_ledger")
            agree(
                f"claim and settle, batch {batch}, {workers} workers",
                ledger,
                {"waiting": 0, "archived": rows, "distinct_archived": rows, "tried": rows, "held": 0},
            )
            [hot] = await database.fetch(connection, "bench_hot")
        return Drained(rows / seconds, wal / rows, hot.share)


async def pgmq(server: Server, sql: bytes, rows: int, batch: int, workers: int) -> Drained:
    """The same number of messages of the same size through pgmq.read and pgmq.archive; `sql` installs pgmq."""
    async with server.cell(empty=True) as uri:
        async with server.session(uri) as connection:
            await connection.execute(sql)
            await database.fetch(connection, "bench_pgmq_create")
            body = content(SIZE).decode()
            for begin in range(0, rows, _PGMQ_PORTION):
                portion = min(_PGMQ_PORTION, rows - begin)
                await database.fetch(connection, "bench_pgmq_send", batch=portion, body=body)
            await settle_down(connection)
            before = await wal_octets(connection)
            seconds = await drained([worker("pgmq", uri, batch, "true")] * workers, rows, "pgmq")
            wal = await wal_octets(connection) - before
            [ledger] = await database.fetch(connection, "bench_pgmq_ledger")
            agree(f"pgmq, batch {batch}, {workers} workers", ledger, {"waiting": 0, "archived": rows})
        return Drained(rows / seconds, wal / rows)


def _conditions(workers: int) -> list[str]:
    """The WHERE condition of each worker: one serves every leaf, two serve one each, more share them."""
    leaves = [", ".join(f"'{partid}'" for partid in partids) for partids in LEAVES.values()]
    if workers == 1:
        leaves = [", ".join(leaves)]
    return [f"metadata->>'_partid' IN ({leaves[i % len(leaves)]})" for i in range(workers)]


def worker(kind: str, uri: str, batch: int, where: str) -> tuple[str, ...]:
    """The command of one worker of ours, or of pgmq's."""
    return (sys.executable, "-m", "scripts.bench.core.worker", kind, uri, str(batch), where)


async def drained(
    commands: Sequence[Sequence[str]], rows: int, kind: str, environment: Mapping[str, str] | None = None
) -> float:
    """Seconds from the start signal to these workers until the last one finds the queue empty."""
    started = [
        await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment
        )
        for command in commands
    ]
    try:
        for worker in started:
            await _line(worker, b"ready")
        began = monotonic()
        for worker in started:
            if worker.stdin is not None:
                worker.stdin.write(b"go\n")
        reports = [json.loads(await _line(worker, b"{")) for worker in started]
    except BaseException:
        for worker in started:
            if worker.returncode is None:
                worker.kill()
        raise
    finally:
        await asyncio.gather(*(worker.wait() for worker in started))
    done = sum(each["rows"] for each in reports)
    if done != rows:
        raise PillarboxError(f"{kind}: {rows} rows were queued, {done} were settled")
    return max(float(each["ended"]) for each in reports) - began


async def _line(worker: asyncio.subprocess.Process, begins: bytes) -> bytes:
    """The next line with this beginning; other lines, which a peer's program may print, are skipped."""
    while line := await worker.stdout.readline() if worker.stdout is not None else b"":
        if line.startswith(begins):
            return line
    raise PillarboxError("a worker of the benchmark died; its message is above")
