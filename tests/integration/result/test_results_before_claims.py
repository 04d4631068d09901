"""test_results_before_claims — a worker does not claim again mail that it has sent, however long PostgreSQL was down

Owns: proofs about a worker that holds results when an outage outlives its leases; the crash table's row 17.
See: queued/dispatch.py, `_claim`; sql/README.md, "Claims". With whole daemons: test_outage_outlives_the_lease.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from queued.claiming.bodies import Bodies
from queued.claiming.claim import Claimer
from scripts.sink.server import Sink
from shared.config.queued.settings import Claim
from shared.postgres import database
from tests.fixtures.daemons.dispatching import dispatching
from tests.fixtures.heard import until
from tests.fixtures.peers.proxy import relaying

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    import pytest

    from queued.dispatch import Dispatcher
    from queued.values import Body
    from scripts.sink.records import Received
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard
    from tests.fixtures.peers.proxy import Proxy

LEASE = timedelta(minutes=15)  # ended by the test itself
SENT = 12


class Peer:
    """A sink that delays its replies to final dots until it is released."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = 0
        self.sink = Sink(callback=self._hold)

    async def _hold(self, _: Received) -> None:
        self.asked += 1
        await self.may_answer.wait()


async def outage(factory: Factory, peer: Peer, proxy: Proxy, dispatcher: Dispatcher) -> None:
    """The way to PostgreSQL is cut while everything queued is being sent, and stays so until every lease is over."""
    await until(lambda: peer.asked == SENT, "every message to be with the peer")
    proxy.refuse = True
    proxy.cut()
    peer.may_answer.set()
    await until(lambda: dispatcher._recorder.unrecorded == SENT, "every result to be in flight")
    factory.sql("UPDATE pillarbox.queue SET lease_until = now() - interval '1 second'")
    in_flight = dispatcher._in_flight
    in_flight.take([c._replace(expires=monotonic()) for c, _ in in_flight._expires.values()])


def heart(proxy: Proxy, peer: Peer, inflight: int) -> AbstractAsyncContextManager[Dispatcher]:
    """A worker that delivers to this peer, and soon says that PostgreSQL is away."""
    return dispatching(proxy.uri, peer.sink.port, LEASE, beats=False, inflight=inflight, patience=0.5)


async def test_claims_continue_without_mail_that_awaits_recording(factory: Factory, heard: Heard) -> None:
    for _ in range(SENT):
        factory.rows(1, message=factory.message())
    peer = Peer()
    async with peer.sink, relaying(factory.uri) as proxy, heart(proxy, peer, 100) as dispatcher:
        await outage(factory, peer, proxy, dispatcher)
        with factory.another() as operator:
            # No result can be recorded yet, but claims can be made.
            operator.execute("LOCK TABLE pillarbox.archive IN ACCESS EXCLUSIVE MODE")
            proxy.refuse = False
            for more in (1, 2, 3):
                factory.rows(1, message=factory.message())
                await until(lambda: len(peer.sink.received) == SENT + more, "the new mail to be sent")  # noqa: B023 - awaited here
        await until(lambda: not factory.queue(), "every result to be recorded")
    assert len(peer.sink.received) == SENT + 3
    assert {row.result for row in factory.archive()} == {"success"}
    assert {row.outcome for row in factory.attempts()} == {"delivered"}
    assert heard.all("claim.expired") == heard.all("claim.lost") == []


async def test_a_worker_at_its_limit_reconnects_and_records_its_results(factory: Factory, heard: Heard) -> None:
    for _ in range(SENT):
        factory.rows(1, message=factory.message())
    peer = Peer()
    async with peer.sink, relaying(factory.uri) as proxy, heart(proxy, peer, SENT) as dispatcher:
        await outage(factory, peer, proxy, dispatcher)
        assert dispatcher.inflight == SENT
        await heard.wait("result.unrecorded", 2)
        proxy.refuse = False
        await until(lambda: not factory.queue(), "every result to be recorded")
    assert len(peer.sink.received) == SENT
    assert {row.outcome for row in factory.attempts()} == {"delivered"}


async def test_a_notification_during_an_outage_does_not_stop_the_worker(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a worker that was woken while it waited for its trouble to pass did nothing else any more."""
    [id_] = factory.rows(1)
    fetch, tries, healed = Bodies.fetch, 0, False

    async def troubled(self: Bodies, ids: list[UUID]) -> Mapping[UUID, Body]:
        nonlocal tries
        tries += 1
        if tries > 100:
            raise RuntimeError("nothing else gets a turn")
        if not healed:
            raise OSError("out of reach")
        return await fetch(self, ids)

    monkeypatch.setattr(Bodies, "fetch", troubled)
    async with Sink() as sink, dispatching(factory.uri, sink.port, timedelta(minutes=15)) as dispatcher:
        await until(lambda: tries == 1)
        dispatcher.start_over()
        await until(lambda: tries == 3)
        healed = True
        await until(factory.archive)
    assert [row.id for row in factory.archive()] == [id_]


async def test_other_recipients_of_a_message_in_flight_are_claimed(factory: Factory) -> None:
    in_hand, *others = factory.rows(3, message=factory.message())
    connection = await database.connect(factory.uri, "worker")
    claimed = await Claimer("true", "worker", Claim()).take(connection, 10, {in_hand})
    await connection.close()
    assert sorted(c.id for c in claimed) == others
