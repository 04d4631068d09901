"""__main__ — `make bench-accounts`: tokens per second of the collector, and the time from COMMIT to queued mail

Owns: the cells of the run: for each size of batch the bare loop, the collector's lines and its queued mail, each over
    the same number of new tokens; then single sign-ups, one after the other.
Guarantees: every cell has a database of its own on one server, with fsync and synchronous_commit on; each runs in a
    process of its own, timed from the first marked token to the last, so that no start is counted. The order of
    the cells changes from round to round. A run without every token collected ends with an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

from scripts.bench import run
from scripts.bench.core.server import LEAVES, PARTITIONS, Server
from scripts.bench.core.server import running as running_server
from shared.errors import PillarboxError
from shared.postgres import account_schema, database, migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

_KEY: Final = "cafebabe" * 8
_LOOK: Final = 0.005  # seconds between two looks for the end
_progress = partial(run.progress, "bench-accounts")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the lines; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.accounts", description="Measure the collector of account mail."
    )
    parser.add_argument("--tokens", type=int, default=5_000, metavar="N", help="tokens of each cell (default 5000)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds; medians are printed (default 3)")
    parser.add_argument(
        "--batches", type=int, nargs="+", default=[10, 100], metavar="N", help="batches (default 10 100)"
    )
    parser.add_argument("--sign-ups", type=int, default=200, metavar="N", help="single sign-ups (default 200)")
    parser.add_argument(
        "--var", type=Path, default=Path("var/bench-accounts"), metavar="DIR", help="working directory, emptied first"
    )
    options = parser.parse_args(arguments)
    try:
        with ExitStack() as stack:
            asyncio.run(_measure(stack.enter_context(running_server(options.var)), options))
    except PillarboxError as error:
        _progress(str(error))
        return error.exit_status
    return 0


async def _measure(server: Server, options: argparse.Namespace) -> None:
    lowest = float("inf")
    for batch in options.batches:
        rates: dict[str, list[float]] = {"bare": [], "csv": [], "queue": []}
        for number in range(options.rounds):
            for kind in (*list(rates)[number % 3 :], *list(rates)[: number % 3]):
                rates[kind].append(await _rate(server, kind, batch, options))
                _progress(f"batch {batch}, {kind}: {rates[kind][-1]:.0f} tokens/s")
        found = {kind: median(each) for kind, each in rates.items()}
        ratio = median(csv / bare for csv, bare in zip(rates["csv"], rates["bare"], strict=True))
        lowest = min(lowest, ratio)
        shown = " ".join(f"{kind}_tokens_s={value:.0f}" for kind, value in found.items())
        print(f"batch={batch} {shown} csv_vs_bare={ratio:.2f}")
    times = await _commit_to_queued(server, options)
    print(
        f"collect_vs_bare={lowest:.2f} commit_to_queued_p50_ms={1000 * median(times):.2f} "
        f"commit_to_queued_most_ms={1000 * max(times):.2f}"
    )


async def _rate(server: Server, kind: str, batch: int, options: argparse.Namespace) -> float:
    """Tokens per second of one cell."""
    async with server.cell(empty=True) as uri:
        await _prepare(uri, options.tokens)
        begun, ended = await _watched(uri, kind, batch, options)
        tokens: int = options.tokens
        return tokens / (ended - begun)


async def _prepare(uri: str, tokens: int) -> None:
    migrate.migrate(uri, LEAVES, PARTITIONS)
    account_schema.install(uri)
    connection = await database.connect(uri, "pillarbox bench")
    try:
        await database.fetch(connection, "bench_accounts_make", count=tokens)
        await database.fetch(connection, "bench_accounts_settle")
    finally:
        await connection.close()


async def _watched(uri: str, kind: str, batch: int, options: argparse.Namespace) -> tuple[float, float]:
    """When the first token was marked, and when the last one was."""
    connection = await database.connect(uri, "pillarbox bench")
    begun = 0.0
    process = await _start(uri, kind, batch, options.var)
    try:
        while True:
            [row] = await database.fetch(connection, "bench_tokens_left")
            if not begun and row.left_over < options.tokens:
                begun = perf_counter()
                already = options.tokens - row.left_over
            if not row.left_over:
                ended = perf_counter()
                return begun + (begun - ended) * already / max(1, options.tokens - already), ended
            if process.returncode not in {None, 0}:
                raise PillarboxError(f"{kind}: ended with status {process.returncode}")
            await asyncio.sleep(_LOOK)
    finally:
        await connection.close()
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _start(uri: str, kind: str, batch: int, var: Path) -> asyncio.subprocess.Process:
    environ = dict(os.environ)
    if kind == "bare":
        words = ["-m", "scripts.bench.accounts.bare", uri, str(batch)]
    elif kind == "csv":
        words = ["-m", "collect", "--csv"]
        environ |= {"MAILROOM_DATABASE_URL": uri, "MAILROOM_SECRET_KEY": _KEY, "MAILROOM_BATCH_LIMIT": str(batch)}
    else:
        words = ["-m", "collect", "--config", str(_config(uri, batch, var))]
        environ["BENCH_ACCOUNTS_KEY"] = _KEY
    return await asyncio.create_subprocess_exec(
        sys.executable, *words, env=environ, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )


def _config(uri: str, batch: int, var: Path) -> Path:
    """A collect.yaml, which JSON is too."""
    file = var / "collect.yaml"
    config = {
        "environment": {"database": {"uri": uri}, "log": {"level": "warning"}},
        "batch": {"least": batch, "most": batch},
        "keys": [{"id": "bench", "environment": "BENCH_ACCOUNTS_KEY"}],
        "mail": {
            "sender": "accounts@example.com",
            "activate": "https://example.com/activate?token={token}",
            "recover": "https://example.com/recover?token={token}",
        },
    }
    file.write_text(json.dumps(config), encoding="utf-8")
    return file


async def _commit_to_queued(server: Server, options: argparse.Namespace) -> list[float]:
    """For each of single sign-ups, the seconds from its COMMIT's answer until its mail is in the queue."""
    async with server.cell(empty=True) as uri:
        await _prepare(uri, 1)
        process = await _start(uri, "queue", 10, options.var)
        connection = await database.connect(uri, "pillarbox bench")
        try:
            await _until_queued(connection, 1)
            times = []
            for number in range(2, options.sign_ups + 2):
                await database.fetch(connection, "bench_accounts_make", count=1)
                begun = perf_counter()
                await _until_queued(connection, number)
                times.append(perf_counter() - begun)
            return times
        finally:
            await connection.close()
            process.terminate()
            await process.wait()


async def _until_queued(connection: database.Connection, count: int) -> None:
    async for queued in _counts(connection):
        if queued >= count:
            return


async def _counts(connection: database.Connection) -> AsyncIterator[int]:
    while True:
        [row] = await database.fetch(connection, "bench_mail_queued")
        yield row.queued


if __name__ == "__main__":
    sys.exit(main())
