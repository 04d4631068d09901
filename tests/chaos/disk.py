"""disk — the disk under PostgreSQL fills up with mail and is then enlarged

Owns: `full_data`, where tables cannot grow, and `full_log`, where the write-ahead log cannot and PostgreSQL panics,
    both without spool.minfree; `stopped`, where spool.minfree stops smtpd.
Guarantees: mail fills the disk until smtpd refuses more. Daemons are never restarted. PostgreSQL is restarted only if
    it stopped by itself, as a service manager would do.
See: tests/fixtures/servers/small_disk.py; docs/explanation/durability.md, "When the disk is full".
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from shared.postgres import migrate
from tests.chaos.failover import ALIVE
from tests.fixtures.daemons.flow import flowing
from tests.fixtures.daemons.system import System
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.servers.small_disk import small_disk
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.accounts import Figures
    from tests.fixtures.servers.small_disk import Part, SmallDisk

_ENOUGH = 60  # recipients before, while and after the disk is full
_LEAST, _MORE = 192, 16  # megabytes: spool.minfree, and the room above it
_SEGMENT = 16  # megabytes that the write-ahead log grows by


@dataclass(frozen=True, slots=True)
class Outcome:
    """figures: of the run. replies: codes of refusals. panics: of PostgreSQL; gave_up: whether it then ended.

    seconds: from the moment there was room, and a server, until mail flowed. bound: allowed duplicates.
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


async def stopped(folder: Path, part: Part) -> Outcome:
    """Mail is refused before the volume is full, and queued mail is delivered meanwhile."""
    with small_disk(part) as disk:
        migrate.migrate(disk.uri, LEAVES)
        async with flowing(System(disk.uri, folder)) as flow:
            system = flow.system
            least = {"minfree": f"{_LEAST}MiB", "volumes": [str(disk.folder)]}
            smtpd, worker = await flow.smtpd(spool=least), await system.worker(flow.sink.port)
            pids = (smtpd.pid, worker.pid)
            flow.send_to([smtpd])
            await flow.more_arrived(_ENOUGH)
            disk.leave(_LEAST + _MORE)
            await flow.fill(smtpd, most=1000)
            await flow.refused(_ENOUGH)
            await eventually(lambda: flow.accounts.outstanding == 0, "all that was accepted is delivered", limit=60)
            accepted = flow.accounts.accepted
            await flow.refused(_ENOUGH)
            assert flow.accounts.accepted == accepted, "mail was accepted below the least"
            assert disk.free() > 0
            disk.make_room()
            seconds = await flow.recovered(monotonic(), limit=120)
            await flow.more_arrived(_ENOUGH)
            figures = await flow.finish()
            assert (smtpd.pid, worker.pid) == pids
            assert "spool.space_low" in smtpd.log
            assert "spool.space_restored" in smtpd.log
            panics = disk.log().count("PANIC:")
            return Outcome(figures, frozenset(flow.replies()), panics, gave_up=False, seconds=seconds, bound=0)


async def _full(folder: Path, part: Part, megabytes: int) -> Outcome:
    with small_disk(part) as disk:
        migrate.migrate(disk.uri, LEAVES)
        async with flowing(System(disk.uri, folder)) as flow:
            system = flow.system
            smtpd, worker = await flow.smtpd(spool={"minfree": "1B"}), await system.worker(flow.sink.port)
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
            panics = disk.log().count("PANIC:")
            return Outcome(figures, frozenset(flow.replies()), panics, gave_up, seconds, ALIVE)


async def _served(disk: SmallDisk) -> bool:
    """Wait until the server serves, or start it if it has ended; whether it had ended."""
    before = disk.log().count("starting PostgreSQL")
    await asyncio.to_thread(disk.start)
    return disk.log().count("starting PostgreSQL") > before
