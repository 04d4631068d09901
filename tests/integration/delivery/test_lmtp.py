"""test_lmtp — LMTP: a reply for each recipient, over TCP and a Unix socket, with Dovecot and with incorrect hosts

See: RFC 2033; queued/smtp/lmtp.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from queued.dsn.requested import notice
from queued.outcome.classify import classify
from queued.smtp.lmtp import LmtpConnection
from queued.smtp.transaction import Timeouts
from tests.fixtures.daemons.routed import routing
from tests.fixtures.daemons.smtp_send import to
from tests.fixtures.peers.scripted_peer import CLOSE, CONTENT, HANG, ScriptedPeer

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from queued.smtp.transaction import TransactionResult
    from tests.fixtures.peers.dovecot import Dovecot

    type Starts = Callable[..., AbstractAsyncContextManager[Dovecot]]

GREETING = (b"220 peer.example LMTP\r\n", "LHLO", b"250-peer.example\r\n250 PIPELINING\r\n")
THREE = ("bob@example.net", "carol@example.net", "dave@example.net")
ENVELOPE = ("MAIL", "RCPT", "RCPT", "RCPT", "DATA")
OK, GO, BYE = b"250 2.0.0 OK\r\n", b"354 go ahead\r\n", b"221 2.0.0 bye\r\n"


def lmtp(**connection: Any) -> dict[str, Any]:
    return {"connection": {"mode": "smarthost", "protocol": "lmtp", "server": "127.0.0.1", **connection}}


async def speak(peer: ScriptedPeer, *recipients: str, **limits: float) -> tuple[TransactionResult, bool]:
    """One transaction, and whether the connection may be used again."""
    connection = await LmtpConnection.open(
        "127.0.0.1", peer.port, hostname="client.example", timeouts=Timeouts(**limits)
    )
    result = await connection.send(to(*recipients))
    usable = connection.usable
    connection.abort()
    return result, usable


@pytest.mark.parametrize("way", ["tcp", "unix"])
async def test_dovecot_answers_for_each_recipient(dovecot: Starts, way: str) -> None:
    async with dovecot() as peer:
        place = {"port": peer.port} if way == "tcp" else {"socket": str(peer.socket)}
        async with routing({}, **lmtp(**place)) as routed:
            recipients = [f"{name}@example.net" for name in ("bob", "nobody", "full", "carol")]
            results = await routed.send(*recipients)
            again = await routed.send("bob@example.net")
            where = f"unix:{peer.socket}" if way == "unix" else f"127.0.0.1:{peer.port}"
            assert {result.remote for result in results} == {where}
        outcomes = [result.outcome for result in results]
        assert [outcome.kind for outcome in outcomes] == ["delivered", "failed", "failed", "delivered"], peer.log
        assert [(o.reply_code, o.phase, o.scope) for o in outcomes[1:3]] == [
            (550, "rcpt", "recipient"),
            (552, "dot", "recipient"),  # a full mailbox, which only the final reply reports
        ]
        assert [len(peer.mails(name)) for name in ("bob", "full", "carol")] == [2, 0, 1]
        assert again[0].result == "success"


@pytest.mark.parametrize("offers", [b"250 PIPELINING\r\n", b"250 SIZE 1000000\r\n"])
async def test_each_recipient_has_its_own_reply(offers: bytes) -> None:
    greeting = (b"220 peer.example LMTP\r\n", "LHLO", b"250-peer.example\r\n" + offers)
    if b"PIPELINING" in offers:
        envelope: tuple[bytes | str, ...] = (*ENVELOPE, OK, OK, b"550 5.1.1 who\r\n", OK, GO)
    else:
        envelope = ("MAIL", OK, "RCPT", OK, "RCPT", b"550 5.1.1 who\r\n", "RCPT", OK, "DATA", GO)
    last = (CONTENT, b"250 2.1.5 bob has it\r\n", b"452 4.2.2 dave is full\r\n")
    async with ScriptedPeer(*greeting, *envelope, *last, "QUIT", BYE, HANG) as peer:
        result, usable = await speak(peer, *THREE)
    assert [(o.kind, o.scope, o.phase, o.enhanced) for o in classify(result)] == [
        ("delivered", "recipient", "dot", "2.1.5"),
        ("failed", "recipient", "rcpt", "5.1.1"),
        ("deferred", "recipient", "dot", "4.2.2"),
    ]
    assert not usable  # the reply to QUIT shows that none was moved by one too many
    assert result.fault is None


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("end", [CLOSE, HANG])
async def test_a_connection_lost_between_replies_leaves_the_others_uncertain(after: int, end: str) -> None:
    script = (*GREETING, *ENVELOPE, OK, OK, OK, OK, GO, CONTENT, OK * after, end)
    async with ScriptedPeer(*script) as peer:
        result, usable = await speak(peer, *THREE, dot=0.3)
    outcomes = classify(result)
    assert [o.kind for o in outcomes] == ["delivered"] * after + ["deferred"] * (3 - after)
    assert [o.uncertain for o in outcomes] == [False] * after + [True] * (3 - after)
    assert not usable


async def test_a_421_among_the_replies_counts_for_one_recipient_and_ends_the_connection() -> None:
    replies = OK + b"421 4.3.2 going\r\n" + b"250 2.0.0 but this one\r\n"
    async with ScriptedPeer(*GREETING, *ENVELOPE, OK, OK, OK, OK, GO, CONTENT, replies, HANG) as peer:
        result, usable = await speak(peer, *THREE)
    assert [(o.kind, o.uncertain) for o in classify(result)] == [
        ("delivered", False),
        ("deferred", False),
        ("delivered", False),
    ]
    assert not usable


async def test_a_surplus_reply_is_not_taken_by_the_next_transaction() -> None:
    """The next transaction must not take it for its own."""
    async with ScriptedPeer(*GREETING, *ENVELOPE, OK, OK, OK, OK, GO, CONTENT, OK * 4, HANG) as peer:
        result, usable = await speak(peer, *THREE)
    assert [o.kind for o in classify(result)] == ["delivered"] * 3
    assert not usable


FULL, GONE = b"452 4.2.2 full\r\n", b"550 5.1.1 gone\r\n"


@pytest.mark.parametrize("replies", [(OK, FULL, OK, OK), (OK, OK, GONE, OK), (FULL, OK, OK, OK), (OK, OK, OK, GONE)])
async def test_a_surplus_reply_among_different_ones_makes_all_uncertain(replies: tuple[bytes, ...]) -> None:
    """The first may be the one too many: then each has the reply of the one before it."""
    script = (*GREETING, *ENVELOPE, OK, OK, OK, OK, GO, CONTENT, b"".join(replies), HANG)
    async with ScriptedPeer(*script) as peer:
        result, usable = await speak(peer, *THREE)
    assert [(o.kind, o.uncertain) for o in classify(result)] == [("deferred", True)] * 3
    assert not usable


async def test_a_late_surplus_reply_is_detected_if_replies_differ() -> None:
    script = (*GREETING, *ENVELOPE, OK, OK, OK, OK, GO, CONTENT, OK + OK + GONE, "QUIT", OK, BYE, HANG)
    async with ScriptedPeer(*script) as peer:
        result, usable = await speak(peer, *THREE)
    assert [o.kind for o in classify(result)] == ["deferred"] * 3
    assert not usable


async def test_a_421_among_surplus_replies_makes_all_uncertain() -> None:
    script = (*GREETING, *ENVELOPE, OK, OK, OK, OK, GO, CONTENT, OK + b"421 4.3.2 going\r\n" + OK + OK, HANG)
    async with ScriptedPeer(*script) as peer:
        result, _ = await speak(peer, *THREE)
    assert [(o.kind, o.uncertain) for o in classify(result)] == [("deferred", True)] * 3


@pytest.mark.parametrize("nonsense", [b"what?\r\n", b"354 go on\r\n"])
async def test_a_delivered_recipient_stays_delivered_after_a_later_invalid_reply(nonsense: bytes) -> None:
    script = (*GREETING, *ENVELOPE, OK, OK, OK, OK, GO, CONTENT, OK + GONE + nonsense, HANG)
    async with ScriptedPeer(*script) as peer:
        result, usable = await speak(peer, *THREE)
    assert [(o.kind, o.uncertain) for o in classify(result)] == [
        ("delivered", False),
        ("deferred", True),
        ("deferred", True),
    ]
    assert not usable


async def test_content_is_not_sent_without_a_valid_recipient() -> None:
    """RFC 2033 section 4.2: to a lone dot nothing would be answered."""
    refused = b"550 5.1.1 who\r\n"
    async with ScriptedPeer(*GREETING, *ENVELOPE, OK, refused, refused, refused, GO, HANG) as peer:
        result, usable = await speak(peer, *THREE, dot=0.3)
    assert [o.kind for o in classify(result)] == ["failed"] * 3
    assert not usable
    assert b"." not in peer.heard


async def test_a_refused_data_command_keeps_the_refusal_of_each_recipient() -> None:
    refused = b"550 5.1.1 who\r\n"
    script = (*GREETING, *ENVELOPE, OK, refused, refused, refused, b"503 5.5.1 nobody\r\n", "QUIT", BYE, HANG)
    async with ScriptedPeer(*script) as peer:
        result, usable = await speak(peer, *THREE)
    assert [o.kind for o in classify(result)] == ["failed"] * 3
    assert not usable


async def test_a_452_after_the_dot_is_not_retried_at_once() -> None:
    """452 to RCPT means too many recipients; at the dot it does not."""
    replies = (OK, b"452 no room\r\n", "QUIT", b"221 bye\r\n")
    script = (*GREETING, "MAIL", "RCPT", "RCPT", "DATA", OK, OK, OK, GO, CONTENT, *replies)
    async with ScriptedPeer(*script) as peer, routing({}, **lmtp(port=peer.port)) as routed:
        results = await routed.send("bob@example.net", "full@example.net")
        assert [result.outcome.kind for result in results] == ["delivered", "deferred"]
        assert peer.heard.count(b"DATA") == 1


@pytest.mark.parametrize(("offers", "expected"), [(b"250 PIPELINING\r\n", "delivered"), (b"250 DSN\r\n", None)])
async def test_notify_success_causes_a_delivered_notice(offers: bytes, expected: str | None) -> None:
    """RFC 3461 section 5.2: mail has arrived where it ends. A host with DSN says so itself."""
    greeting = (b"220 peer.example LMTP\r\n", "LHLO", b"250-peer.example\r\n" + offers)
    both = b"PIPELINING" in offers
    envelope = ("MAIL", "RCPT", "DATA", OK, OK, GO) if both else ("MAIL", OK, "RCPT", OK, "DATA", GO)
    script = (*greeting, *envelope, CONTENT, OK, HANG)
    async with ScriptedPeer(*script) as peer, routing({}, **lmtp(port=peer.port)) as routed:
        [result] = await routed.send("bob@example.net", _dsn={"notify": ["SUCCESS"]})
    assert result.result == "success"
    assert notice(result) == expected


async def test_a_missing_socket_is_deferred(tmp_path: Path) -> None:
    async with routing({}, **lmtp(socket=str(tmp_path / "gone"))) as routed:
        [result] = await routed.send("bob@example.net")
    assert (result.outcome.kind, result.outcome.scope) == ("deferred", "destination")
    assert "No such file" in result.outcome.text
