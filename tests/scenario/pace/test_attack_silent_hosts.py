"""test_attack_silent_hosts — domains that each have a silent host of their own do not delay new mail to new domains

Owns: a running worker and many times as many such domains as it may try at once; then mail for domains that it has
    never reached, which differs from theirs by its age alone. Before, the first of it was delivered after 81 seconds.
See: queued/admission/unproven.py; docs/explanation/admission.md, "Unproven destinations".
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tests.fixtures.daemons.routed import sinks
from tests.fixtures.daemons.strangers import (
    healthy_zone,
    hosts_zone,
    mute_hosts,
    parked,
    seconds_beside,
    worker_by_mx,
)
from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System

POISONED, HEALTHY, INFLIGHT = 600, 20, 150


async def test_mail_to_new_domains_is_delivered_beside_hundreds_of_silent_hosts(system: System) -> None:
    records = healthy_zone("good", HEALTHY) | healthy_zone("first", HEALTHY) | hosts_zone("127.70", POISONED)
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(FakeDns(records))
        [sink] = await stack.enter_async_context(sinks("1"))
        stack.enter_context(mute_hosts("127.70", POISONED, sink.port))
        worker = await worker_by_mx(system, sink.port, dns, claim={"inflight": INFLIGHT})
        alone, took = await seconds_beside(system, POISONED, HEALTHY)
        assert took < max(60.0, 15 * alone), f"{took:.1f} s beside {alone:.1f} s alone, and it waits for no poison"
        await eventually(lambda: parked(worker) > POISONED // 4, "a quarter of the poison is parked, untried")
        assert await system.value("SELECT count(*) FROM queue") == POISONED, "the poison is still there"
