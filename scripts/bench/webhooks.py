"""webhooks — `python -m scripts.bench.webhooks`: events that one endpoint takes in a second

Owns: a database with this many delivered recipients, a receiver on loopback in a process of its own, and the endpoint
    that gets an event for each.
Guarantees: the events are read from history, signed and posted by the code of a worker; history was written in
    transactions of 100 results, as workers write it. The receiver answers 200 to all of it and counts the events; the
    run fails if one is missing or came twice. Secrets, order and position are as in any endpoint.
See: queued/webhooks/endpoint.py; sql/README.md, "Webhooks".
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import re
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.webhooks.endpoint import Endpoint, Target
from queued.webhooks.post import Post
from queued.webhooks.signature import new_secret
from scripts.bench import run
from scripts.bench.core.server import LEAVES, PARTITIONS
from scripts.bench.core.server import running as running_server
from shared import event_loop
from shared.errors import PillarboxError
from shared.postgres import database, migrate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

BATCH: Final = 200  # events in a request, by default
_TOGETHER: Final = 100  # results in a transaction
_NAME: Final = "pillarbox bench"
_ID: Final = re.compile(rb'"id" ?: ?"(evt_[0-9a-f]{32}_[^"]*)"')
_progress = partial(run.progress, "bench-webhooks")


class Figures(NamedTuple):
    """What one endpoint took: events in a second, and the microseconds of the worker's processor for each."""

    rate: float
    cost: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.webhooks", description="Measure webhooks.")
    parser.add_argument("--events", type=int, default=100_000, metavar="N", help="events in batches (default 100000)")
    parser.add_argument("--single", type=int, default=5_000, metavar="N", help="events one by one (default 5000)")
    parser.add_argument("--batch", type=int, default=BATCH, metavar="N", help=f"events in a request (default {BATCH})")
    parser.add_argument("--database", metavar="URI", help="an empty database (default: an embedded server under --var)")
    parser.add_argument(
        "--var", type=Path, default=Path("var/bench-webhooks"), metavar="DIR", help="working directory, emptied first"
    )
    options = parser.parse_args(arguments)
    try:
        with ExitStack() as stack:
            uri = options.database or stack.enter_context(running_server(options.var)).place.uri()
            migrate.migrate(uri, LEAVES, PARTITIONS)
            batched = event_loop.run(measure(uri, "batched", options.events, options.batch))
            single = event_loop.run(measure(uri, "single", options.single, 1))
    except PillarboxError as error:
        _progress(str(error))
        return error.exit_status
    print(
        f"webhook_events_s={batched.rate:.0f} webhook_cpu_us={batched.cost:.0f} "
        f"webhook_single_events_s={single.rate:.0f} webhook_single_cpu_us={single.cost:.0f}"
    )
    return 0


async def measure(uri: str, name: str, wanted: int, batch: int) -> Figures:
    """What an endpoint of this name took, of history that is written for it; batch: events in a request."""
    ours, theirs = multiprocessing.Pipe()
    receiver = multiprocessing.get_context("spawn").Process(target=_receive, args=(theirs,), daemon=True)
    receiver.start()
    target = Target(name, f"http://127.0.0.1:{ours.recv()}/", ("delivered",), "", (new_secret(),), True, batch)
    pool = await database.open_pool(uri, _NAME, 2)
    endpoint = Endpoint(pool, target, Post(target.url, private=True, limit=30))
    try:
        async with pool.connection() as connection:
            await database.fetch(
                connection,
                "bench_webhook",
                **target._asdict() | {"kinds": ["delivered"], "secrets": list(target.secrets)},
            )
            for begin in range(0, wanted, _TOGETHER):
                await database.fetch(connection, "bench_webhook_rows", begin=begin, rows=min(_TOGETHER, wanted - begin))
        _progress(f"{wanted} events, at most {batch} in a request")
        began, used = perf_counter(), process_time()
        while await endpoint.step() == 0:
            pass
        took, used = perf_counter() - began, process_time() - used
    finally:
        await endpoint.close()
        await pool.close()
        ours.send(None)
        came, once = ours.recv()
        receiver.join()
    if (came, once) != (wanted, wanted):
        raise PillarboxError(f"{came} events came, {once} of them different ones, of {wanted}")
    return Figures(wanted / took, used / wanted * 1e6)


def _receive(channel: Connection) -> None:
    """Take requests on loopback, say the port at first, and at last how many events came, and how many once."""
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                [length] = re.findall(rb"(?i)content-length: *(\d+)", head)
                seen.extend(_ID.findall(await reader.readexactly(int(length))))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=1 << 20)
        channel.send(server.sockets[0].getsockname()[1])
        await asyncio.to_thread(channel.recv)
        channel.send((len(seen), len(set(seen))))

    event_loop.run(serve())


if __name__ == "__main__":
    sys.exit(main())
