"""failover — cells of the crash matrix in which the primary dies under load and a standby takes over

Owns: `to_synchronous`, `by_patroni`, `to_lagging` and `past_survivors`, one run each, and their results.
Guarantees: daemons get both hosts in one URI and are never restarted. The primary dies as in a power failure: without
    a checkpoint and without closing connections.
See: docs/explanation/durability.md, "When a standby takes over"; tests/fixtures/servers/standby.py.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.conninfo import make_conninfo

from queued.claiming.claim import Claimer
from shared.config.queued.settings import Claim
from shared.postgres import database, migrate
from tests.fixtures.daemons.flow import flowing
from tests.fixtures.daemons.submit import Client, numbered
from tests.fixtures.daemons.system import System
from tests.fixtures.servers.owner import DATABASE
from tests.fixtures.servers.patroni import clustered
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.servers.standby import replicated
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from queued.values import Claimed
    from tests.chaos.accounts import Figures
    from tests.fixtures.daemons.flow import Flow
    from tests.fixtures.daemons.system import Daemon
    from tests.fixtures.servers.patroni import Member

#: Allowed duplicates if one worker serves and survives: none, because it never claims again mail that it has in flight,
#: even after a long outage.
ALIVE: Final = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """figures: of the run. seconds: from the end of the cause until mail flowed. bound: allowed duplicates.

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
    """A standby that every COMMIT waits for is promoted `down` seconds after the primary's death."""
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
            return Outcome(figures, seconds, ALIVE, reported(smtpd.log))


async def by_patroni(folder: Path, *, enough: int = 300) -> Outcome:
    """Patroni's leader and its PostgreSQL die; Patroni promotes the other member by itself."""
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
            return Outcome(figures, seconds, ALIVE, reported(smtpd.log), elected=promoted - died)


async def to_lagging(folder: Path, *, enough: int = 200) -> Outcome:
    """A lagging standby is promoted: mail that was not replicated is lost, and smtpd names these messages."""
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
            # Only now: mail that was delivered before its row was lost would not be missing.
            await system.worker(flow.sink.port)
            await system.until_finished()
            senders = {line["id"]: line["sender"] for line in smtpd.said("spool.committed")}
            named = frozenset(senders[each] for each in reported(smtpd.log))
            missing = frozenset(sender for sender, _ in flow.accounts.lost())
            return Outcome(flow.accounts.figures(), seconds, 0, named, missing)


async def past_survivors(folder: Path, *, many: int = 60) -> Outcome:
    """A worker survives its server with results in flight, and a lagging standby assigns the same ids to other mail.

    Half of its results are deliveries, half are refusals with notifications. Both sequences are
    set on the primary while the standby still replicates, so that each new message gets the id, and with tokens from a
    sequence each new claim the token, of a lost one.
    """
    async with replicated() as pair:
        migrate.migrate(pair.both, LEAVES)
        async with flowing(System(pair.both, folder)) as flow:
            system = flow.system
            smtpd = await flow.smtpd()
            async with await psycopg.AsyncConnection.connect(_ours(pair.primary), autocommit=True) as primary:
                for sequence in ("queue_id_seq", "claim_token_seq"):
                    await primary.execute("SELECT setval(%s::regclass, 1000)", (f"pillarbox.{sequence}",))
            await pair.part()
            blocking = await psycopg.AsyncConnection.connect(_ours(pair.primary))
            try:
                # Results wait for this lock, claims do not.
                await blocking.execute("LOCK TABLE pillarbox.archive IN ACCESS EXCLUSIVE MODE")
                claim, bounces = {"batch": 1, "lease": "6s"}, {"enabled": True}
                worker = await system.worker(flow.sink.port, "survivor", claim=claim, bounces=bounces)
                await _submit(flow, smtpd, 0, many // 2, "r")
                await _submit(flow, smtpd, many // 2, many // 2, "permerror")
                await eventually(lambda: flow.accounts.arrived == many // 2, "accepted mail arrives", limit=60)
                # An attempt that is under way when its lease is lost ends without a result.
                await eventually(
                    lambda: str(many) in {said["results"] for said in worker.said("result.unrecorded")},
                    "the worker has every result",
                )
                worker.signal(signal.SIGSTOP)
                await pair.lose_primary()
            finally:
                await blocking.close()
            await pair.promote()
            promoted = monotonic()
            flow.accounts.mark()
            await _submit(flow, smtpd, many, many, "r")
            await smtpd.until_said("spool.lost_after_failover")
            seconds = flow.accounts.first_accepted - promoted
            theirs = await _claimed(_ours(pair.standby), many)
            assert {c.id for c in theirs} == set(range(1001, 1001 + many)), "no id was assigned again"
            worker.signal(signal.SIGCONT)
            await worker.until_said("claim.lost", many)
            await worker.until_said("claim.timeline_changed")
            touched = many - await system.value(
                "SELECT count(*) FROM queue WHERE worker = 'other' AND status = 'DELIVER'"
            )
            owed = await system.value("SELECT count(*) FROM notices")
            finished = await system.value("SELECT count(*) FROM archive")
            assert (touched, owed, finished) == (0, 0, 0), "other mail was settled"
            await _given_back(_ours(pair.standby), theirs)
            await system.until_finished()
            figures = flow.accounts.figures()
            assert (
                await system.value("SELECT count(DISTINCT messages__id) FROM archive WHERE result = 'success'") == many
            )
            senders = {line["id"]: line["sender"] for line in smtpd.said("spool.committed")}
            arrived = {sender for (sender, _), entry in flow.accounts.entries.items() if entry.arrivals}
            named = frozenset(senders[each] for each in reported(smtpd.log)) - arrived
            missing = frozenset(sender for sender, _ in flow.accounts.lost())
            return Outcome(figures, seconds, 0, named, missing)


async def _submit(flow: Flow, smtpd: Daemon, first: int, count: int, box: str) -> None:
    """Submit numbered mail, each message after the last was accepted, with retries during the failover."""
    client: Client | None = None
    for sample in numbered(count, first=first, box=box):
        flow.accounts.submit(sample)
        while True:
            client = client if client is not None and client.usable else await Client.open(smtpd.address)
            replies = await client.send(sample)
            if replies[0].startswith("250"):
                break
        flow.accounts.answer(sample, replies, monotonic())
    if client is not None:
        await client.close()


def _ours(administrator: str) -> str:
    """Our database on one of the servers."""
    return make_conninfo(administrator, dbname=DATABASE)


async def _claimed(uri: str, count: int) -> list[Claimed]:
    """The claims of another worker, one after the other as the survivor made them."""
    connection = await database.connect(uri, "other")
    try:
        claimer = Claimer("true", "other", Claim())
        return [c for _ in range(count) for c in await claimer.take(connection, 1)]
    finally:
        await connection.close()


async def _given_back(uri: str, claimed: list[Claimed]) -> None:
    connection = await database.connect(uri, "other")
    try:
        await Claimer("true", "other", Claim()).give_back(connection, claimed)
    finally:
        await connection.close()


def takes_writes(member: Member) -> bool:
    """Whether this server is promoted."""
    try:
        with psycopg.connect(member.uri(DATABASE), connect_timeout=2) as connection:
            return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
    except psycopg.OperationalError:
        return False


def reported(log: str) -> frozenset[str]:
    """The ids of the messages that a log reports as lost."""
    said = [line for line in log.splitlines() if line.split(" ", 3)[2:3] == ["spool.lost_after_failover"]]
    return frozenset(each for line in said for each in line.partition("ids=")[2].strip('"').split())
