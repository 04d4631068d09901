"""ours — the whole system under measurement: smtpd, the workers, and the run's own PostgreSQL

Owns: the configuration, the daemons and the database of a run, and its ledger.
Guarantees: all settings are the defaults except addresses, ports and the next hop: two workers, fsync and
    synchronous_commit on, logs written to files at the default level. A figure counts only when every recipient is
    archived as delivered and every body is deleted. The bodies are deleted by the workers' own rounds of maintenance,
    with a grace of zero.
Raises: PillarboxError when the ledger does not agree, or the queue does not become empty in time.
See: scripts/bench/core/server.py, which fills a queue.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from queued import maintain
from scripts.bench.core.server import LEAVES, NAME, fill
from scripts.bench.smtpd.cpu import spent
from scripts.commands import up
from scripts.config_files import load_both
from scripts.daemons import DaemonProcess, Daemons
from shared.config.queued.settings import Maintenance
from shared.errors import PillarboxError
from shared.postgres import database
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from shared.postgres.database import Connection

_PATIENCE: Final = 600.0  # seconds until the queue must be empty
_LOOK: Final = 0.02  # seconds between two looks


@dataclass(slots=True)
class Ours:
    """The running daemons and the database behind them."""

    smtpd: DaemonProcess
    workers: list[DaemonProcess]
    connection: Connection
    postmaster: int

    @property
    def port(self) -> int:
        """The port of smtpd."""
        return self.smtpd.address[1]

    def spent(self) -> dict[str, float]:
        """Seconds of processor time used so far, by program."""
        workers = sum(spent(each.pid) for each in self.workers)
        return {"smtpd": spent(self.smtpd.pid), "queued": workers, "PostgreSQL": spent(self.postmaster)}

    async def settings(self) -> dict[str, str]:
        """PostgreSQL's version and settings."""
        [row] = await database.fetch(self.connection, "bench_settings")
        return dict(row._asdict())

    async def archived(self) -> int:
        """Recipients delivered so far; a different result is an error."""
        found = {row.result: row.recipients for row in await database.fetch(self.connection, "inspect_results")}
        if found.keys() - {"success"}:
            raise PillarboxError(f"pillarbox: the archive has results other than success: {found}")
        return int(found.get("success", 0))

    async def idle(self) -> None:
        """Return when every recipient has its result."""
        deadline = monotonic() + _PATIENCE
        while not (await database.fetch(self.connection, "bench_idle"))[0].idle:
            if monotonic() > deadline:
                raise PillarboxError(f"pillarbox: the queue is not empty after {_PATIENCE:.0f} seconds")
            await asyncio.sleep(_LOOK)

    async def sweep(self) -> None:
        """Delete all bodies, which no recipient needs any more, as a worker would."""
        maintainer = maintain.Maintainer(NAME, Maintenance(grace=timedelta(0)))
        deadline = monotonic() + _PATIENCE
        while not (await database.fetch(self.connection, "bench_swept"))[0].swept:
            if monotonic() > deadline:
                raise PillarboxError(f"pillarbox: bodies remain after {_PATIENCE:.0f} seconds")
            if not await maintainer.round_if_elected(self.connection):
                await asyncio.sleep(_LOOK)  # a worker is deleting

    async def queue(self, messages: int, size: int) -> None:
        """Queue messages for one recipient each in one transaction, and wake the workers."""
        async with self.connection.transaction():
            await fill(self.connection, messages, size)
        partids = [partid for those in LEAVES.values() for partid in those]
        await database.fetch(self.connection, "wakeup_notify", partids=partids)

    async def drain(self, messages: int, size: int) -> float:
        """Deliveries per second from a queue filled at once, one recipient each, including deletion of the bodies."""
        before = await self.archived()
        await self.queue(messages, size)
        began = monotonic()
        await self.idle()
        await self.sweep()
        rate = messages / (monotonic() - began)
        await self.agrees(before, messages)
        return rate

    async def agrees(self, before: int, recipients: int) -> None:
        """Raise if not every recipient is archived as delivered, once."""
        found = await self.archived() - before
        if found != recipients:
            raise PillarboxError(f"pillarbox: the ledger does not agree: {found} delivered, expected {recipients}")

    async def forget(self) -> None:
        """Vacuum and checkpoint, so that a cell's leftover work does not slow the next cell."""
        for name in ("bench_vacuum", "bench_checkpoint"):
            await database.fetch(self.connection, name)


@asynccontextmanager
async def running(var: Path, sink: int, transport: Mapping[str, Any], **sections: Any) -> AsyncIterator[Ours]:
    """The whole system for the block; all mail goes to port `sink`.

    `transport` adds keys to the transport, `sections` adds sections to queued.yaml.
    """
    environment = {"database": {"uri": "embedded:"}, "var": str(var)}
    server = {"id": "bench", "hostname": "bench.pillarbox.example", "listeners": [{"port": 0}]}
    hop = {"server": "127.0.0.1", "port": sink}
    default = {"id": "default", "hostname": "bench.pillarbox.example", "connection": hop, **transport}
    # JSON is YAML.
    (var / "smtpd.yaml").write_text(json.dumps({"environment": environment, "servers": [server]}, indent=2))
    queued = {"environment": environment, "transports": [default], **sections}
    (var / "queued.yaml").write_text(json.dumps(queued, indent=2))
    smtpd, config = load_both(var)
    conninfo = up.prepare(smtpd)
    connection = await database.connect(conninfo, NAME)
    try:
        async with Daemons() as supervisor:
            children = up.children(var, config, logs=var)
            for child in children:
                await supervisor.start(child)
            status = embedded.status(var)
            yield Ours(children[0], children[1:], connection, status.pid if status else 0)
    finally:
        await connection.close()
