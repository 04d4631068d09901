"""test_content — hostile content and parameters cannot add header fields, loop for ever, or cost much

Owns: one story for each attack on content, from SMTP to the stored message.
See: RFC 5321 section 6.3; tests/unit/smtpd/test_content.py for every form of it.
"""

from __future__ import annotations

from email import message_from_bytes
from email.policy import SMTP
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.serving import HOSTNAME, MESSAGE, Dialogue, serving

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory


def stored(factory: Factory) -> list[bytes]:
    """Every stored message, oldest first."""
    return [bytes(row.content) for row in factory.sql("SELECT content FROM pillarbox.messages ORDER BY id")]


@pytest.mark.parametrize(
    "helo",
    [b"evil.example)\tBcc:everybody@example.com", b"[192.0.2.1]);from.elsewhere", b"x;Mon,1Jan2001", b'"a\\"b"'],
    ids=["comment", "literal", "date", "quotes"],
)
async def test_an_ehlo_name_cannot_inject_header_fields(factory: Factory, helo: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port, ehlo=None) as client:
        if (await client.ask(b"EHLO " + helo)).startswith("250"):
            assert (await client.submit()).startswith("250")
    for content in stored(factory):
        message = message_from_bytes(content, policy=SMTP)
        assert message.keys() == ["Received", "Subject"]
        assert str(message["Received"]).count(";") == 1


@pytest.mark.parametrize("envid", [b"a+0D+0ABcc:+20x", b"a+00", b"a\x0bb", b"a+C3+A9"])
async def test_a_parameter_cannot_carry_a_line_end_into_the_queue(factory: Factory, envid: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example> ENVID=" + envid)).startswith("501 5.5.4")


async def test_a_looping_message_is_refused(factory: Factory) -> None:
    """By our own name long before the hops are many, since each round costs a delivery."""
    ours = f"Received: from other.example (other.example [192.0.2.9])\r\n\tby {HOSTNAME} with ESMTP; now\r\n".encode()
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.submit(ours * 4 + MESSAGE)).startswith("250")
        assert await client.submit(ours * 5 + MESSAGE) == "554 5.4.6 Too many hops"
        elsewhere = ours.replace(HOSTNAME.encode(), b"elsewhere.example")
        assert await client.submit(elsewhere * 51 + MESSAGE) == "554 5.4.6 Too many hops"
    assert len(stored(factory)) == 1


async def test_an_endless_header_is_refused_and_the_session_continues(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.submit(b"a: b\r\n" * 2000)).startswith("552 5.3.4 Header has more than 1000 lines")
        assert (await client.submit(b"a:" + b" b\r\n" * 60_000)).startswith("552 5.3.4 Header field is too large")
        assert (await client.submit()).startswith("250")
    assert len(stored(factory)) == 1


async def test_a_header_with_an_ambiguous_end_is_refused_fixed_or_accepted(factory: Factory) -> None:
    """Text between the fields: some end the header there, some read on and find another From."""
    torn = b"From: a@sender.example\r\nno field\r\nFrom: boss@example.com\r\n\r\nbody\r\n"
    for action, reply in (("reject", "554 5.6.0"), ("fix", "250"), ("accept", "250")):
        server = {"phases": {"data": {"endofheader": action}}}
        async with serving(factory.uri, server=server) as port, Dialogue(port) as client:
            assert (await client.submit(torn)).startswith(reply)
    fixed, accepted = stored(factory)
    assert fixed.endswith(torn.replace(b"\r\nno field", b"\r\n\r\nno field"))
    assert message_from_bytes(fixed, policy=SMTP).get_all("From") == ["a@sender.example"]
    assert accepted.endswith(b"\r\n" + torn)


async def test_undeclared_8bit_content_can_be_refused(factory: Factory) -> None:
    server = {"phases": {"data": {"eightbit": "reject"}}}
    content = "Subject: x\r\n\r\né\r\n".encode()
    async with serving(factory.uri, server=server) as port, Dialogue(port) as client:
        assert (await client.submit(content)).startswith("554 5.6.3")
        assert (await client.ask(b"MAIL FROM:<a@sender.example> BODY=8BITMIME")).startswith("250")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("250")
        assert (await client.data(content)).startswith("250")
