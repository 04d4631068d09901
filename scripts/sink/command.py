"""command — run an SMTP sink from the command line, for demos, benchmarks and by hand

Owns: the options of `pillarbox sink` and its verb `show`; also run as `python -m scripts.sink.command`.
Guarantees: prints the address it listens on before the first connection, and the count when stopped by
SIGINT or SIGTERM.
Addresses script what happens, as in `temperror@example.com`: see scripts/sink/behaviour.py.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from scripts.options import MOST, between, count
from scripts.sink import show
from scripts.sink.records import EXTENSIONS
from scripts.sink.server import Sink
from shared.errors import PillarboxError
from shared.how_many import how_many


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options, and `func` to run with them."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=between(0, 65535), default=2526, help="port, 0 for any free one (default: 2526)")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append one JSON line per message to FILE")
    parser.add_argument("--hostname", default="sink.example", help="name in the greeting")
    parser.add_argument(
        "--greeting", type=between(200, 599), default=220, metavar="CODE", help="code of the greeting (default: 220)"
    )
    parser.add_argument(
        "--size", type=between(0, MOST), default=0, metavar="OCTETS", help="largest message, 0 for any (default: 0)"
    )
    parser.add_argument(
        "--max-connections", type=count, default=1000, metavar="N", help="further ones get 421 (default: 1000)"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=sorted(EXTENSIONS),
        metavar="EXTENSION",
        help=f"do not offer this extension; may be repeated; one of {', '.join(sorted(EXTENSIONS))}",
    )
    parser.set_defaults(func=run)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `sink` to the commands of `pillarbox`."""
    parser = subparsers.add_parser(
        "sink", help="run an SMTP sink that records mail and fails on request; show its mail"
    )
    add_options(parser)
    show.add_verb(parser.add_subparsers(metavar="[VERB]"))


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped; the exit status."""
    asyncio.run(_serve(arguments))
    return 0


async def _serve(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    sink = Sink(
        arguments.host,
        arguments.port,
        log=arguments.log,
        hostname=arguments.hostname,
        greeting=arguments.greeting,
        size_limit=arguments.size,
        max_connections=arguments.max_connections,
        extensions=EXTENSIONS - set(arguments.without),
    )
    async with sink:
        print(f"sink: listening on {sink.host}:{sink.port}", flush=True)
        await stop.wait()
    print(
        f"sink: {how_many(len(sink.received), 'message')} over {how_many(sink.connections, 'connection')}", flush=True
    )
    for what in sorted(set(sink.violations)):
        print(f"sink: {what}: {how_many(sink.violations.count(what), 'time')}", flush=True)


def main(argv: list[str] | None = None) -> int:
    """`python -m scripts.sink.command`."""
    parser = argparse.ArgumentParser(prog="sink", description="An SMTP sink that records and fails on request.")
    add_options(parser)
    arguments = parser.parse_args(argv)
    try:
        return run(arguments)
    except PillarboxError as error:
        print(error, file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
