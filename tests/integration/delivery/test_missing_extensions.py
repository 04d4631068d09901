"""test_missing_extensions — a message that needs a missing extension of the host fails, and nothing is sent"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queued.outcome.classify import classify
from queued.smtp.commands import refuse_message
from scripts.sink.records import EXTENSIONS
from scripts.sink.server import Sink
from tests.fixtures.daemons.smtp_send import send_once, to

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
