"""test_due_again — mail that falls due while a worker waits for mail is claimed then, not at the next poll

Owns: proofs about InFlight.due_again: the worker has looked when the next mail is due, and waits, when what it had in
    flight is parked or deferred. A poll is an hour away in each.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queued.claiming.claim import Claimer
from queued.deliver import Transport
from queued.waiting.deferral import Deferral
from scripts.sink.server import Sink
from tests.fixtures.daemons.dispatching import dispatching
from tests.fixtures.heard import until
from tests.fixtures.peers.free_port import free_port

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

LEASE = timedelta(minutes=15)
SELDOM = {"poll": "1h"}


@pytest.fixture
def first_ends_late(monkeypatch: pytest.MonkeyPatch) -> list[Deferral]:
    """The first attempt begins after the worker has looked when the next mail is due; with an entry it ends with it."""
    looked, ends = asyncio.Event(), list[Deferral]()
    until_due, attempt = Claimer.until_due, Transport.attempt

    async def look(self: Claimer, connection: Any) -> float:
        seconds = await until_due(self, connection)
        looked.set()
        return seconds

    async def begin(self: Transport, *given: Any, **more: Any) -> Any:
        await looked.wait()
        return ends.pop() if ends else await attempt(self, *given, **more)

    monkeypatch.setattr(Claimer, "until_due", look)
    monkeypatch.setattr(Transport, "attempt", begin)
    return ends


async def test_parked_mail_is_claimed_when_it_is_due(
    factory: Factory, heard: Heard, first_ends_late: list[Deferral]
) -> None:
    first_ends_late.append(Deferral(0.5, "12 attempts under way"))
    factory.row(message=factory.message())
    async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE, claim=SELDOM):
        await heard.wait("claim.parked")
        await until(lambda: sink.received, "parked mail to be delivered")


@pytest.mark.usefixtures("first_ends_late")
async def test_deferred_mail_is_tried_again_when_it_is_due(factory: Factory, heard: Heard) -> None:
    port = free_port()
    soon = {"retry": {"intervals": ["1s"]}, "feedback": {"initial": 5, "dead": "100ms", "longest": "100ms"}}
    factory.row(message=factory.message())
    async with dispatching(factory.uri, port, LEASE, changes=soon, claim=SELDOM):
        await heard.wait("result.deferred")
        async with Sink(port=port) as sink:
            await until(lambda: sink.received, "deferred mail to be delivered")
