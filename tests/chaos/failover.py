"""failover — the primary dies under load and its standby takes over: the cells of the crash matrix about it

Owns: `to_synchronous` and `to_lagging`, one run each, and what they find.
Called by: tests/chaos/test_failover.py.
Guarantees: daemons get both hosts in one URI and are never started again. The primary dies as by a power cut: no
    checkpoint, no word to anybody.
See: docs/explanation/durability.md, "When a standby takes over"; tests/fixtures/standby.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import psycopg

from shared import migrate
from tests.fixtures.flow import flowing
from tests.fixtures.patroni import clustered
from tests.fixtures.postgres import LEAVES
from tests.fixtures.standby import replicated
from tests.fixtures.system import System
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.accounts import Figures
    from tests.fixtures.patroni import Member


@dataclass(frozen=True, slots=True)
class Outcome:
    """figures: of the run. seconds: from the end of the cause until mail flowed. bound: duplicates there may be.

    reported: messages that smtpd said are lost; missing: those that are; both by sender, where mail is lost at all.
    elected: seconds from the leader's death to the end of the promotion.
    """

    figures: Figures
    seconds: float
    bound: int
    reported: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    elected: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.figures} bound={self.bound} recovered={self.seconds:.1f}s reported={len(self.reported)} "
            f"elected={self.elected:.1f}s"
        )


async def to_synchronous(folder: Path, *, enough: int = 300, down: float = 0.0) -> Outcome:
    """A standby that every COMMIT waits for is promoted `down` seconds after the loss."""
    async with replicated() as pair:
        migrate.migrate(pair.both, LEAVES)
        async with flowing(System(pair.both, folder)) as flow:
            system = flow.system
            smtpd, worker = await flow.smtpd(), await system.worker(flow.sink.port, claim={"inflight": 100})
            pids = (smtpd.pid, worker.pid)
            flow.send_to([smtpd])
            await flow.more_arrived(enough)
            await pair.lose_primary()
            lost_at = monotonic()
            await flow.refused()
            await eventually(lambda: monotonic() >= lost_at + down, "the outage lasts", limit=down + 5)
            await pair.promote()
            seconds = await flow.recovered(monotonic())
            await flow.more_arrived(enough)
            figures = await flow.finish()
            assert (smtpd.pid, worker.pid) == pids
            assert flow.replies() <= {"451"}
            expired = await system.value("SELECT count(*) FROM attempts WHERE outcome = 'lease_expired'")
            return Outcome(figures, seconds, expired, reported(smtpd.log))


async def by_patroni(folder: Path, *, enough: int = 300) -> Outcome:
    """Patroni's leader dies, itself and its PostgreSQL: Patroni promotes the other one by itself."""
    async with clustered() as cluster:
        migrate.migrate(cluster.uri, LEAVES)
        async with flowing(System(cluster.uri, folder)) as flow:
            system = flow.system
            smtpd, worker = await flow.smtpd(), await system.worker(flow.sink.port, claim={"inflight": 100})
            pids = (smtpd.pid, worker.pid)
            flow.send_to([smtpd])
            await flow.more_arrived(enough)
            leader, other = cluster.members
            assert await asyncio.to_thread(cluster.leader) is leader
            cluster.lose(leader)
            died = monotonic()
            await eventually(lambda: asyncio.to_thread(takes_writes, other), "the other takes over", limit=60)
            promoted = monotonic()
            seconds = await flow.recovered(promoted)
            await flow.more_arrived(enough)
            figures = await flow.finish()
            assert (smtpd.pid, worker.pid) == pids
            assert flow.replies() <= {"451"}
            expired = await system.value("SELECT count(*) FROM attempts WHERE outcome = 'lease_expired'")
            return Outcome(figures, seconds, expired, reported(smtpd.log), elected=promoted - died)


async def to_lagging(folder: Path, *, enough: int = 200) -> Outcome:
    """A standby that lags is promoted: what it never heard of is lost, and smtpd says which messages these are."""
    async with replicated() as pair:
        migrate.migrate(pair.both, LEAVES)
        async with flowing(System(pair.both, folder)) as flow:
            system = flow.system
            smtpd = await flow.smtpd()
            flow.send_to([smtpd], window=1_000_000)
            await flow.more_accepted(enough)
            await pair.part()
            await flow.more_accepted(enough)
            await pair.lose_primary()
            await flow.refused()
            await pair.promote()
            promoted = monotonic()
            flow.accounts.mark()
            await smtpd.until_said("spool.lost_after_failover")
            await flow.more_accepted(1)
            seconds = flow.accounts.first_accepted - promoted
            await flow.stop_sending()
            # Only now: what was delivered before its row was lost would not be missing.
            await system.worker(flow.sink.port)
            await system.until_finished()
            senders = {line["id"]: line["sender"] for line in smtpd.said("spool.committed")}
            named = frozenset(senders[each] for each in reported(smtpd.log))
            missing = frozenset(sender for sender, _ in flow.accounts.lost())
            return Outcome(flow.accounts.figures(), seconds, 0, named, missing)


def takes_writes(member: Member) -> bool:
    """Whether this server is promoted."""
    try:
        with psycopg.connect(member.uri("pillarbox"), connect_timeout=2) as connection:
            return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
    except psycopg.OperationalError:
        return False


def reported(log: str) -> frozenset[str]:
    """The ids of messages that a log says are lost."""
    said = [line for line in log.splitlines() if line.split(" ", 3)[2:3] == ["spool.lost_after_failover"]]
    return frozenset(each for line in said for each in line.partition("ids=")[2].strip('"').split())
