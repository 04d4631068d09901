"""command — `pillarbox demo`: the whole system with real mail, and a ledger at the end

Owns: one run in a folder of its own: embedded PostgreSQL, smtpd, three workers that share the partitions, a sink.
Guarantees: exit status 0 only if everything that got 250 arrived once and unaltered, save for the trace header.
    Nothing outside its folder is touched; it listens on loopback only, on free ports.
Raises: PillarboxError for errors that a person can correct.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from queued.smtp.client import SmtpConnection
from queued.smtp.transaction import Timeouts, Transaction
from scripts.commands import up
from scripts.config_files import load_both
from scripts.daemons import DaemonProcess, Daemons
from scripts.demo import sample_mail
from scripts.demo.face import Face
from scripts.demo.ledger import Ledger
from scripts.options import MOST, between, count
from scripts.scratch_var import emptied
from scripts.sink.server import Sink
from scripts.up import api
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scripts.sink.records import Received

_SESSIONS = 8
_PATIENCE = 60.0  # seconds without any arrival before what is missing counts as lost

# The ledger compares octets: no field is removed, and no line is broken.
_SMTPD = """\
environment: {{database: {{uri: "embedded:"}}, var: {var}, log: {{level: warning}}}}
servers:
  - {{id: demo, hostname: demo.pillarbox.example, listeners: [{{port: 0}}], phases: {{data: {{dropheaders: []}}}}}}
"""
_QUEUED = """\
environment: {{database: {{uri: "embedded:"}}, var: {var}, log: {{level: warning}}}}
workers:
  - {{id: queued-12, where: "metadata->>'_partid' IN ('1', '2')"}}
  - {{id: queued-34, where: "metadata->>'_partid' IN ('3', '4')"}}
  - {{id: queued-56, where: "metadata->>'_partid' IN ('5', '6') OR metadata->>'_partid' IS NULL"}}
transports:
  - id: default
    hostname: demo.pillarbox.example
    connection: {{server: 127.0.0.1, port: {port}}}
    maxlinelength: 2147483647
bounces: {{hostname: demo.pillarbox.example}}
"""
_HTTPD = """\
environment: {{database: {{uri: "embedded:"}}, var: {var}, log: {{level: warning}}}}
listen: 127.0.0.1:0
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `demo` to the command line."""
    parser = subparsers.add_parser("demo", help="send real mail through the whole system and account for it")
    parser.add_argument(
        "--messages", type=count, default=1000, metavar="N", help="how many messages to generate (1000)"
    )
    parser.add_argument("--mail", type=Path, metavar="DIR", help="submit the .eml files below DIR instead")
    parser.add_argument("--seed", type=between(0, MOST), default=1, metavar="N", help="makes the same mail again (1)")
    parser.add_argument("--var", type=Path, default=Path("var/demo"), metavar="DIR", help="emptied first (var/demo)")
    parser.add_argument(
        "--stay", action="store_true", help="let it run until Ctrl-C before the ledger, with a link to the console"
    )
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """One demonstration; the last line printed is the ledger's."""
    made_up = sample_mail.made_up(options.messages, options.seed)
    samples = list(sample_mail.from_folder(options.mail, options.seed) if options.mail else made_up)
    var = options.var
    with emptied(var):
        ledger = asyncio.run(_demonstrate(var, samples, stay=options.stay))
    account = ledger.account()
    if account.ended:
        print(
            f"{account.ended} of them had a header that no empty line ends, and arrived with one "
            "(phases.data.endofheader in smtpd.yaml)"
        )
    print(account)
    return 0 if account.clean else 1


async def _demonstrate(var: Path, samples: list[sample_mail.Sample], *, stay: bool) -> Ledger:
    ledger = Ledger()

    def arrived(record: Received) -> None:
        for recipient in record.recipients:
            ledger.arrive(record.sender, recipient, record.content or b"")
        # The digest is in the ledger; the octets are of no more use.
        sink.received.clear()

    async with Sink(keep_content=True, callback=arrived) as sink, Daemons() as supervisor:
        (var / "smtpd.yaml").write_text(_SMTPD.format(var=var))
        (var / "queued.yaml").write_text(_QUEUED.format(var=var, port=sink.port))
        face = Face(ledger, len(samples))
        face.say("starting PostgreSQL")
        smtpd, queued = load_both(var)
        if stay:
            (var / "httpd.yaml").write_text(_HTTPD.format(var=var))
            if why := api.why_not(var, smtpd):
                raise PillarboxError(f"--stay needs httpd: {why}")
        conninfo = up.prepare(smtpd)
        children = up.children(var, queued, logs=var, with_api=stay)
        for child in children:
            face.say(f"starting {child.name}")
            await supervisor.start(child)
        if stay:
            for line in await api.console(var, children[1].address, conninfo, link=True):
                face.say(line)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(face.watch(await database.connect(conninfo, "pillarbox demo")))
            await _submit(children[0], samples, ledger, face)
            await _arrive(ledger)
            watching.cancel()
        await face.end(conninfo)
        if stay:
            face.say("it runs until Ctrl-C")
            await _interrupted()
    return ledger


async def _interrupted() -> None:
    """Until Ctrl-C, or SIGTERM."""
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    await asked.wait()


async def _submit(smtpd: DaemonProcess, samples: list[sample_mail.Sample], ledger: Ledger, face: Face) -> None:
    """All messages over a few SMTP sessions at once."""
    waiting = iter(samples)
    began = monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(_SESSIONS):
            group.create_task(_session(smtpd, waiting, ledger, face))
    face.submitted_in = monotonic() - began


async def _session(smtpd: DaemonProcess, waiting: Iterator[sample_mail.Sample], ledger: Ledger, face: Face) -> None:
    host, port = smtpd.address
    connection = await SmtpConnection.open(host, port, hostname="client.pillarbox.example", timeouts=Timeouts())
    for sample in waiting:
        transaction = Transaction(sample.sender, sample.recipients, sample.content, smtputf8=sample.smtputf8)
        result = await connection.send(transaction)
        for recipient, reply in zip(sample.recipients, result.recipients, strict=True):
            if reply and reply.is_positive:
                ledger.accept(sample.sender, recipient, sample.content)
            else:
                face.refused(sample.sender, recipient, reply.text if reply else str(result.fault))
        face.submitted += 1
        if not connection.usable:
            connection = await SmtpConnection.open(host, port, hostname="client.pillarbox.example", timeouts=Timeouts())
    await connection.close()


async def _arrive(ledger: Ledger) -> None:
    """Until all that was accepted has arrived, or nothing has for too long."""
    seen, since = -1, monotonic()
    while ledger.outstanding and monotonic() - since < _PATIENCE:
        if ledger.arrived.total() != seen:
            seen, since = ledger.arrived.total(), monotonic()
        await asyncio.sleep(0.05)
