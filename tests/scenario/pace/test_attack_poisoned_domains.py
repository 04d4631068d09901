"""test_attack_poisoned_domains — domains with dead hosts or silent name servers do not stop other mail

Owns: a running worker: a thousand messages, each to a different domain, and then healthy
    mail. Before, none of it was delivered for a quarter of an hour. scripts/bench/poisoned/__main__.py has the figures.
See: docs/explanation/admission.md.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.routed import sinks
from tests.fixtures.daemons.strangers import MESSAGES, WAKE, healthy_zone, parked, seconds_to_deliver, worker_by_mx
from tests.fixtures.peers.fake_dns import SILENT, FakeDns
from tests.fixtures.peers.hostile_peer import honest, hostile
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System

POISONED, HEALTHY, HOSTS = 1200, 30, 60


def zone(poison: str) -> dict[tuple[str, str], list[str]]:
    """The DNS zone: healthy domains, and poisoned ones of this kind."""
    records = healthy_zone("good", HEALTHY) | healthy_zone("first", HEALTHY)
    for n in range(1, POISONED + 1):
        if poison == "silent":
            records[f"bad{n}.test", "MX"] = [SILENT]
        else:
            records[f"bad{n}.test", "MX"] = [f"10 mx{n % HOSTS if poison == 'many' else 0}.bad.test."]
    return records | {(f"mx{n}.bad.test", "A"): [f"127.0.66.{n + 1}"] for n in range(HOSTS)}


@pytest.mark.parametrize("poison", ["one", "many", "silent"])
async def test_healthy_mail_is_delivered_beside_a_thousand_poisoned_domains(system: System, poison: str) -> None:
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(FakeDns(zone(poison)))
        [sink] = await stack.enter_async_context(sinks("1"))
        dead = [
            await stack.enter_async_context(hostile(honest, host=f"127.0.66.{n + 1}", port=sink.port, greets=False))
            for n in range(HOSTS if poison == "many" else 1)
        ]
        worker = await worker_by_mx(system, sink.port, dns)
        alone = await seconds_to_deliver(system, "first", HEALTHY)
        await system.rows(MESSAGES, POISONED, "bad#.test")
        await system.rows(WAKE)
        seen = "SELECT count(*) >= %s FROM queue WHERE last_error IS NOT NULL OR token IS NOT NULL"
        await system.until(seen, POISONED)
        took = await seconds_to_deliver(system, "good", HEALTHY)
        # 20 seconds where the same mail takes one by itself, and in proportion on a busy machine.
        assert took < max(60.0, 20 * alone), f"{took:.1f} s beside {alone:.1f} s alone, and it waits for no poison"
        assert max(host.open for host in dead) <= 5, "a host has the connections of a new one, for any domain"
        expected = 0 if poison == "silent" else POISONED // 4
        await eventually(lambda: parked(worker) > expected, f"more than {expected} are parked, untried")
        assert await system.value("SELECT count(*) FROM queue") == POISONED, "the poison is still there"
