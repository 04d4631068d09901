"""ours — smtpd under measurement, with the run's own embedded PostgreSQL

Owns: the configuration, the server and the processes of a run, and its ledger.
Guarantees: all settings are the defaults: fsync and synchronous_commit are on, the log is written to a file at the
    default level. Every message that a client was promised is counted in the tables.
Raises: PillarboxError when the ledger does not agree.
See: scripts/bench/core/server.py for the server.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scripts.bench.core.server import NAME, agree
from scripts.bench.smtpd.cpu import below, spent
from scripts.commands import up
from scripts.daemons import DaemonProcess, Daemons
from shared.config.smtpd.load import load_smtpd
from shared.postgres import database
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from shared.postgres.database import Connection

_ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(slots=True)
class Smtpd:
    """A running smtpd and the database behind it."""

    child: DaemonProcess
    connection: Connection
    postmaster: int

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.child.address[1]

    def processes(self) -> list[int]:
        """The supervisor and its descendants."""
        return below(self.child.pid)

    def memory(self) -> int:
        """Octets of memory of these processes (proportional set size)."""
        return sum(proportional(pid) for pid in self.processes())

    def spent(self) -> dict[str, float]:
        """Seconds of processor time used so far, by program."""
        return {"smtpd": spent(self.child.pid), "PostgreSQL": spent(self.postmaster)}

    async def settings(self) -> dict[str, str]:
        """PostgreSQL's version and settings."""
        [row] = await database.fetch(self.connection, "bench_settings")
        return dict(row._asdict())

    async def agrees(self, messages: int, size: int) -> None:
        """Raise if not every message of a burst is stored."""
        [row] = await database.fetch(self.connection, "bench_accepted", size=size)
        agree("smtpd", row, {"messages": messages, "recipients": messages})

    async def forget(self) -> None:
        """Empty the tables, vacuum and checkpoint, so that a cell's leftover work does not slow the next cell."""
        for name in ("bench_empty", "bench_empty_messages", "bench_vacuum", "bench_checkpoint"):
            await database.fetch(self.connection, name)


@asynccontextmanager
async def smtpd(var: Path, name: str, changes: Mapping[str, Any]) -> AsyncIterator[Smtpd]:
    """An smtpd on a free port for the block; `changes` adds sections to smtpd.yaml."""
    path = var / f"{name}.yaml"
    server = {"id": "bench", "hostname": "bench.pillarbox.example", "listeners": [{"port": 0}]}
    environment = {"database": {"uri": "embedded:"}, "var": str(var)}
    written = {"environment": environment, "servers": [server], **changes}
    path.write_text(json.dumps(written, indent=2))  # JSON is YAML
    conninfo = up.prepare(load_smtpd(path))
    arguments = ("-m", "smtpd", "--config", str(path))
    child = DaemonProcess(name, arguments, var / f"{name}.log", {"PYTHONPATH": str(_ROOT)})
    connection = await database.connect(conninfo, NAME)
    try:
        async with Daemons() as supervisor:
            await supervisor.start(child)
            running = embedded.status(var)
            yield Smtpd(child, connection, running.pid if running else 0)
    finally:
        await connection.close()


def proportional(pid: int) -> int:
    """The Pss of a process in octets; 0 if it has ended (proc_pid_smaps(5))."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
