"""test_next_hop_limits — a host that limits the messages of a connection or the recipients of a message delays no mail

See: RFC 9422; RFC 5321 section 3.8 (421). By default Exim replies 421 after 1,000 messages on a connection, and
    OpenSMTPD 452 after 100.
"""

from __future__ import annotations

from itertools import chain

import pytest

from tests.fixtures.daemons.routed import Routed, routing, sinks
from tests.fixtures.peers.scripted_peer import CLOSE, CONTENT, GREETING, HANG, PIPELINING, PLAIN, ScriptedPeer

OK, TAKEN = b"250 2.0.0 ok\r\n", b"250 2.0.0 taken\r\n"
END = ("DATA", b"354 go on\r\n", CONTENT, TAKEN)
ONE = ("MAIL", OK, "RCPT", OK, *END)
ENOUGH = b"421 4.7.0 too many messages on this connection\r\n"
TOO_MANY = b"452 4.5.3 too many messages sent\r\n"
BOXES = [f"{name}@example.test" for name in ("one", "two", "three", "four", "five")]


def to(peer: ScriptedPeer) -> dict[str, object]:
    """A transport to this peer alone."""
    return {"mode": "smarthost", "server": "127.0.0.1", "port": peer.port}


def announcing(limits: str) -> tuple[bytes | str, ...]:
    """The beginning of a session with a host of these limits."""
    return (*GREETING, f"250-peer.example\r\n250 LIMITS {limits}\r\n".encode())


async def outcomes(routed: Routed, *recipients: str) -> list[tuple[str, str | None]]:
    """The fate of each recipient: result or outcome, and the enhanced code."""
    return [(r.result or r.outcome.kind, r.outcome.enhanced) for r in await routed.send(*recipients)]


@pytest.mark.parametrize(
    "last",
    [
        ("MAIL", ENOUGH, CLOSE),
        ("MAIL", OK, "RCPT", ENOUGH, CLOSE),
        ("MAIL", OK, "RCPT", OK, "DATA", ENOUGH, CLOSE),
        ("MAIL", TOO_MANY, "QUIT"),
    ],
    ids=["mail", "rcpt", "data", "452"],
)
async def test_a_message_too_many_on_a_connection_goes_over_a_new_one(last: tuple[bytes | str, ...]) -> None:
    async with ScriptedPeer(*PLAIN, *ONE, *last) as peer, routing({}, connection=to(peer)) as routed:
        results = [(await routed.send_one()).result for _ in range(2)]
        peer.script = (*PLAIN, *ONE, "QUIT")
        assert [*results, (await routed.send_one()).result] == ["success"] * 3
        assert peer.connections == 3


@pytest.mark.parametrize(
    "said",
    [
        (TOO_MANY, b"503 5.5.1 need MAIL\r\n", b"503 5.5.1 need MAIL\r\n", "QUIT", b"221 2.0.0 bye\r\n"),
        (ENOUGH, CLOSE),
    ],
    ids=["452", "421"],
)
async def test_pipelined_a_message_too_many_goes_over_a_new_one(said: tuple[bytes | str, ...]) -> None:
    commands = ("MAIL", "RCPT", "DATA")
    one = (*commands, OK, OK, b"354 go on\r\n", CONTENT, TAKEN)
    async with ScriptedPeer(*PIPELINING, *one, *commands, *said) as peer, routing({}, connection=to(peer)) as routed:
        results = [(await routed.send_one()).result for _ in range(2)]
        peer.script = (*PIPELINING, *one, "QUIT")
        assert [*results, (await routed.send_one()).result] == ["success"] * 3
        assert peer.connections == 3


@pytest.mark.parametrize("said", [b"452 4.3.1 disk full\r\n", b"451 4.7.1 later\r\n", b"452 no room\r\n"])
async def test_other_refusals_of_a_message_wait_for_the_retry(said: bytes) -> None:
    async with ScriptedPeer(*PLAIN, *ONE, "MAIL", said) as peer, routing({}, connection=to(peer)) as routed:
        assert (await routed.send_one()).result == "success"
        assert (await routed.send_one()).outcome.kind == "deferred"
        assert peer.connections == 1


@pytest.mark.parametrize("said", [ENOUGH, TOO_MANY])
async def test_a_host_that_refuses_the_first_message_is_not_asked_again(said: bytes) -> None:
    async with ScriptedPeer(*PLAIN, "MAIL", said, HANG) as peer, routing({}, connection=to(peer)) as routed:
        assert (await routed.send_one()).outcome.kind == "deferred"
        assert peer.connections == 1


