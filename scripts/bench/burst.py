"""burst — `python -m scripts.bench.burst`: messages per second through the whole system, with Postfix's load tools

Owns: one measured run: smtp-source → smtpd → PostgreSQL → workers → smtp-sink, fsync and synchronous_commit on.
Guarantees: a figure is printed only if every message was accepted and archived as delivered, once; the last line is
    `accept_msgs_s=… flow_msgs_s=… messages=… size=… sessions=… workers=…`.
Raises: PillarboxError when a tool is missing or the ledger of the run does not agree.
See: smtp-source(1), smtp-sink(1). accept ends when smtp-source ends; flow ends when the last recipient is archived.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from time import monotonic

from scripts.bench.sink import sink
from scripts.bench.source import DOMAINS, submit
from scripts.commands import up
from scripts.config_files import load_both
from scripts.daemons import Daemons
from scripts.dev.peers import need_peer
from scripts.scratch_var import emptied
from shared.errors import PillarboxError
from shared.postgres import database

_SMTPD = """\
environment: {{database: {{uri: "embedded:"}}, var: {var}, log: {{level: warning}}}}
servers: [{{id: bench, hostname: bench.pillarbox.example, listeners: [{{port: 0}}]}}]
"""
_QUEUED = """\
environment: {{database: {{uri: "embedded:"}}, var: {var}, log: {{level: warning}}}}
workers:
  - {{id: queued-123, where: "metadata->>'_partid' IN ('1', '2', '3')"}}
  - {{id: queued-456, where: "metadata->>'_partid' IN ('4', '5', '6') OR metadata->>'_partid' IS NULL"}}
transports: [{{id: default, hostname: bench.pillarbox.example, connection: {{server: 127.0.0.1, port: {port}}}}}]
"""


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.burst", description="Messages per second, end to end."
    )
    parser.add_argument("--messages", type=int, default=5000, metavar="N", help="messages to send (default 5000)")
    parser.add_argument("--size", type=int, default=4096, metavar="OCTETS", help="size of a message (default 4096)")
    parser.add_argument("--sessions", type=int, default=20, metavar="N", help="concurrent SMTP sessions (default 20)")
    parser.add_argument("--reuse", action="store_true", help="send several messages over one connection")
    parser.add_argument(
        "--var",
        type=Path,
        default=Path("var/bench"),
        metavar="DIR",
        help="working directory, emptied first (default var/bench)",
    )
    try:
        return run(parser.parse_args(arguments))
    except PillarboxError as error:
        sys.stderr.write(f"bench: {error}\n")
        return error.exit_status


def run(options: argparse.Namespace) -> int:
    """One run; the last line printed holds the figures."""
    for name in ("smtp-source", "smtp-sink"):
        need_peer(name)
    with emptied(options.var):
        print(asyncio.run(_measure(options)))
    return 0


async def _measure(options: argparse.Namespace) -> str:
    var: Path = options.var
    async with sink() as port, Daemons() as supervisor:
        (var / "smtpd.yaml").write_text(_SMTPD.format(var=var))
        (var / "queued.yaml").write_text(_QUEUED.format(var=var, port=port))
        smtpd, queued = load_both(var)
        conninfo = up.prepare(smtpd)
        children = up.children(var, queued, logs=var)
        for child in children:
            await supervisor.start(child)
        began = monotonic()
        await asyncio.gather(*(_send(options, children[0].address[1], domain) for domain in DOMAINS))
        accepted = monotonic()
        await _delivered(conninfo, options.messages)
        finished = monotonic()
    accept, flow = (options.messages / (instant - began) for instant in (accepted, finished))
    setting = (
        f"messages={options.messages} size={options.size} sessions={options.sessions} workers={len(queued.workers)}"
    )
    return f"accept_msgs_s={accept:.0f} flow_msgs_s={flow:.0f} {setting}"


async def _send(options: argparse.Namespace, port: int, domain: str) -> None:
    """This domain's share of the messages."""
    share = options.messages // len(DOMAINS) + (options.messages % len(DOMAINS) if domain == DOMAINS[0] else 0)
    counts = ("-s", str(max(1, options.sessions // len(DOMAINS))), "-m", str(share), "-l", str(options.size))
    reuse = ("-d",) if options.reuse else ()
    await submit(port, domain, *reuse, *counts)


async def _delivered(conninfo: str, messages: int) -> None:
    """Return when `messages` recipients are archived as delivered; more of them, or other results, are an error."""
    connection = await database.connect(conninfo, "pillarbox bench")
    try:
        while True:
            counts = {row.result: row.recipients for row in await database.fetch(connection, "inspect_results")}
            if counts.keys() - {"success"} or counts.get("success", 0) > messages:
                raise PillarboxError(f"{messages} messages were sent, but the archive has {counts}")
            if counts.get("success") == messages:
                return
            await asyncio.sleep(0.05)
    finally:
        await connection.close()


if __name__ == "__main__":
    sys.exit(main())
