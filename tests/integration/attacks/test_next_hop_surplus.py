"""test_next_hop_surplus — a reply too many makes nobody's refusal another's, and loses no mail

Owns: whatever the peer says that no command asked for, no recipient is failed by it, with and
    without pipelining; and what is accepted all the same is neither lost nor sent for ever.
See: RFC 2920 section 3.1; queued/smtp/client.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queued.outcome.classify import classify
from queued.smtp.client import SmtpConnection
from queued.smtp.transaction import Timeouts, Transaction
from tests.fixtures.peers.hostile_peer import hostile

if TYPE_CHECKING:
    from queued.smtp.transaction import TransactionResult

TWO = Transaction("alice@example.com", ("alive@example.net", "gone@example.net"), b"Subject: x\r\n\r\nx\r\n")
EXTRA = b"250 2.0.0 surplus\r\n"
LIMITS = Timeouts(mail=2, rcpt=2, data=2, dot=2, rset=1)


class Script:
    """Answers as an honest host that knows alive@ and not gone@, but for an extra reply after these verbs."""

    def __init__(self, extra: dict[bytes, bytes], *, pipelining: bool = True, before: bool = False) -> None:
        self._extra = extra
        self._pipelining = pipelining
        self._before = before

    async def __call__(self, line: bytes) -> bytes:
        """What is answered to a line."""
        verb = line[:4].upper().strip()
        if verb == b"EHLO":
            return b"250-evil.test\r\n250 PIPELINING\r\n" if self._pipelining else b"250 evil.test\r\n"
        honest = {b"DATA": b"354 go on\r\n", b".": b"250 2.0.0 taken\r\n"}.get(verb, b"250 2.0.0 ok\r\n")
        if b"gone@" in line:
            honest = b"550 5.1.1 no such user\r\n"
        extra = self._extra.get(verb, b"")
        return extra + honest if self._before else honest + extra


async def send(script: Script, transaction: Transaction = TWO) -> tuple[TransactionResult, bool]:
    async with hostile(script) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="us.test", timeouts=LIMITS)
        result = await connection.send(transaction)
        usable = connection.usable
        connection.abort()
        return result, usable


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("verb", [b"MAIL", b"RCPT", b"DATA"])
@pytest.mark.parametrize("extra", [EXTRA, b"550 5.1.1 no such user\r\n", b"354 go on\r\n"])
async def test_nobody_is_failed_by_a_reply_too_many(
    verb: bytes, extra: bytes, *, before: bool, pipelining: bool
) -> None:
    result, usable = await send(Script({verb: extra}, pipelining=pipelining, before=before))
    assert [outcome.kind for outcome in classify(result)] == ["deferred", "deferred"]
    assert not usable


@pytest.mark.parametrize("order", [("alive", "gone"), ("gone", "alive"), ("gone", "alive", "gone")])
async def test_a_late_extra_250_moves_no_refusal(order: tuple[str, ...]) -> None:
    """DATA is answered by the refusal of a recipient, and what is left over would answer the next command."""
    transaction = TWO._replace(recipients=tuple(f"{name}{n}@example.net" for n, name in enumerate(order)))

    class Late(Script):
        async def __call__(self, line: bytes) -> bytes:
            said = await super().__call__(line)
            return b"550 5.1.1 no such user\r\n" if b"gone" in line else said

    result, usable = await send(Late({b"MAIL": EXTRA}), transaction)
    assert {outcome.kind for outcome in classify(result)} == {"deferred"}
    assert not usable


async def test_without_a_reply_too_many_each_has_its_own() -> None:
    result, usable = await send(Script({}))
    assert [outcome.kind for outcome in classify(result)] == ["delivered", "failed"]
    assert usable
    both = TWO._replace(recipients=("gone@example.net", "also-gone@example.net"))
    result, usable = await send(Script({}), both)
    assert [outcome.kind for outcome in classify(result)] == ["failed", "failed"]
    assert usable


async def test_421_may_come_unasked() -> None:
    result, _ = await send(Script({b".": b"421 4.3.2 going down\r\n"}))
    assert [outcome.kind for outcome in classify(result)] == ["delivered", "failed"]


async def test_who_says_twice_that_it_has_the_message_has_it() -> None:
    """To disbelieve it would send the message again with every try."""
    result, usable = await send(Script({b".": EXTRA}))
    assert [outcome.kind for outcome in classify(result)] == ["delivered", "failed"]
    assert not usable


async def test_an_acceptance_that_is_taken_back_is_uncertain() -> None:
    result, _ = await send(Script({b".": b"550 5.7.1 rejected\r\n"}))
    assert [(outcome.kind, outcome.uncertain) for outcome in classify(result)] == [("deferred", True)] * 2
