"""test_hosts_of_a_network — hosts of one IPv6 /64 that were not reached recently share one window; a pause of a host"""

from __future__ import annotations

import pytest

from queued.destinations.destination import Busy, Waiting
from queued.destinations.hosts import Hosts
from queued.routing.route import Hop
from queued.waiting.deferral import Deferral
from shared.config.queued.settings import Claim
from shared.config.queued.transport import Transport


class Net:
    """Hosts with a clock that moves only when it is set."""

    def __init__(self, initial: int = 3, concurrency: int = 20) -> None:
        self.now = 100.0
        feedback = {"initial": initial}
        transport = Transport.model_validate({"id": "a", "concurrency": concurrency, "feedback": feedback})
        self.hosts = Hosts(transport, Claim(), clock=lambda: self.now)
        self.turns = 0

    async def enter(self, host: str) -> Waiting | Deferral:
        self.turns += 1
        return await self.hosts.enter(Hop(host, 25, "mx.test"), (0, self.turns), 1, 100)

    async def places(self, pattern: str, count: int = 10) -> list[Waiting]:
        entered = [await self.enter(pattern.format(n)) for n in range(1, count + 1)]
        return [place for place in entered if isinstance(place, Waiting)]


async def test_addresses_of_one_ipv6_64_share_the_window_of_one_host() -> None:
    net = Net()
    assert len(await net.places("2001:db8::{:x}")) == 3
    assert len(await net.places("2001:db8:0:1::{:x}")) == 3
    refused = await net.enter("2001:db8:0:0:ffff::1")
    assert isinstance(refused, Deferral)
    assert not isinstance(refused, Busy), "the next host of the domain may be tried"
    assert refused.reason == "3 attempts under way to hosts of 2001:db8::/64 that have not answered yet"


@pytest.mark.parametrize("pattern", ["192.0.2.{}", "::ffff:192.0.2.{}", "64:ff9b::192.0.2.{}", "mx{}.test", "/run/:{}"])
async def test_ipv4_addresses_and_names_have_their_own_windows(pattern: str) -> None:
    assert len(await Net().places(pattern)) == 10


async def test_a_failed_attempt_frees_its_slot_and_blocks_no_other_host() -> None:
    net = Net()
    places = await net.places("2001:db8::{:x}")
    for n in range(20, 60):
        net.now += 10
        net.hosts.leave(places.pop(0), reached=False, why="silent")
        place = await net.enter(f"2001:db8::{n:x}")
        assert isinstance(place, Waiting)
        places.append(place)
        assert isinstance(await net.enter("2001:db8::ffff"), Deferral)


async def test_reached_hosts_are_not_counted_and_widen_the_window() -> None:
    net = Net()
    for place in await net.places("2001:db8::{:x}"):
        net.hosts.leave(place, reached=True)
    net.now += 5
    assert len([await net.enter("2001:db8::1") for _ in range(3)]) == 3
    assert len(await net.places("2001:db8::1:{:x}")) > 3, "success widens it, as for one host"
    net = Net(concurrency=3)
    for place in await net.places("2001:db8::{:x}"):
        net.hosts.leave(place, reached=True)
    net.now += 5
    assert len(await net.places("2001:db8::1:{:x}")) == 3
    assert isinstance(await net.enter("2001:db8::1"), Waiting)


async def test_a_domain_of_a_full_network_is_parked_before_its_body_is_fetched() -> None:
    net = Net()
    there = Hop("2001:db8::ffff", 25, "mx.test")
    net.hosts.led("a.test", [there])
    net.hosts.led("b.test", [there, Hop("192.0.2.1", 25, "mx2.test")])
    assert net.hosts.shut("a.test") is None
    places = await net.places("2001:db8::{:x}")
    net.now += 5
    assert net.hosts.shut("a.test") is not None
    assert net.hosts.shut("b.test") is None
    net.hosts.leave(places[0], reached=None)
    assert net.hosts.shut("a.test") is None


async def test_a_host_refused_by_its_full_network_holds_no_slot() -> None:
    net = Net()
    places = await net.places("2001:db8::{:x}")
    assert isinstance(await net.enter("2001:db8::ffff"), Deferral)
    assert all(each.recipients == each.active for each in net.hosts._destinations.values())
    for place in places:
        net.hosts.leave(place, reached=None)
    assert not any(each.active for each in net.hosts._destinations.values())
    assert not net.hosts._beside


@pytest.mark.parametrize("known", [True, False])
async def test_after_a_pause_mail_for_a_host_that_was_reached_waits_for_its_first_turns(*, known: bool) -> None:
    net = Net()
    net.hosts.led("a.test", [Hop("192.0.2.1", 25, "mx.test")])
    if known:
        [place] = await net.places("192.0.2.1", 1)
        net.hosts.leave(place, reached=True)
    net.now += 100
    assert len(await net.places("192.0.2.1", 3)) == 3
    net.now += 0.5
    assert (net.hosts.shut("a.test") is None) == known
    net.now += 1
    assert net.hosts.shut("a.test") is not None, "they stand still"
