"""test_pg_upgrade_keeps_the_queue — PostgreSQL 15 becomes 18, what waits is delivered, no event comes twice

Owns: the proof that the queue, its history and the positions of webhooks survive pg_upgrade.
See: pg_upgrade(1); docs/how-to/operate/upgrade.md, "PostgreSQL itself"; sql/README.md, "Webhooks".
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from shared.postgres import migrate
from shared.postgres.embedded import embedded
from shared.postgres.embedded.account import choose_account
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.daemons.system import System
from tests.fixtures.queue.hooked import SECRET
from tests.fixtures.servers import owner
from tests.fixtures.servers.postgres import DEBIAN15, LEAVES, temporary_var
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.peers.web.hooks import Hooks

BEFORE, WAITING = 20, 10  # messages that 15 delivered, and that 18 finds in the queue
_ADMINISTRATOR: Final = "pillarbox"
_EVENTS: Final = ["accepted", "delivered"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of one version below `folder`, where its socket is too."""

    binaries: Path
    folder: Path
    name: str

    @property
    def uri(self) -> str:
        """The administrator's URI while it runs."""
        return f"postgresql:///postgres?host={self.folder}&user={_ADMINISTRATOR}"

    def create(self, *options: str) -> None:
        """Initialize it."""
        self.run(
            *("initdb", "-D", self.name, "-U", _ADMINISTRATOR, "-E", "UTF8", "--locale=C", "--auth=trust", *options)
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = f"-c unix_socket_directories={self.folder} -c listen_addresses="
        self.run("pg_ctl", "-D", self.name, "-l", f"{self.name}.log", "-o", settings, "-w", "start")

    def stop(self) -> None:
        """Stop it, after a checkpoint."""
        self.run("pg_ctl", "-D", self.name, "-m", "fast", "-w", "stop")

    def run(self, program: str, *words: str) -> None:
        """Run a program of this version in the folder, as an account that PostgreSQL accepts."""
        account = choose_account(self.folder)
        log = self.folder / f"{program}.log"
        with log.open("w") as said:
            ran = subprocess.run(
                [str(self.binaries / program), *words],
                cwd=self.folder,
                check=False,
                stdout=said,
                stderr=said,
                timeout=PATIENCE,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=() if account else None,
            )
        dumps = self.folder.glob("new/pg_upgrade_output.d/*/log/pg_upgrade_dump_*.log")
        assert ran.returncode == 0, "\n".join(each.read_text() for each in (log, *dumps))


@asynccontextmanager
async def daemons(cluster: Cluster, folder: Path) -> AsyncIterator[System]:
    """Daemons on the running cluster, for the block."""
    system = System(owner.as_owner(cluster.uri), folder)
    try:
        yield system
    finally:
        await system.close()
    assert system.faults() == []


def _forget_versions(cluster: Cluster) -> None:
    """Remove what 15.20 notes of its columns; 18.4, the embedded one, refuses it: unrecognized parameter pg_attver."""
    with psycopg.connect(cluster.uri, dbname=owner.DATABASE) as connection:
        connection.execute("UPDATE pg_attribute SET attoptions = NULL WHERE attoptions::text LIKE '%pg_attver%'")


@pytest.mark.slow
async def test_what_waited_is_delivered_and_no_event_comes_twice(
    books: Books, hooks: Callable[[], Awaitable[Hooks]], tmp_path: Path
) -> None:
    if not DEBIAN15.exists():
        pytest.skip("PostgreSQL 15 is missing (Debian 12: apt-get install postgresql-15)")
    taker = await hooks()
    (tmp_path / "secret").write_text(SECRET)
    endpoint = {"id": "app", "url": taker.url, "events": _EVENTS, "secrets": [f"file:{tmp_path}/secret"]}
    webhooks = {"endpoints": [{**endpoint, "private": True}]}

    def kinds() -> Counter[str]:
        return Counter(event["type"] for event in taker.taken)

    with temporary_var() as folder:
        if account := choose_account(Path("/nowhere")):
            os.chown(folder, account.uid, account.gid)
        old = Cluster(DEBIAN15, folder, "old")
        old.create()
        old.start()
        try:
            owner.hand_over(old.uri)
            migrate.migrate(owner.as_owner(old.uri), LEAVES)
            async with daemons(old, tmp_path) as system:
                smtpd = await system.smtpd()
                worker = await system.worker(books.sink.port, webhooks=webhooks)
                await system.until("SELECT count(*) = 1 FROM webhooks")
                await books.submit(smtpd, numbered(BEFORE))
                await books.until_arrived(BEFORE)
                await eventually(lambda: kinds() == dict.fromkeys(_EVENTS, BEFORE), "every event came")
                await worker.stop()
                await books.submit(smtpd, numbered(WAITING, first=BEFORE))
                assert await system.value("SELECT count(*) FROM queue") == WAITING
            _forget_versions(old)
        finally:
            old.stop()
        binaries = embedded._find_binaries()
        new = Cluster(binaries, folder, "new")
        new.create("--no-data-checksums")  # as the old one: the default of 18 is another
        new.run(
            *("pg_upgrade", "-b", str(DEBIAN15), "-B", str(binaries), "-d", "old", "-D", "new"),
            *("-U", _ADMINISTRATOR, "-s", str(folder)),
        )
        new.start()
        try:
            async with daemons(new, tmp_path) as system:
                assert await system.value("SELECT current_setting('server_version_num')::int / 10000") == 18
                await system.worker(books.sink.port, webhooks=webhooks)
                await books.until_arrived(BEFORE + WAITING)
                await system.until_finished()
                await eventually(lambda: kinds()["delivered"] >= BEFORE + WAITING, "every event came")
                assert await system.value("SELECT count(*) FROM archive WHERE result = 'success'") == BEFORE + WAITING
        finally:
            new.stop()
    assert kinds() == dict.fromkeys(_EVENTS, BEFORE + WAITING)
    assert len({event["id"] for event in taker.taken}) == len(taker.taken)
    assert books.account().clean
