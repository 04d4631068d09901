"""test_next_hop_drip — a next hop that answers each recipient just in time holds a connection no longer

Owns: each reply restarts the limit on attempts that get nowhere, so the attempt has one as a whole.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from queued.outcome.settle import stuck_after
from shared.config.queued.transport import Transport
from tests.fixtures.daemons.dispatching import dispatching
from tests.fixtures.heard import until
from tests.fixtures.peers.hostile_peer import honest, hostile

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


async def drip(line: bytes) -> bytes:
    if line.upper().startswith(b"RCPT"):
        await asyncio.sleep(0.3)
    return await honest(line)


async def test_fifty_slow_recipients_end_at_the_time_limit_of_the_attempt(factory: Factory, heard: Heard) -> None:
    factory.rows(50, message=factory.message())
    changes = {"timeout": {"attempt": "3s"}, "retry": {"intervals": ["1h"]}}
    async with (
        hostile(drip) as peer,
        dispatching(factory.uri, peer.port, timedelta(minutes=1), changes=changes) as heart,
    ):
        [stuck] = await heard.wait("attempt.stuck")  # fifty replies take a quarter of a minute
        await until(lambda: heart.inflight == 0, "all to be recorded")
    assert (stuck["phase"], stuck["recipients"], stuck["seconds"]) == ("rcpt", 50, 3.0)
    assert {row.last_error for row in factory.queue()} == {"not done after 3 seconds while waiting for rcpt"}
    assert {(each.outcome, each.scope, each.uncertain) for each in factory.attempts()} == {
        ("deferred", "destination", False)
    }


def test_the_default_time_limit_is_the_sum_of_postfixs_limits() -> None:
    assert stuck_after(Transport()) == (3050.0, 3050.0)
    assert stuck_after(Transport.model_validate({"timeout": {"attempt": "10m"}})) == (3050.0, 600.0)
