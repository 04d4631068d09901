"""up — `pillarbox up`: the whole system in the foreground, until Ctrl-C; SIGHUP reloads all of it

Owns: the order database → schema → smtpd → workers, and the reverse when stopping.
Guarantees: both configuration files are read whole before anything starts, and before anything reloads: both are used
    or neither. A daemon that dies is started again. The embedded PostgreSQL is stopped at the end if, and only if, this
    command started it.
Raises: PillarboxError for errors that an operator can correct.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

from scripts.daemons import DaemonProcess, Daemons
from scripts.transports import check_policy
from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from shared.errors import ConfigError
from shared.observe import events
from shared.postgres import database, migrate
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig
from scripts.options import add_config


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `up` to the command line."""
    parser = subparsers.add_parser("up", help="run smtpd and every worker until Ctrl-C")
    add_config(parser)
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; reload at SIGHUP."""
    smtpd, queued = load_both(options.config)
    check_policy(options.config, smtpd, queued)
    events.setup(smtpd.environment.log.level)
    var = smtpd.environment.var
    started = database.resolve_running(smtpd.environment.database.uri, var) is None
    try:
        prepare(smtpd)
        asyncio.run(_serve(options.config, queued))
    finally:
        if started:
            embedded.stop(var)
    return 0


def load_both(folder: Path) -> tuple[SmtpdConfig, QueuedConfig]:
    """Both files, which must speak of the same database."""
    smtpd, queued = load_smtpd(folder / "smtpd.yaml"), load_queued(folder / "queued.yaml")
    ours, theirs = smtpd.environment, queued.environment
    if (ours.database.uri, ours.var) != (theirs.database.uri, theirs.var):
        raise ConfigError(f"{folder}: smtpd.yaml and queued.yaml name different databases; both must name the same")
    return smtpd, queued


def prepare(smtpd: SmtpdConfig) -> str:
    """Start the database if it is ours, bring its schema up to date, and return its conninfo."""
    settings = smtpd.environment.database
    conninfo = database.resolve(settings.uri, smtpd.environment.var)
    migrate.migrate(conninfo, settings.partitions.leaves, settings.partitions.count, tell=tell_waiting)
    return conninfo


def tell_waiting(line: str) -> None:
    """Say on standard error what a migration waits for."""
    sys.stderr.write(f"pillarbox: {line}\n")


def children(folder: Path, queued: QueuedConfig, logs: Path | None = None) -> list[DaemonProcess]:
    """The daemons: smtpd and every worker of queued.yaml."""

    def child(name: str, *arguments: str) -> DaemonProcess:
        return DaemonProcess(name, ("-m", *arguments), logs / f"{name}.log" if logs else None)

    return [
        child("smtpd", "smtpd", "--config", str(folder / "smtpd.yaml")),
        *(
            child(worker.id, "queued", "--config", str(folder / "queued.yaml"), "--worker", worker.id)
            for worker in queued.workers
        ),
    ]


async def _serve(folder: Path, queued: QueuedConfig) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a daemon that starts now reads the file as it is
    async with Daemons() as supervisor:
        for child in children(folder, queued):
            await supervisor.start(child)
            print(f"{child.name}: {child.status}")
        loop.add_signal_handler(signal.SIGHUP, _reload, folder, queued, supervisor)
        await asked.wait()


def _reload(folder: Path, queued: QueuedConfig, supervisor: Daemons) -> None:
    """Have every daemon read its file again; each logs itself which changes it can use."""
    try:
        smtpd, wanted = load_both(folder)
        check_policy(folder, smtpd, wanted)
    except ConfigError as error:
        events.emit("daemon.reload_refused", error=error)
        return
    if [worker.id for worker in wanted.workers] != [worker.id for worker in queued.workers]:
        events.emit("daemon.reload_ignored", keys="workers: which of them run")
    supervisor.reload()
