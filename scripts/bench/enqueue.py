"""enqueue — `python -m scripts.bench.enqueue`: how many messages a second applications queue by SQL

Owns: batches of `enqueue_batch` and single calls of `enqueue`, each committed, and the spool of smtpd with the same
    messages in groups of the same size beside them.
Guarantees: an embedded server with fsync and synchronous_commit on. Bodies of 4 KB, a recipient and, where keys are
    measured, an idempotency key of its own for each. The JSON is made before the clock starts; each round measures
    everything once, and rates are the median of the rounds. What was queued is counted.
See: docs/how-to/send/enqueue-from-sql.md; scripts/bench/core/schedule.py, for the spool.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from scripts.bench import run
from scripts.bench.core.schedule import schedule
from scripts.bench.core.server import NAME, agree, content, settle_down
from scripts.bench.core.server import running as running_server
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scripts.bench.core.server import Server

_SIZE: Final = 4096
_BATCHES: Final = (50, 500)
_progress = partial(run.progress, "bench-enqueue")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print two lines; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.enqueue", description="Measure mail queued by SQL.")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of every measurement (default 3)")
    parser.add_argument("--messages", type=int, default=10_000, metavar="N", help="of each batch size (default 10000)")
    parser.add_argument("--sessions", type=int, default=1, metavar="N", help="that queue at the same time (default 1)")
    parser.add_argument(
        "--var", type=Path, default=Path("var/bench-enqueue"), metavar="DIR", help="working directory, emptied first"
    )
    options = parser.parse_args(arguments)
    try:
        with running_server(options.var) as server:
            settings, rates = asyncio.run(_measure(server, options.rounds, options.messages, options.sessions))
    except PillarboxError as error:
        _progress(str(error))
        return error.exit_status
    print(" ".join(f"{name}={value}" for name, value in settings.items()))
    figures = {name: median(values) for name, values in rates.items()}
    for size in _BATCHES:
        figures[f"batch_vs_spool_{size}"] = median(
            ours / theirs
            for ours, theirs in zip(rates[f"enqueue_batch_rows_s_{size}"], rates[f"spool_rows_s_{size}"], strict=True)
        )
    print(" ".join(f"{name}={value:.{2 if '_vs_' in name else 0}f}" for name, value in figures.items()))
    return 0


async def _measure(
    server: Server, rounds: int, messages: int, sessions: int
) -> tuple[dict[str, str], dict[str, list[float]]]:
    """What the figures depend on, and each figure's value in each round."""
    await server.prepare()
    settings = {"machine": run.machine(), "sessions": str(sessions), **await server.settings()}
    rates: dict[str, list[float]] = {}
    for number in range(1, rounds + 1):
        _progress(f"round {number} of {rounds}")
        for size in _BATCHES:
            for keys in (False, True):
                name = f"enqueue_batch{'_keys' if keys else ''}_rows_s_{size}"
                rates.setdefault(name, []).append(await _batches(server, messages, size, sessions, keys=keys))
            spooled = await schedule(server, messages, _SIZE, size)
            rates.setdefault(f"spool_rows_s_{size}", []).append(spooled.rows_s)
        rates.setdefault("enqueue_rows_s", []).append(await _single(server, messages // 20))
    return settings, rates


async def _batches(server: Server, messages: int, size: int, sessions: int, *, keys: bool) -> float:
    """Messages a second, in batches of this size."""
    asked = [_submission(number, keys=keys) for number in range(messages)]
    warm = json.dumps([_submission(-1 - number, keys=keys) for number in range(size)])
    texts = [json.dumps(asked[begin : begin + size]) for begin in range(0, messages, size)]
    async with server.cell() as uri:
        connections = [await database.connect(uri, NAME) for _ in range(sessions)]
        try:
            for _ in range(2):  # plans and regular expressions are kept by each session
                for each in connections:
                    await database.fetch(each, "bench_enqueue_batch", submissions=warm)
                    await database.fetch(each, "bench_empty")
                    await database.fetch(each, "bench_empty_messages")
            await settle_down(connections[0])
            began = perf_counter()
            await asyncio.gather(*(_send(each, texts[n::sessions]) for n, each in enumerate(connections)))
            took = perf_counter() - began
            await _counted(connections[0], messages)
        finally:
            for each in connections:
                await each.close()
    return messages / took


async def _send(connection: database.Connection, texts: list[str]) -> None:
    for text in texts:
        await database.fetch(connection, "bench_enqueue_batch", submissions=text)


async def _single(server: Server, messages: int) -> float:
    """Messages a second, each with a call and a commit of its own."""
    bodies = [content(_SIZE) for _ in range(messages)]
    async with server.cell() as uri, server.session(uri) as connection:
        await settle_down(connection)
        began = perf_counter()
        for number, body in enumerate(bodies):
            await database.fetch(connection, "bench_enqueue", recipient=_recipient(number), content=body)
        took = perf_counter() - began
        await _counted(connection, messages)
    return messages / took


async def _counted(connection: database.Connection, messages: int) -> None:
    [ledger] = await database.fetch(connection, "bench_ledger")
    agree("enqueue", ledger, {"waiting": messages, "messages": messages, "archived": 0})


def _submission(number: int, *, keys: bool) -> dict[str, Any]:
    key = {"idempotency_key": f"order-{number}"} if keys else {}
    head = (
        "Date: Wed, 25 Nov 2026 02:30:00 +0000\r\nFrom: Shop <shop@sender.example>\r\n"
        f"Message-ID: <{number}@sender.example>\r\n"
    )
    body = content(_SIZE - len(head)).decode()
    return {"sender": "shop@sender.example", "recipients": [_recipient(number)], "content": head + body, **key}


def _recipient(number: int) -> str:
    return f"recipient{number}@domain{number % 997}.example"


if __name__ == "__main__":
    sys.exit(main())
