"""test_attack_silent_name_servers — domains with silent name servers do not delay new mail to new domains

Owns: a running worker, more such domains than it may ask about in several seconds, and then mail for domains that it
    has never asked about. Before, its questions waited behind theirs: 50 seconds beside 5,000 of them.
See: queued/routing/question_line.py; docs/explanation/admission.md, "DNS".
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tests.fixtures.daemons.routed import sinks
from tests.fixtures.daemons.strangers import (
    healthy_zone,
    parked,
    seconds_beside,
    silent_zone,
    worker_by_mx,
)
from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System

POISONED, HEALTHY = 4000, 20


async def test_mail_to_new_domains_is_delivered_beside_thousands_of_silent_name_servers(system: System) -> None:
    records = healthy_zone("good", HEALTHY) | healthy_zone("first", HEALTHY) | silent_zone(POISONED)
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(FakeDns(records))
        [sink] = await stack.enter_async_context(sinks("1"))
        worker = await worker_by_mx(system, sink.port, dns)
        alone, took = await seconds_beside(system, POISONED, HEALTHY)
        assert took < max(30.0, 10 * alone), f"{took:.1f} s beside {alone:.1f} s alone, and it waits for no poison"
        await eventually(lambda: parked(worker, "DNS ") > POISONED // 4, "a quarter of the poison is parked, untried")
        assert await system.value("SELECT count(*) FROM queue") == POISONED, "the poison is still there"
