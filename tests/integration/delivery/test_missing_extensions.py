"""test_missing_extensions — a message that needs an extension that the host lacks fails, and nothing is sent"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queued.outcome.classify import classify
from queued.smtp.commands import refuse_message
from scripts.sink.records import EXTENSIONS
from scripts.sink.server import Sink
from tests.fixtures.daemons.routed import routing
from tests.fixtures.daemons.smtp_send import send_once, to
from tests.fixtures.peers.scripted_peer import GREETING, ScriptedPeer

if TYPE_CHECKING:
    from queued.smtp.transaction import Transaction

EIGHT_BIT = "Subject: hello\r\n\r\ngrüße\r\n".encode()


@pytest.mark.parametrize(
    ("lacking", "transaction", "enhanced"),
    [
        ("8BITMIME", to("bob@example.net", content=EIGHT_BIT), "5.6.3"),
        ("SMTPUTF8", to("bøb@example.net", smtputf8=True), "5.6.7"),
        ("REQUIRETLS", to("bob@example.net", requiretls=True), "5.7.30"),
    ],
)
async def test_a_message_that_needs_a_missing_extension_fails_unsent(
    lacking: str, transaction: Transaction, enhanced: str
) -> None:
    async with Sink(extensions=EXTENSIONS - {lacking}) as sink:
        [outcome] = classify(await send_once(sink, transaction))
        assert (outcome.kind, outcome.enhanced) == ("failed", enhanced)
        assert (sink.received, sink.commands.get("MAIL", 0)) == ([], 0)


async def test_a_declared_extension_that_is_not_needed_is_ignored() -> None:
    async with Sink(extensions=EXTENSIONS - {"8BITMIME", "SMTPUTF8"}) as sink:
        [outcome] = classify(await send_once(sink, to("bob@example.net", body8bit=True, smtputf8=True)))
        assert (outcome.kind, len(sink.received)) == ("delivered", 1)


def test_a_host_with_all_extensions_gets_the_message() -> None:
    offered = dict.fromkeys(("8BITMIME", "SMTPUTF8", "REQUIRETLS"), "")
    assert refuse_message(to("bob@example.net", content=EIGHT_BIT, requiretls=True), offered) is None


async def test_keywords_that_the_transport_discards_count_as_not_offered() -> None:
    """Without PIPELINING the refusal of RCPT is read before DATA would be sent."""
    offers = (
        b"250-peer.example\r\n250-PIPELINING\r\n250-SIZE 10\r\n250-DSN\r\n250-LIMITS RCPTMAX=1\r\n250 MT-PRIORITY\r\n"
    )
    said = ("MAIL", b"250 ok\r\n", "RCPT", b"550 5.1.1 no\r\n", "RCPT", b"550 5.1.1 no\r\n", "QUIT")
    every = ["PIPELINING", "SIZE", "DSN", "LIMITS", "MT-PRIORITY"]
    async with ScriptedPeer(*GREETING, offers, *said) as peer:
        smart = {"mode": "smarthost", "server": "127.0.0.1", "port": peer.port}
        async with routing({}, connection=smart, discardkeywords=every) as routed:
            dsn = {"ret": "HDRS", "envid": "E1", "notify": ["NEVER"]}
            results = await routed.send("a@example.test", "b@example.test", _dsn=dsn)
            assert [result.outcome.enhanced for result in results] == ["5.1.1", "5.1.1"]
        assert peer.heard[1:4] == [
            b"MAIL FROM:<alice@sender.test>",
            b"RCPT TO:<a@example.test>",
            b"RCPT TO:<b@example.test>",
        ]
