"""test_failover — the next host is tried if one was unavailable, but never after content was sent

See: test_routing.py for the choice of hosts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from queued.deliver import Deferral
from tests.fixtures.daemons.routed import routing, sinks
from tests.fixtures.heard import until
from tests.fixtures.peers.scripted_peer import CLOSE, PLAIN, RESET, ScriptedPeer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fixtures.heard import Heard

ZONE: dict[tuple[str, str], Sequence[str]] = {
    ("example.test", "MX"): ["10 mx1.test.", "20 mx2.test.", "30 mx3.test."],
    ("mx1.test", "A"): ["127.0.0.1"],
    ("mx2.test", "A"): ["127.0.0.2"],
    ("mx3.test", "A"): ["127.0.0.3"],
}


async def test_a_dead_host_is_skipped_and_logged(heard: Heard) -> None:
    async with sinks("3") as (third,), routing(ZONE, connection={"port": third.port}) as routed:
        result = await routed.send_one()
        passed = [str(event["remote"]) for event in heard.all("failover.passed")]
        assert passed == [f"mx{n}.test[127.0.0.{n}]:{third.port}" for n in (1, 2)]
        assert (result.result, result.remote) == ("success", f"mx3.test[127.0.0.3]:{third.port}")


@pytest.mark.parametrize("greeting", [421, 450, 554])
async def test_a_host_that_refuses_the_greeting_is_skipped(greeting: int) -> None:
    options = {"greeting": greeting}
    async with (
        sinks("1", "2", "3", h1=options, h2=options) as all_of_them,
        routing(ZONE, connection={"port": all_of_them[0].port}) as routed,
    ):
        assert (await routed.send_one()).result == "success"
        assert [sink.connections for sink in all_of_them] == [1, 1, 1]


@pytest.mark.parametrize(
    "script",
    [
        (RESET,),
        (b"220 ready\r\n", CLOSE),
        (b"nonsense\r\n", CLOSE),
        (*PLAIN, "MAIL", CLOSE),
        (*PLAIN, "MAIL", b"421 4.3.2 going down\r\n", CLOSE),
        (*PLAIN, "MAIL", b"250 ok\r\n", "RCPT", b"421 4.3.2 going down\r\n", CLOSE),
        (*PLAIN, "MAIL", b"250 ok\r\n", "RCPT", b"250 ok\r\n", "DATA", CLOSE),
        (*PLAIN, "MAIL", b"250 ok\r\n", "RCPT", b"250 ok\r\n", "DATA", b"421 4.3.2 going down\r\n", CLOSE),
    ],
)
async def test_a_host_that_fails_before_content_is_skipped(script: tuple[bytes | str, ...]) -> None:
    async with (
        ScriptedPeer(*script) as peer,
        sinks("2", port=peer.port) as (second,),
        routing(ZONE, connection={"port": peer.port}) as routed,
    ):
        assert (await routed.send_one()).result == "success"
        assert (peer.connections, len(second.received)) == (1, 1)


@pytest.mark.parametrize("box", ["dropdata", "dropdot", "451dot", "421dot"])
async def test_no_other_host_is_tried_after_content(box: str) -> None:
    async with (
        sinks("1", "2") as (first, second),
        routing(ZONE, connection={"port": first.port}) as routed,
    ):
        result = await routed.send_one(f"{box}@example.test")
        assert result.outcome.kind == "deferred"
        assert result.outcome.uncertain == box.startswith("drop")  # the dot was out
        assert (first.connections, second.connections) == (1, 0)


@pytest.mark.parametrize(
    ("box", "kind"), [("permerror", "failed"), ("temperror", "deferred"), ("greylist", "deferred")]
)
async def test_a_reply_about_the_recipient_is_final_for_the_attempt(box: str, kind: str) -> None:
    async with sinks("1", "2") as (first, second), routing(ZONE, connection={"port": first.port}) as routed:
        results = await routed.send(f"{box}@example.test", "good@example.test")
        assert [r.outcome.kind for r in results] == [kind, "delivered"]
        assert second.connections == 0


async def test_one_answered_recipient_prevents_failover_of_the_others() -> None:
    script = (*PLAIN, "MAIL", b"250 ok\r\n", "RCPT", b"550 5.1.1 nobody\r\n", "RCPT", CLOSE)
    async with (
        ScriptedPeer(*script) as peer,
        sinks("2", port=peer.port) as (second,),
        routing(ZONE, connection={"port": peer.port}) as routed,
    ):
        results = await routed.send("no@example.test", "bob@example.test")
        assert [r.outcome.kind for r in results] == ["failed", "deferred"]
        assert second.connections == 0


@pytest.mark.parametrize("other", ["answers", "is dead"])
async def test_a_host_that_takes_no_more_connections_is_passed_over_or_waited_for(other: str) -> None:
    hosts = ("1", "2") if other == "answers" else ("1",)
    async with sinks(*hosts, h1={"max_connections": 1}) as all_of_them:
        first = all_of_them[0]
        async with routing(ZONE, connection={"port": first.port, "addresses": 2}) as routed:
            slow = asyncio.create_task(routed.send_one("slow0.5@example.test"))
            await until(lambda: first.open_connections, "the only connection is open")
            following = await routed.attempt("bob@example.test")
            assert (await slow).result == "success"
            if other == "answers":
                assert isinstance(following, list)
                assert following[0].remote == f"mx2.test[127.0.0.2]:{first.port}"
            else:
                assert isinstance(following, Deferral)
                refused = "421 4.7.0 too many connections"
                assert following.reason == f"host mx1.test[127.0.0.1]:{first.port} takes no more connections: {refused}"
            assert (await routed.send_one()).remote == f"mx1.test[127.0.0.1]:{first.port}"


async def test_a_host_that_refuses_every_connection_is_at_fault() -> None:
    async with (
        sinks("1", h1={"greeting": 421}) as (first,),
        routing(ZONE, connection={"port": first.port, "addresses": 1}) as routed,
    ):
        assert (await routed.send_one()).outcome.kind == "deferred"


async def test_the_number_of_tried_addresses_is_limited() -> None:
    async with sinks("3") as (third,), routing(ZONE, connection={"port": third.port, "addresses": 2}) as routed:
        result = await routed.send_one()
        assert (result.outcome.enhanced, result.remote) == ("4.4.1", f"mx2.test[127.0.0.2]:{third.port}")
        assert third.connections == 0


async def test_the_number_of_tried_sessions_is_limited() -> None:
    async with (
        ScriptedPeer(*PLAIN, "MAIL", CLOSE) as peer,
        sinks("2", port=peer.port) as (second,),
        routing(ZONE, connection={"port": peer.port, "sessions": 1}) as routed,
    ):
        result = await routed.send_one()
        assert (result.outcome.enhanced, second.connections) == ("4.4.2", 0)


async def test_smart_hosts_fail_over_by_preference() -> None:
    async with sinks("2", "3", h2={"greeting": 421}) as (first, second):
        hosts = [
            {"server": f"127.0.0.{n}", "port": first.port, "preference": preference}
            for n, preference in ((9, 5), (2, 10), (3, 20))
        ]
        async with routing({}, connection={"mode": "smarthost", "hosts": hosts}) as routed:
            assert (await routed.send_one()).remote == f"127.0.0.3:{first.port}"
            assert (first.connections, len(second.received)) == (1, 1)
