"""test_attack_large_mail_to_silent_hosts — large mail to silent hosts takes no room from the content of other mail

Owns: a worker that runs: healthy domains that it has reached, and large messages to domains that each have a silent
    host of their own, many times as much as it may hold. Before, each healthy message waited for ten seconds.
See: queued/admission/unproven.py; docs/explanation/admission.md, "Unproven destinations".
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tests.fixtures.daemons.routed import sinks
from tests.fixtures.daemons.strangers import (
    MESSAGES,
    WAKE,
    healthy_zone,
    hosts_zone,
    mute_hosts,
    seconds_to_deliver,
    worker_by_mx,
)
from tests.fixtures.peers.fake_dns import FakeDns

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System

BAD, HEALTHY, ROUNDS = 80, 5, 3
_LARGE = MESSAGES.replace("26", "320018").replace(r"Hello\r\n'", r"' || repeat(repeat('x', 78) || E'\r\n', 4000)")


async def test_known_mail_is_delivered_beside_large_mail_to_silent_hosts(system: System) -> None:
    records = healthy_zone("good", HEALTHY) | hosts_zone("127.67", BAD)
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(FakeDns(records))
        [sink] = await stack.enter_async_context(sinks("1"))
        stack.enter_context(mute_hosts("127.67", BAD, sink.port))
        await worker_by_mx(system, sink.port, dns, claim={"maxbytes": "4MiB"})
        alone = await seconds_to_deliver(system, "good", HEALTHY)
        await system.rows(_LARGE, BAD, "bad#.test")
        await system.rows(WAKE)
        await system.until(
            "SELECT count(*) >= %s FROM queue WHERE last_error IS NOT NULL OR token IS NOT NULL", BAD // 2
        )
        took = max([await seconds_to_deliver(system, "good", HEALTHY, times=n) for n in range(2, ROUNDS + 2)])
        assert took < max(30.0, 4 * alone), f"{took:.1f} s beside {alone:.1f} s alone"
        waiting = "SELECT count(*) FROM queue WHERE recipientdomain LIKE 'bad%%'"
        assert await system.value(waiting) == BAD, "the poison is still there"