async def test_a_connection_is_not_kept_beyond_the_announced_number_of_messages() -> None:
    async with ScriptedPeer(*announcing("MAILMAX=2"), *ONE, *ONE, "QUIT") as peer:
        async with routing({}, connection=to(peer)) as routed:
            assert [(await routed.send_one()).result for _ in range(6)] == ["success"] * 6
        assert (peer.connections, peer.heard.count(b"QUIT")) == (3, 3)


async def test_recipients_beyond_the_announced_number_follow_in_further_transactions() -> None:
    two = ("MAIL", OK, "RCPT", OK, "RCPT", OK, *END)
    async with ScriptedPeer(*announcing("RCPTMAX=2"), *two, *two, *ONE) as peer:
        async with routing({}, connection=to(peer)) as routed:
            assert await outcomes(routed, *BOXES) == [("success", "2.0.0")] * 5
        assert peer.connections == 1
        assert [line for line in peer.heard if line.startswith(b"RCPT")] == [
            b"RCPT TO:<%s>" % b.encode() for b in BOXES
        ]


async def test_recipients_of_domains_beyond_the_announced_number_follow_in_further_transactions() -> None:
    boxes = ["a@one.example", "b@two.example", "c@ONE.example", "d@three.example", "e@two.example"]
    transactions = [["a", "c"], ["b", "e"], ["d"]]
    script = [("MAIL", OK, *("RCPT", OK) * len(each), *END) for each in transactions]
    async with ScriptedPeer(*announcing("RCPTDOMAINMAX=1"), *chain.from_iterable(script)) as peer:
        async with routing({}, connection=to(peer)) as routed:
            assert await outcomes(routed, *boxes) == [("success", "2.0.0")] * 5
        asked = [line[9:10].decode() for line in peer.heard if line.startswith(b"RCPT")]
        assert (asked, peer.connections) == ([*chain.from_iterable(transactions)], 1)


async def test_recipients_follow_refused_ones() -> None:
    refused = ("MAIL", OK, "RCPT", b"550 5.1.1 unknown\r\n")
    script = (*announcing("RCPTMAX=1"), *refused, "RSET", OK, *refused, "QUIT", b"221 2.0.0 bye\r\n")
    async with ScriptedPeer(*script) as peer, routing({}, connection=to(peer)) as routed:
        assert await outcomes(routed, *BOXES[:4]) == [("failed", "5.1.1")] * 4


@pytest.mark.parametrize(
    "end",
    [
        ("MAIL", b"550 5.7.1 no\r\n"),
        ("MAIL", OK, "RCPT", OK, "DATA", b"550 5.7.1 no\r\n"),
        ("MAIL", OK, "RCPT", OK, "DATA", b"354 go on\r\n", CONTENT, b"550 5.7.1 no\r\n"),
    ],
    ids=["mail", "data", "dot"],
)
async def test_a_refused_message_is_refused_for_all_recipients(end: tuple[bytes | str, ...]) -> None:
    script = (*announcing("RCPTMAX=1"), *end, "QUIT", b"221 2.0.0 bye\r\n")
    async with ScriptedPeer(*script) as peer, routing({}, connection=to(peer)) as routed:
        assert await outcomes(routed, *BOXES[:2]) == [("failed", "5.7.1")] * 2
        assert sum(line.startswith(b"MAIL") for line in peer.heard) == 1


async def test_a_host_that_fails_before_content_is_skipped_for_all_recipients() -> None:
    async with (
        ScriptedPeer(*announcing("RCPTMAX=1"), "MAIL", OK, "RCPT", CLOSE) as peer,
        sinks("2", port=peer.port) as (second,),
    ):
        hosts = [{"server": f"127.0.0.{n}", "port": peer.port, "preference": n} for n in (1, 2)]
        async with routing({}, connection={"mode": "smarthost", "hosts": hosts}) as routed:
            assert await outcomes(routed, *BOXES[:2]) == [("success", "2.0.0")] * 2
        assert len(second.received) == 1


async def test_an_uncertain_message_is_not_uncertain_for_those_not_offered() -> None:
    end = ("DATA", b"354 go on\r\n", CONTENT, CLOSE)
    async with ScriptedPeer(*announcing("RCPTMAX=1"), "MAIL", OK, "RCPT", OK, *end) as peer:
        async with routing({}, connection=to(peer)) as routed:
            one, two = await routed.send(*BOXES[:2])
        assert [(r.outcome.kind, r.outcome.uncertain) for r in (one, two)] == [("deferred", True), ("deferred", False)]
        assert (two.outcome.enhanced, peer.connections) == ("4.5.3", 1)
