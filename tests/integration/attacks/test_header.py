"""test_header — no content changes our own header fields, and no spelling or padding bypasses a rule

Owns: one story for each attack on From of limited users, on header limits and on rules, from SMTP to the queue.
See: RFC 5322 sections 2.2.3, 3.6; RFC 6409 section 6.1; tests/unit/smtpd/test_content.py, test_sender_check.py and
    tests/unit/policy/test_conditions.py for every form of it.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import asynccontextmanager
from email import message_from_bytes
from email.policy import SMTP
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.login import PASSWORD
from tests.fixtures.daemons.serving import HOSTNAME, MESSAGE, Dialogue, serving
from tests.fixtures.daemons.submitting import SENDER, settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from email.message import EmailMessage

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.peers.certificates import Authority

PLAIN = b"AUTH PLAIN " + b64encode(f"\0alice\0{PASSWORD}".encode())


@asynccontextmanager
async def alice(uri: str, authority: Authority, server: dict[str, Any] | None = None) -> AsyncIterator[Dialogue]:
    """A session of hers under TLS, where From has to be her own."""
    chosen = settings(authority, "starttls")
    chosen["server"] |= server or {}
    async with serving(uri, **chosen) as port, Dialogue(port) as client:
        assert (await client.ask(b"STARTTLS")).startswith("220")
        await client.writer.start_tls(authority.trust(), server_hostname=HOSTNAME)
        await client.say(b"EHLO client.example")
        assert (await client.ask(PLAIN)).startswith("235")
        yield client


def read(factory: Factory) -> list[EmailMessage]:
    """Every stored message as a reader of mail has it, oldest first."""
    rows = factory.sql("SELECT content FROM pillarbox.messages ORDER BY id")
    return [message_from_bytes(bytes(row.content), policy=SMTP) for row in rows]


@pytest.mark.parametrize("blank", [b" ", b"\t", b"\r\n "], ids=["space", "tab", "line"])
async def test_a_first_line_cannot_continue_a_field_of_ours(
    factory: Factory, authority: Authority, blank: bytes
) -> None:
    """The From we add is hers alone, and so is the header."""
    attack = blank + b", <ceo@corp.example>\r\nSubject: x\r\n\r\nbody\r\n"
    async with alice(factory.uri, authority) as client:
        assert (await client.submit(attack, sender=b"<" + SENDER.encode() + b">")).startswith("250")
    [message] = read(factory)
    assert message["From"].addresses[0].addr_spec == SENDER
    assert "ceo" not in str(message["From"])
    assert message["Subject"] is None
    assert message.get_content().lstrip().startswith(", <ceo@corp.example>")


@pytest.mark.parametrize("ending", ["accept", "fix", "reject"])
async def test_a_first_line_cannot_continue_a_field_that_policy_adds(factory: Factory, ending: str) -> None:
    rules = [{"id": "mark", "phase": "connect", "then": {"addheader": {"X-Origin": "net"}}}]
    server = {"phases": {"data": {"endofheader": ending}}}
    async with serving(factory.uri, server=server, policy={"rules": rules}) as port, Dialogue(port) as client:
        reply = await client.submit(b" injected\r\nSubject: x\r\n\r\nbody\r\n")
        assert reply.startswith("554 5.6.0 Header" if ending == "reject" else "250")
    assert [message["X-Origin"] for message in read(factory)] == ([] if ending == "reject" else ["net"])


async def test_a_blank_first_line_does_not_lift_the_header_limits(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.submit(b" \r\n" + b"Received: x\r\n" * 200 + MESSAGE)).startswith(
            "554 5.4.6 Too many hops"
        )
        assert (await client.submit(b" \r\n" + b"X-A: x\r\n" * 5000 + MESSAGE)).startswith("552 5.3.4 Header has more")
        assert (await client.submit()).startswith("250")
    assert len(read(factory)) == 1


@pytest.mark.parametrize(
    "header",
    [
        (b"From: " + b"\r\n ".join([b"alice@sender.example," * 400] * 10) + b" alice@sender.example\r\n") * 60,
        b"From: " + b"(" * 3000 + b")" * 3000 + b" alice@sender.example\r\n",
        b"From: " + b"a:" * 3000 + b" alice@sender.example\r\n",
        b"From: alice@sender.example\r\nFrom: alice@sender.example\r\n",
    ],
    ids=["long", "comments", "groups", "two"],
)
async def test_an_unparsable_from_field_is_refused_for_limited_users(
    factory: Factory, authority: Authority, header: bytes
) -> None:
    """It is refused permanently, and the session continues."""
    async with alice(factory.uri, authority) as client:
        reply = await client.submit(header + MESSAGE, sender=b"<alice@sender.example>")
        assert reply.startswith(("550 5.7.1 From", "552 5.3.4 Header is larger"))
        assert (await client.submit(b"From: alice@sender.example\r\n" + MESSAGE, sender=b"<alice@sender.example>"))[
            :3
        ] == "250"


@pytest.mark.parametrize(
    ("header", "reply"),
    [
        (b"Subject: x\r\n", "550 5.7.1 From field is missing"),
        (b"From: alice@sender.example\r\nSender: ceo@corp.example\r\n", "550 5.7.1 Sender or Resent"),
        (b"Resent-From: ceo@corp.example\r\nFrom: alice@sender.example\r\n", "550 5.7.1 Sender or Resent"),
        (b"From: alice@sender.example\r\nResent-Sender: x (a\\) <ceo@corp.example>)\r\n", "550 5.7.1 Sender or"),
    ],
    ids=["none", "sender", "resent-from", "resent-sender"],
)
async def test_a_limited_user_cannot_name_another_sender_or_no_author(
    factory: Factory, authority: Authority, header: bytes, reply: str
) -> None:
    """Where no From is added. What she submits carries no other sender's name."""
    server = {"phases": {"data": {"addheaders": "never"}}}
    async with alice(factory.uri, authority, server) as client:
        assert (await client.submit(header + MESSAGE, sender=b"<alice@sender.example>")).startswith(reply)
    assert read(factory) == []


