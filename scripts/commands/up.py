"""up — `pillarbox up`: the whole system in the foreground, until Ctrl-C; SIGHUP reloads all of it

Owns: the order database → schema → smtpd → httpd → workers, and the reverse when stopping; what is said at the end of
    the start: where to submit, and whether mail can be delivered at all.
Guarantees: all configuration files are read whole before anything starts, and before anything reloads: all are used
    or none. One `up` for each `var`. A daemon that dies is started again, and so is the embedded PostgreSQL, which
    is stopped at the end if, and only if, this command started it. A sink runs only with --sink, and only while no
    next hop is configured.
Raises: PillarboxError for errors that an operator can correct.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from operate.transports import check_policy
from scripts.config_files import load_both, load_collector
from scripts.daemons import DaemonProcess, Daemons
from scripts.options import add_config
from scripts.up import api, sink
from scripts.up.keep_postgres import keep_up
from scripts.up.only_one import only_one
from scripts.up.unserved import unserved
from shared.config.queued.next_hop import without_next_hop
from shared.config.smtpd.quarantine import reviewers
from shared.errors import ConfigError
from shared.observe import events
from shared.postgres import database, migrate
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `up` to the command line."""
    parser = subparsers.add_parser("up", help="run smtpd, httpd and every worker until Ctrl-C")
    parser.add_argument(
        "--sink",
        action="store_true",
        help="if queued.yaml names no next hop, deliver to a sink whose mail `pillarbox sink show` lists",
    )
    add_config(parser)
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; reload at SIGHUP."""
    smtpd, queued = load_both(options.config)
    check_policy(options.config, smtpd, queued)
    without_api = api.why_not(options.config, smtpd)
    load_collector(options.config, smtpd)
    events.setup(smtpd.environment.log.level)
    var = smtpd.environment.var
    with only_one(var):
        started = database.resolve_running(smtpd.environment.database.uri, var) is None
        try:
            conninfo = prepare(smtpd)
            asyncio.run(_serve(options, smtpd, queued, conninfo, without_api))
            if not started and database.is_embedded(smtpd.environment.database.uri):
                _say(f"PostgreSQL ran before and goes on under {var}; `pillarbox database stop` ends it")
        finally:
            if started:
                embedded.stop(var)
    return 0


def prepare(smtpd: SmtpdConfig) -> str:
    """Start the database if it is ours, bring its schema up to date, and return its conninfo."""
    settings = smtpd.environment.database
    conninfo = database.resolve(settings.uri, smtpd.environment.var)
    migrate.migrate(
        conninfo,
        settings.partitions.leaves,
        settings.partitions.count,
        reviewers=reviewers(smtpd.quarantines),
        keepsubject=smtpd.spool.keepsubject,
        tell=tell_waiting,
    )
    return conninfo


def tell_waiting(line: str) -> None:
    """Say on standard error what a migration waits for."""
    sys.stderr.write(f"pillarbox: {line}\n")


def children(
    folder: Path,
    queued: QueuedConfig,
    logs: Path | None = None,
    next_hop: str | None = None,
    *,
    with_api: bool = False,
    collects: bool = False,
) -> list[DaemonProcess]:
    """The daemons: smtpd, httpd if that is wanted, every worker of queued.yaml, and the collector if it is enabled.

    next_hop: HOST:PORT for transports that name none.
    """

    def child(name: str, *arguments: str) -> DaemonProcess:
        return DaemonProcess(name, ("-m", *arguments), logs / f"{name}.log" if logs else None)

    place = ("--next-hop", next_hop) if next_hop else ()
    return [
        child("smtpd", "smtpd", "--config", str(folder / "smtpd.yaml")),
        *([child("httpd", "httpd", "--config", str(folder / "httpd.yaml"))] if with_api else []),
        *(
            child(worker.id, "queued", "--config", str(folder / "queued.yaml"), "--worker", worker.id, *place)
            for worker in queued.workers
        ),
        *([child("collect", "collect", "--config", str(folder / "collect.yaml"))] if collects else []),
    ]


async def _serve(
    options: argparse.Namespace, smtpd: SmtpdConfig, queued: QueuedConfig, conninfo: str, without_api: str | None
) -> None:
    asked, changed = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    loop.add_signal_handler(signal.SIGHUP, changed.set)  # some daemons may have read the file before it was changed
    async with AsyncExitStack() as stack:
        wanted, warnings = await _examine(options, smtpd, queued, conninfo)
        next_hop = None
        if wanted:
            next_hop = await stack.enter_async_context(sink.running(smtpd.environment.var))
        else:
            sink.end(smtpd.environment.var)
        supervisor = await stack.enter_async_context(Daemons())
        collects = load_collector(options.config, smtpd) is not None
        daemons = children(options.config, queued, next_hop=next_hop, with_api=without_api is None, collects=collects)
        for child in daemons:
            await supervisor.start(child)
            _say(f"{child.name}: {child.status}")
        loop.add_signal_handler(signal.SIGHUP, _reload, options.config, queued, supervisor, next_hop)
        if changed.is_set():
            _reload(options.config, queued, supervisor, next_hop)
        if without_api:
            _say(f"httpd: not started: {without_api}")
        for warning in warnings:
            _warn(warning)
        _say(f"submit to {_place(daemons[0].status)}, look with pillarbox queue list")
        if without_api is None:
            for line in await api.console(options.config, daemons[1].address, conninfo, link=sys.stdout.isatty()):
                _say(line)
            for line in api.first_steps(daemons[1].address):
                _say(line)
        await _until(asked, smtpd)


def _place(status: str) -> str:
    """Where to submit, by what smtpd says of itself; a client cannot use the address that stands for every one."""
    return re.sub(r"(?<![\d.])(?:0\.0\.0\.0|\[::\]):(\d+)", r"port \1 of this host", status.removeprefix("listening "))


async def _until(asked: asyncio.Event, smtpd: SmtpdConfig) -> None:
    """Until a signal comes; meanwhile a server of our own is kept running. DatabaseUnavailable when it cannot be."""
    environment = smtpd.environment
    tasks: set[asyncio.Task[object]] = {asyncio.create_task(asked.wait())}
    if database.is_embedded(environment.database.uri):
        tasks.add(asyncio.create_task(keep_up(environment.var)))
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _examine(
    options: argparse.Namespace, smtpd: SmtpdConfig, queued: QueuedConfig, conninfo: str
) -> tuple[bool, list[str]]:
    """Whether a sink is to be the next hop, and what to warn of."""
    var = smtpd.environment.var
    transports = without_next_hop(queued)
    connection = await database.connect(conninfo, "pillarbox up")
    try:
        warnings = await unserved(connection, smtpd, queued)
        refused = await sink.why_not(connection, smtpd, var) if transports and options.sink else None
    finally:
        await connection.close()
    if transports:
        warnings.append(sink.warning(transports, asked=options.sink, refused=refused))
    return bool(transports) and options.sink and refused is None, warnings


def _reload(folder: Path, queued: QueuedConfig, supervisor: Daemons, next_hop: str | None) -> None:
    """Have every daemon read its file again; each logs itself which changes it can use."""
    try:
        smtpd, wanted = load_both(folder)
        check_policy(folder, smtpd, wanted)
        api.why_not(folder, smtpd)
        collects = load_collector(folder, smtpd) is not None
    except ConfigError as error:
        events.emit("daemon.reload_refused", error=error)
        return
    missing = without_next_hop(wanted)
    if missing and next_hop and (why := sink.from_elsewhere(smtpd)):
        events.emit("daemon.reload_refused", error=f"mail goes to a sink, and {why}")
        return
    if not missing:
        sink.end(smtpd.environment.var)
    if missing and next_hop is None:
        _warn(sink.warning(missing, asked=False, refused=None))
    if [worker.id for worker in wanted.workers] != [worker.id for worker in queued.workers]:
        events.emit("daemon.reload_ignored", keys="workers: which of them run")
    if collects != any(child.name == "collect" for child in supervisor.children):
        events.emit("daemon.reload_ignored", keys="enabled of collect.yaml")
    supervisor.reload()


def _say(line: str) -> None:
    """Print a line; the system starts and runs also where nothing can be written, as on a full disk."""
    with suppress(OSError):
        print(line, flush=True)


def _warn(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(f"pillarbox: WARNING: {text}\n")
