"""disk — the disk under PostgreSQL fills up with mail, and is given room again

Owns: `full_data`, where tables cannot grow, and `full_log`, where the write-ahead log cannot, and PostgreSQL panics.
Called by: tests/chaos/test_disk.py.
Guarantees: it is filled by mail that smtpd accepts, until it refuses. Daemons are never started again; PostgreSQL is,
    as a service manager does it, only where it gave up by itself.
See: tests/fixtures/small_disk.py; docs/explanation/durability.md, "When the disk is full".
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from shared import migrate
from tests.fixtures.flow import flowing
from tests.fixtures.postgres import LEAVES
from tests.fixtures.small_disk import small_disk
from tests.fixtures.system import System
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.accounts import Figures
    from tests.fixtures.small_disk import Part, SmallDisk

_ENOUGH = 60  # recipients before, while and after it is full
_SEGMENT = 16  # megabytes that the write-ahead log grows by


@dataclass(frozen=True, slots=True)
class Outcome:
    """figures: of the run. replies: codes of what was refused. panics: of PostgreSQL; gave_up: whether it then ended.

    seconds: from the moment there was room, and a server, until mail flowed. bound: duplicates there may be.
    """

    figures: Figures
    replies: frozenset[str]
    panics: int
    gave_up: bool
    seconds: float
    bound: int

    def __str__(self) -> str:
        return (
            f"{self.figures} bound={self.bound} replies={','.join(sorted(self.replies))} panics={self.panics} "
            f"gave_up={self.gave_up} recovered={self.seconds:.1f}s"
        )


async def full_data(folder: Path) -> Outcome:
    """Tables cannot grow; the log can."""
    return await _full(folder, "data", 8)


async def full_log(folder: Path) -> Outcome:
    """The log cannot grow by a second segment."""
    return await _full(folder, "wal", _SEGMENT + _SEGMENT // 2)


async def _full(folder: Path, part: Part, megabytes: int) -> Outcome:
    with small_disk(part) as disk:
        migrate.migrate(disk.uri, LEAVES)
        async with flowing(System(disk.uri, folder)) as flow:
            system = flow.system
            smtpd, worker = await flow.smtpd(), await system.worker(flow.sink.port)
            pids = (smtpd.pid, worker.pid)
            flow.send_to([smtpd])
            await flow.more_arrived(_ENOUGH)
            disk.leave(megabytes)
            await flow.fill(smtpd)
            await flow.refused(_ENOUGH)
            if part == "wal":
                await eventually(lambda: "PANIC:" in disk.log(), "PostgreSQL panics", limit=60)
            disk.make_room()
            gave_up = await _served(disk)
            seconds = await flow.recovered(monotonic(), limit=120)
            await flow.more_arrived(_ENOUGH)
            figures = await flow.finish()
            assert (smtpd.pid, worker.pid) == pids
            expired = await system.value("SELECT count(*) FROM attempts WHERE outcome = 'lease_expired'")
            panics = disk.log().count("PANIC:")
            return Outcome(figures, frozenset(flow.replies()), panics, gave_up, seconds, expired)


async def _served(disk: SmallDisk) -> bool:
    """Wait until the server serves, or start it when it has ended; whether it had."""
    before = disk.log().count("starting PostgreSQL")
    await asyncio.to_thread(disk.start)
    return disk.log().count("starting PostgreSQL") > before