def rules(*written: dict[str, Any]) -> dict[str, Any]:
    return {
        "rules": [{"id": f"rule-{at}", "then": {"reject": "550 5.7.1 no"}, **each} for at, each in enumerate(written)]
    }


async def test_padding_does_not_hide_a_field_from_a_rule(factory: Factory) -> None:
    written = rules({"phase": "eod", "if": {"header": {"X-Bad": ["yes"]}}})
    async with serving(factory.uri, policy=written) as port, Dialogue(port) as client:
        for lines in (0, 128, 300, 990):
            assert (
                await client.submit((b"X-Pad: " + b"a" * 990 + b"\r\n") * lines + b"X-Bad: yes\r\n\r\n")
                == "550 5.7.1 no"
            )
        assert (await client.submit((b"X-Pad: " + b"a" * 9990 + b"\r\n") * 110 + MESSAGE)).startswith(
            "552 5.3.4 Header"
        )
        assert (await client.submit()).startswith("250")
    wide = {"phases": {"data": {"maxheader": "4MiB", "maxheaderlines": 5000}}}
    async with serving(factory.uri, server=wide, policy=written) as port, Dialogue(port) as client:
        assert await client.submit((b"X-Pad: " + b"a" * 990 + b"\r\n") * 3000 + b"X-Bad: yes\r\n\r\n") == "550 5.7.1 no"


async def test_rules_match_every_spelling_of_an_address(factory: Factory) -> None:
    written = rules(
        {"if": {"recipient": ["ceo@example.com"]}},
        {"if": {"recipientdomain": ["blocked.example", "*.blocked.example"]}},
        {"phase": "mailfrom", "if": {"sender": ["spam@example.com"]}},
    )
    patient = {"limits": {"softerrors": 100}}
    async with serving(factory.uri, server=patient, policy=written) as port, Dialogue(port) as client:
        for sender in (b"spam@example.com", b"SPAM@example.com", b'"spam"@example.com', b'"s\\pam"@Example.com'):
            assert await client.ask(b"MAIL FROM:<" + sender + b">") == "550 5.7.1 no"
        assert (await client.ask(b"MAIL FROM:<a@sender.example> SMTPUTF8")).startswith("250")
        for recipient in (
            "ceo@example.com",
            "CEO@example.com",
            '"ceo"@example.com',
            '"c\\eo"@example.com',
            "x@blocked.example",
            "x@blocked\u3002example",
            "x@ü.blocked\uff0eexample",
            "x@ü.\uff42locked.example",
        ):
            assert await client.ask(f"RCPT TO:<{recipient}>".encode()) == "550 5.7.1 no"
        # Without A-labels: refused before any rule.
        for recipient in ("x@blocked.example\u3002", "x@1a\u05d0.blocked.example", "x@bl\u00adocked.example"):
            assert (await client.ask(f"RCPT TO:<{recipient}>".encode())).startswith("501 5.1.3")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("250")
