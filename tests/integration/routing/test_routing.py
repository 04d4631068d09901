"""test_routing — mail follows DNS and queued.yaml, over real sockets on several loopback addresses

Owns: which host is tried and the outcome if it is missing; tests/unit/routing/test_route.py has each decision.
See: test_failover.py for the next host.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from queued.deliver import Transport
from shared.config.queued.transport import Transport as TransportSettings
from tests.fixtures.daemons.routed import US, Routed, routing, sinks
from tests.fixtures.heard import until
from tests.fixtures.peers.fake_dns import SERVFAIL, SILENT
from tests.fixtures.peers.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

MX = ("example.test", "MX")
ZONE: dict[tuple[str, str], Sequence[str]] = {
    MX: ["10 mx1.test.", "20 mx2.test."],
    ("mx1.test", "A"): ["127.0.0.2"],
    ("mx2.test", "A"): ["127.0.0.3"],
    ("plain.test", "A"): ["127.0.0.3"],
    ("null.test", "MX"): ["0 ."],
    ("servfail.test", "MX"): [SERVFAIL],
    ("silent.test", "MX"): [SILENT],
    ("nohost.test", "MX"): ["10 nowhere.test."],
    ("halfway.test", "MX"): ["10 nowhere.test.", "20 broken.test."],
    ("broken.test", "A"): [SERVFAIL],
    ("neither.test", "TXT"): ['"nothing for mail"'],
    ("looping.test", "MX"): ["10 mx1.test.", f"20 {US}.", "30 mx2.test."],
    ("ours.test", "MX"): [f"10 {US}.", "20 mx2.test."],
}


async def test_the_preferred_exchanger_gets_the_mail() -> None:
    async with sinks("2", "3") as (first, second), routing(ZONE, connection={"port": first.port}) as routed:
        result = await routed.send_one()
        assert (result.result, result.remote) == ("success", f"mx1.test[127.0.0.2]:{first.port}")
        assert (len(first.received), second.connections) == (1, 0)


async def test_equal_exchangers_share_the_mail() -> None:
    zone = {**ZONE, MX: ["10 mx1.test.", "10 mx2.test."]}
    async with sinks("2", "3") as both, routing(zone, connection={"port": both[0].port}) as routed:
        for _ in range(40):  # that one of them gets all has a chance of one in 2 ** 39
            await routed.send_one()
        assert all(sink.received for sink in both)


async def test_a_few_of_many_exchangers_are_asked_about_at_the_same_time() -> None:
    """Or four messages, to domains that name thirty silent ones each, would have every place of the resolver."""
    names = [f"mx{n}.many.test" for n in range(12)]
    zone = {MX: [f"{n} {name}." for n, name in enumerate(names)], **{(name, "A"): [SILENT] for name in names}}
    async with sinks("2") as (sink,), routing(zone, connection={"port": sink.port}) as routed:
        sending = asyncio.create_task(routed.send_one())
        await until(lambda: len(routed.dns.asked) > 2, "the first questions about addresses")
        await asyncio.sleep(0.2)
        assert {name for name, _ in routed.dns.asked} == {"example.test", *names[:5]}
        await sending
        assert {name for name, _ in routed.dns.asked} == {"example.test", *names}


async def test_a_domain_without_mx_is_its_own_exchanger() -> None:
    async with sinks("3") as (sink,), routing(ZONE, connection={"port": sink.port}) as routed:
        result = await routed.send_one("bob@plain.test")
        assert (result.result, result.remote) == ("success", f"plain.test[127.0.0.3]:{sink.port}")


async def test_an_address_literal_is_delivered_to_its_address() -> None:
    async with sinks("2") as (sink,), routing(ZONE, connection={"port": sink.port}) as routed:
        assert (await routed.send_one("bob@[127.0.0.2]")).result == "success"
        assert sink.received[0].recipients == ("bob@[127.0.0.2]",)
        assert routed.dns.asked == []


@pytest.mark.parametrize(
    ("recipient", "enhanced"),
    [
        ("bob@null.test", "5.1.10"),
        ("bob@unknown.test", "5.1.2"),
        ("bob@neither.test", "5.1.2"),
        ("bob@nohost.test", "5.4.4"),
        ("bob@ours.test", "5.4.6"),
        ("bob@a..b", "5.1.2"),
        ("bob@[300.1.1.1]", "5.1.2"),
    ],
)
async def test_a_permanent_routing_failure_is_rejected(recipient: str, enhanced: str) -> None:
    async with routing(ZONE) as routed:
        [result] = await routed.send(recipient)
        outcome = result.outcome
        assert (outcome.kind, outcome.scope, outcome.enhanced) == ("failed", "destination", enhanced)
        assert (result.result, result.next_retry, result.remote) == ("rejected", None, None)


@pytest.mark.parametrize("domain", ["servfail.test", "silent.test", "halfway.test"])
async def test_a_temporary_routing_failure_is_resolved_again(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sinks("2") as (sink,), routing(ZONE, connection={"port": sink.port}) as routed:
        result = await routed.send_one(f"bob@{domain}")
        assert (result.outcome.kind, result.outcome.enhanced, result.result) == ("deferred", "4.4.3", None)
        assert result.next_retry is not None
        routed.dns.records[domain, "MX"] = ["10 mx1.test."]
        routed.dns.records["broken.test", "A"] = ["127.0.0.2"]
        later = monotonic() + 60  # a failure is kept for a while
        monkeypatch.setattr("queued.routing.resolver.monotonic", lambda: later)
        assert (await routed.send_one(f"bob@{domain}")).result == "success"


@pytest.mark.parametrize("recipient", ["bob@example.test", "bob@[127.0.0.2]"])
async def test_private_addresses_from_dns_are_used_only_if_allowed(recipient: str) -> None:
    async with (
        sinks("2", "3") as both,
        routing(ZONE, connection={"port": both[0].port}, allow={"private": False}) as routed,
    ):
        result = await routed.send_one(recipient)
        assert (result.outcome.kind, result.outcome.enhanced) == ("deferred", "4.4.4")
        assert "allow.private" in result.outcome.text
        assert [sink.connections for sink in both] == [0, 0]


async def test_exchangers_not_preferred_to_ourselves_are_skipped() -> None:
    async with sinks("3") as (worse,), routing(ZONE, connection={"port": worse.port}) as routed:
        result = await routed.send_one("bob@looping.test")
        assert (result.outcome.kind, result.remote) == ("deferred", f"mx1.test[127.0.0.2]:{worse.port}")
        assert worse.connections == 0


async def test_our_own_addresses_at_port_25_are_a_loop() -> None:
    async with routing(ZONE) as routed:
        result = await routed.send_one()
        assert (result.outcome.kind, result.outcome.enhanced) == ("failed", "5.4.6")


async def test_configured_own_addresses_at_any_port_are_a_loop() -> None:
    async with (
        sinks("2", "3") as both,
        routing(ZONE, ourselves=["127.0.0.3"], connection={"port": both[0].port}) as routed,
    ):
        assert (await routed.send_one()).result == "success"
        assert both[1].connections == 0
        routed.dns.records["worse.test", "MX"] = ["5 mx2.test.", "10 mx1.test."]
        assert (await routed.send_one("bob@worse.test")).outcome.enhanced == "5.4.6"


async def test_routes_take_precedence_over_dns() -> None:
    async with sinks("4") as (sink,):
        place = f"127.0.0.4:{sink.port}"
        routes = {"null.test": place, ".example.test": place}
        async with routing(ZONE, routes=routes, allow={"private": False}) as routed:
            assert (await routed.send_one("bob@null.test")).result == "success"
            assert (await routed.send_one("bob@a.b.Example.Test")).remote == place
            assert routed.dns.asked == []


async def test_smart_hosts_need_no_dns_and_get_address_literals() -> None:
    async with sinks("2", "3") as (first, second):
        hosts = [
            {"server": "127.0.0.3", "port": second.port, "preference": 20},
            {"server": "127.0.0.2", "port": first.port},
        ]
        async with routing({}, connection={"mode": "smarthost", "hosts": hosts}) as routed:
            results = await routed.send("bob@one.test", "eve@two.test", "joe@[192.0.2.1]")
            assert {r.remote for r in results} == {f"127.0.0.2:{first.port}"}
            assert (len(first.received), len(second.received), routed.dns.asked) == (1, 0, [])


async def test_a_transport_with_one_server_needs_no_resolver() -> None:
    async with sinks("1") as (sink,):
        settings = TransportSettings.model_validate({"connection": {"server": "localhost", "port": sink.port}})
        transport = Transport(settings, US)
        async with routing({}) as other:
            result = await Routed(transport, other.dns, other.resolver).send_one("bob@anything.test")
        assert (result.result, result.remote) == ("success", f"localhost:{sink.port}")
        await transport.close()


async def test_a_stop_does_not_wait_for_dns_and_releases_the_mail() -> None:
    async with routing(ZONE) as routed:
        attempt = asyncio.create_task(routed.attempt("bob@silent.test"))
        await until(lambda: routed.dns.asked, "the question")
        await routed.resolver.close()
        assert await attempt is None


async def test_mail_is_deferred_if_all_hosts_refuse_the_connection() -> None:
    async with routing(ZONE, connection={"port": free_port()}) as routed:
        result = await routed.send_one()
        assert (result.outcome.kind, result.outcome.enhanced) == ("deferred", "4.4.1")
        assert result.remote is not None
        assert result.remote.startswith("mx2.test[127.0.0.3]")


async def test_of_an_exchanger_with_many_addresses_some_are_considered() -> None:
    """They are remembered for each domain: thirty exchangers of a hundred addresses each took half a megabyte."""
    names = [f"mx{n}.many.test" for n in range(30)]
    zone = {
        MX: [f"{n} {name}." for n, name in enumerate(names)],
        **{(name, "A"): [f"127.1.{n}.{a}" for a in range(50)] for n, name in enumerate(names)},
    }
    async with routing(zone, connection={"port": 2525}) as routed:
        hops = await routed.transport.finder.find("example.test")
    assert [hop.name for hop in hops] == [name for name in names[:6] for _ in range(10)]
