"""test_remainder — recipients beyond the limit of a transaction follow at once in the next (RFC 5321 §4.5.3.1.10)"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from queued.values import Lease
from queued.waiting.watchdog import AttemptStep, Watch
from tests.fixtures.daemons.routed import Routed, routing
from tests.fixtures.heard import until
from tests.fixtures.peers.scripted_peer import CLOSE, CONTENT, HANG, PLAIN, ScriptedPeer

if TYPE_CHECKING:
    from tests.fixtures.heard import Heard

OK, GO = b"250 Ok\r\n", b"354 go on\r\n"
TOO_MANY = b"452 4.5.3 Too many recipients\r\n"
TAKEN = ("MAIL", OK, "RCPT", OK)
ONE, TWO, THREE = "one@example.test", "two@example.test", "three@example.test"


def to(peer: ScriptedPeer) -> dict[str, object]:
    """A transport to this peer alone."""
    return {"mode": "smarthost", "server": "127.0.0.1", "port": peer.port}


async def outcomes(routed: Routed, *recipients: str) -> list[tuple[str, str | None]]:
    """The fate of each recipient: result or outcome, and the enhanced code."""
    return [(r.result or r.outcome.kind, r.outcome.enhanced) for r in await routed.send(*recipients)]


async def test_recipients_over_the_limit_follow_in_further_transactions() -> None:
    end = ("DATA", GO, CONTENT, b"250 2.0.0 taken\r\n")
    script = (*TAKEN, "RCPT", TOO_MANY, "RCPT", TOO_MANY, *end, *TAKEN, "RCPT", TOO_MANY, *end, *TAKEN, *end)
    async with ScriptedPeer(*PLAIN, *script) as peer, routing({}, connection=to(peer)) as routed:
        assert await outcomes(routed, ONE, TWO, THREE) == [("success", "2.0.0")] * 3
        assert peer.connections == 1
        assert [line for line in peer.heard if line.startswith(b"RCPT")][-1] == b"RCPT TO:<three@example.test>"


async def test_a_552_without_enhanced_code_means_too_many_recipients() -> None:
    end = ("DATA", GO, CONTENT, b"250 2.0.0 taken\r\n")
    script = (*TAKEN, "RCPT", b"552 too many\r\n", *end, *TAKEN, *end)
    async with ScriptedPeer(*PLAIN, *script) as peer, routing({}, connection=to(peer)) as routed:
        assert await outcomes(routed, ONE, TWO) == [("success", "2.0.0")] * 2


@pytest.mark.parametrize("said", [b"452 4.2.2 mailbox full\r\n", b"452 4.3.1 disk full\r\n", b"451 4.7.1 later\r\n"])
async def test_other_452_replies_wait_for_the_retry(said: bytes) -> None:
    script = (*TAKEN, "RCPT", said, "DATA", GO, CONTENT, b"250 2.0.0 taken\r\n")
    async with ScriptedPeer(*PLAIN, *script) as peer, routing({}, connection=to(peer)) as routed:
        [one, two] = await outcomes(routed, ONE, TWO)
        assert (one, two) == (("success", "2.0.0"), ("deferred", said.decode().split()[1]))


async def test_a_host_that_accepted_no_recipient_gets_no_further_transaction() -> None:
    script = ("MAIL", OK, "RCPT", TOO_MANY, "RCPT", TOO_MANY)
    async with ScriptedPeer(*PLAIN, *script) as peer, routing({}, connection=to(peer)) as routed:
        assert await outcomes(routed, ONE, TWO) == [("deferred", "4.5.3")] * 2
        assert sum(line.startswith(b"MAIL") for line in peer.heard) == 1


async def test_a_lost_session_leaves_the_remaining_recipients_deferred_with_452() -> None:
    script = (*TAKEN, "RCPT", TOO_MANY, "DATA", GO, CONTENT, b"250 2.0.0 taken\r\n", "MAIL", OK, "RCPT", CLOSE)
    async with ScriptedPeer(*PLAIN, *script) as peer, routing({}, connection=to(peer)) as routed:
        peer_results = await outcomes(routed, ONE, TWO)
        assert peer_results == [("success", "2.0.0"), ("deferred", "4.5.3")]


async def test_a_lost_reply_to_the_next_transaction_is_uncertain() -> None:
    end = ("DATA", GO, CONTENT)
    script = (*TAKEN, "RCPT", TOO_MANY, *end, b"250 2.0.0 taken\r\n", *TAKEN, *end, CLOSE)
    async with ScriptedPeer(*PLAIN, *script) as peer, routing({}, connection=to(peer)) as routed:
        one, two = await routed.send(ONE, TWO)
        assert (one.result, two.outcome.kind, two.outcome.uncertain) == ("success", "deferred", True)


@pytest.mark.parametrize("phase", ["rcpt", "dot"])
async def test_an_aborted_next_transaction_keeps_earlier_deliveries(phase: str) -> None:
    """The lease of the attempt is cut, as the watchdog does it, while the second recipient's transaction goes on."""
    end = ("DATA", GO, CONTENT)
    last: tuple[bytes | str, ...] = ("MAIL", OK, "RCPT", HANG) if phase == "rcpt" else (*TAKEN, *end, HANG)
    script = (*TAKEN, "RCPT", TOO_MANY, *end, b"250 2.0.0 taken\r\n", *last)
    async with ScriptedPeer(*PLAIN, *script) as peer, routing({}, connection=to(peer)) as routed:
        lease = Lease(monotonic() + 60)
        progress = AttemptStep(lease, 60.0, 60.0)
        Watch().begin(progress)
        sending = asyncio.create_task(routed.send(ONE, TWO, lease=lease))
        sent = b"RCPT TO:<two@example.test>"
        await until(lambda: peer.heard.count(sent) == 2 and progress.phase == phase, "the second transaction to hang")
        lease.cut()
        one, two = await sending
    assert (one.result, two.outcome.kind, two.outcome.uncertain) == ("success", "deferred", phase == "dot")
    assert two.outcome.enhanced == ("4.5.3" if phase == "rcpt" else two.outcome.enhanced)


async def test_a_fault_of_ours_keeps_earlier_deliveries(monkeypatch: pytest.MonkeyPatch, heard: Heard) -> None:
    end = ("DATA", GO, CONTENT, b"250 2.0.0 taken\r\n")
    async with (
        ScriptedPeer(*PLAIN, *TAKEN, "RCPT", TOO_MANY, *end, "QUIT") as peer,
        routing({}, connection=to(peer)) as routed,
    ):
        monkeypatch.setattr("queued.outcome.remainder.part", lambda offered, _: offered._replace(recipients=(None,)))
        one, two = await routed.send(ONE, TWO)
    assert (one.result, two.outcome.kind) == ("success", "deferred")
    assert heard.all("daemon.failed")
