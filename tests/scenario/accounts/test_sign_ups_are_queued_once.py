"""test_sign_ups_are_queued_once — sign-ups are queued once each, while collectors and PostgreSQL are killed throughout

Owns: the crash table of sql/accounts/README.md under load, on the test's own server. PILLARBOX_TEST_SIGNUPS asks for
    more of them than the ordinary number.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
import yaml

from shared.postgres import account_schema, migrate
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.servers.killable import Killable
from tests.fixtures.servers.postgres import LEAVES, temporary_var
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

_SIGN_UPS: Final = int(os.environ.get("PILLARBOX_TEST_SIGNUPS", "500"))
_SESSIONS: Final = 4
_OF_A_SERVER_AWAY: Final = (psycopg.OperationalError, psycopg.InterfaceError)


class World:
    """The server, its collectors, and the accounts whose COMMIT was answered."""

    def __init__(self, server: Killable, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.committed: set[str] = set()
        self.collectors: dict[int, asyncio.subprocess.Process] = {}
        self.killed = {"collector": 0, "PostgreSQL": 0}

    async def collect(self, number: int) -> None:
        """Start a collector."""
        with (self.folder / f"log{number}").open("ab") as log:
            self.collectors[number] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "collect", "--config", str(self.folder / "collect.yaml")), cwd=ROOT, stderr=log
            )

    async def sign_up(self, names: list[str]) -> None:
        """Insert accounts until each is committed; a COMMIT whose answer was lost may have been one."""
        connection: psycopg.AsyncConnection[Any] | None = None
        while names:
            try:
                if connection is None or connection.closed:
                    connection = await psycopg.AsyncConnection.connect(self.server.uri, autocommit=True)
                await connection.execute(
                    """INSERT INTO accounts.accounts (email, login) VALUES (%(name)s || '@example.com', %(name)s)
                       ON CONFLICT (login) DO NOTHING""",
                    {"name": names[-1]},
                )
                self.committed.add(names.pop())
            except _OF_A_SERVER_AWAY:
                await asyncio.sleep(0.05)  # the server is away: as an application does
        if connection is not None:
            await connection.close()

    def count(self, statement: str) -> int:
        """A number from the database; -1 while the server is away."""
        with suppress(*_OF_A_SERVER_AWAY), psycopg.connect(self.server.uri, autocommit=True) as connection:
            row = connection.execute(statement.encode()).fetchone()
            return int(row[0]) if row else -1
        return -1

    async def kill_throughout(self, chosen: random.Random) -> None:
        """Kill a collector each time that some more mail was queued, and at times the server."""
        portion = _SIGN_UPS // 8
        for turn in range(1, 7):
            await self.until_queued(turn * portion)
            if turn % 3 == 0:
                await self.until_started()  # one that finds no server at its start ends, as it should
                self.server.kill()
                self.killed["PostgreSQL"] += 1
                await asyncio.to_thread(self.server.start)
            number = chosen.randrange(len(self.collectors))
            self.collectors[number].send_signal(signal.SIGKILL)
            await self.collectors[number].wait()
            self.killed["collector"] += 1
            await self.collect(number)

    async def until_started(self) -> None:
        """Wait until each collector that runs stops when it is asked to: until then SIGTERM kills it."""
        for number, process in self.collectors.items():
            await eventually(partial(self.started, number, process.pid), f"collector {number} has started")

    def started(self, number: int, pid: int) -> bool:
        """Whether the log of a collector says so."""
        log = (self.folder / f"log{number}").read_text(encoding="utf-8")
        return any("daemon.started" in line and f"pid={pid} " in f"{line} " for line in log.splitlines())

    async def until_queued(self, count: int) -> None:
        """Wait until so much mail is queued."""
        await eventually(lambda: self.queued() >= count, f"{count} are queued", limit=120)

    def queued(self) -> int:
        """How many messages are queued."""
        return self.count("SELECT count(*) FROM pillarbox.queue")


@pytest.mark.slow
async def test_each_sign_up_is_queued_exactly_once_whatever_is_killed(tmp_path: Path) -> None:
    with temporary_var() as var:
        server = Killable(var)
        migrate.migrate(server.uri, LEAVES)
        account_schema.install(server.uri, "accounts")
        (tmp_path / "key").write_text("cafebabe" * 8)
        (tmp_path / "key").chmod(0o600)
        config = {
            "environment": {"database": {"uri": server.uri}, "var": str(tmp_path / "var")},
            "accounts": {"schema": "accounts"},
            "batch": {"least": 5, "most": 20},
            "poll": "500ms",
            "keys": [{"id": "k", "file": str(tmp_path / "key")}],
            "mail": {
                "sender": "accounts@example.com",
                "activate": "https://example.com/activate?token={token}",
                "recover": "https://example.com/recover?token={token}",
            },
        }
        (tmp_path / "collect.yaml").write_text(yaml.safe_dump(config))
        world = World(server, tmp_path)
        for number in range(2):
            await world.collect(number)
        try:
            shares = [[f"user{number}" for number in range(share, _SIGN_UPS, _SESSIONS)] for share in range(_SESSIONS)]
            await asyncio.gather(*map(world.sign_up, shares), world.kill_throughout(random.Random(20)))
            await world.until_queued(_SIGN_UPS)
            await world.until_started()
        finally:
            for process in world.collectors.values():
                with suppress(ProcessLookupError):
                    process.terminate()
            statuses = [await process.wait() for process in world.collectors.values()]
        assert statuses == [0, 0]
        assert world.killed == {"collector": 6, "PostgreSQL": 2}
        assert len(world.committed) == _SIGN_UPS
        assert world.queued() == _SIGN_UPS, "none twice"
        assert world.count("SELECT count(DISTINCT recipientlocalpart) FROM pillarbox.queue") == _SIGN_UPS, "none lost"
        assert world.count("SELECT count(*) FROM accounts.tokens WHERE collected_at IS NULL") == 0
