"""ours — httpd under measurement beside smtpd, both on the run's own embedded PostgreSQL

Owns: httpd.yaml, its process, and the principal that sends.
Guarantees: smtpd.yaml is one file for both, one process each, and all other settings are the defaults: fsync and
    synchronous_commit are on, each log is written to a file at the default level.
See: scripts/bench/smtpd/ours.py, which starts PostgreSQL and smtpd.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from operate import keys
from operate.queue.act import By
from operate.shapes.settings import ApiKeyMade
from scripts.bench.core.server import NAME
from scripts.bench.smtpd.cpu import spent
from scripts.bench.smtpd.ours import proportional, smtpd
from scripts.daemons import DaemonProcess, Daemons
from shared.config.httpd.load import load_httpd
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scripts.bench.smtpd.ours import Smtpd

_ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Both:
    """A running smtpd and a running httpd on one database; `key` is an API key."""

    smtpd: Smtpd
    httpd: DaemonProcess
    conninfo: str
    key: str

    @property
    def port(self) -> int:
        """The port that httpd listens on."""
        return self.httpd.address[1]

    def memory(self) -> int:
        """Octets of httpd's memory (proportional set size)."""
        return proportional(self.httpd.pid)

    def spent(self) -> dict[str, float]:
        """Seconds of processor time used so far, by program."""
        return {**self.smtpd.spent(), "httpd": spent(self.httpd.pid)}


@asynccontextmanager
async def both(var: Path) -> AsyncIterator[Both]:
    """A process of each on free ports for the block."""
    path = var / "httpd.yaml"
    environment = {"database": {"uri": "embedded:"}, "var": str(var)}
    written = {"environment": environment, "listen": "127.0.0.1:0", "mail": {"smtpd": "smtpd.yaml"}}
    path.write_text(json.dumps(written, indent=2))  # JSON is YAML
    arguments = ("-m", "httpd", "--config", str(path))
    child = DaemonProcess("httpd", arguments, var / "httpd.log", {"PYTHONPATH": str(_ROOT)})
    async with smtpd(var, "smtpd", {"processes": 1}) as beside, Daemons() as supervisor:
        if len(beside.processes()) > 1:
            raise PillarboxError(f"smtpd has {len(beside.processes())} processes; allowed: 1, as httpd has")
        uri = load_httpd(path).environment.database.uri
        conninfo = database.resolve(uri, var)
        await supervisor.start(child)
        yield Both(beside, child, conninfo, await _key(conninfo))


async def _key(conninfo: str) -> str:
    """A key of a principal that sends as anybody."""
    connection = await database.connect(conninfo, NAME)
    try:
        await database.fetch(connection, "bench_principal")
        made = await keys.add(connection, By(), "bench", scopes=["send"], expires=None, label=None)
        assert isinstance(made, ApiKeyMade)  # noqa: S101 - no preview was asked for
        return made.key
    finally:
        await connection.close()
