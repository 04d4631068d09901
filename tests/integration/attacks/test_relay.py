"""test_relay — untrusted clients cannot relay, and no text of a client becomes a header line or another address

Owns: open relay in any spelling, address literals, source routes, backscatter, and header lines in EHLO names and
    addresses.
See: RFC 5321 sections 3.6, 4.1.3, 7.3, appendix C; RFC 6409 section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.serving import HOSTNAME, Dialogue, serving

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

STRANGERS = {"networks": ["192.0.2.0/24"]}


def rcptto(**settings: Any) -> dict[str, Any]:
    return {"phases": {"rcptto": settings}}


@pytest.mark.parametrize(
    "recipient",
    [
        b"<victim@example.com>",
        b"victim@example.com",
        b"<@mx.pillarbox.example:victim@example.com>",
        b"<victim%example.com@mx.pillarbox.example>",
        b'<"victim@example.com"@mx.pillarbox.example>',
        b"<example.com!victim@mx.pillarbox.example>",
        b"<victim@[127.0.0.1]>",
        b"<Postmaster>",
        b"<postmaster@example.com>",
    ],
)
@pytest.mark.parametrize("sender", [b"<>", b"<a@mx.pillarbox.example>", b"<victim@example.com>"])
async def test_an_untrusted_client_cannot_relay(factory: Factory, sender: bytes, recipient: bytes) -> None:
    """We have no mailboxes: an untrusted client has no valid recipient, so it causes no bounce either."""
    async with serving(factory.uri, relay=STRANGERS) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:" + sender)).startswith("250")
        assert (await client.ask(b"RCPT TO:" + recipient))[:9] == "554 5.7.1"
        assert (await client.ask(b"DATA")).startswith("503")
        assert (await client.ask(b"BDAT 0 LAST")).startswith("503")
    assert factory.queue() == []


async def test_an_address_literal_is_a_recipient_only_if_configured(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope(b"<good@example.com>")
        for literal in (b"<user@[127.0.0.1]>", b"<user@[IPv6:::1]>", b"<user@[192.0.2.1]>"):
            assert (await client.ask(b"RCPT TO:" + literal)).startswith("554 5.7.1")
        assert (await client.data()).startswith("250")
    async with serving(factory.uri, server=rcptto(addressliteral="accept")) as port, Dialogue(port) as client:
        assert (await client.submit(b"", b"<user@[192.0.2.1]>")).startswith("250")
    assert {row.recipientdomain for row in factory.queue()} == {"example.com", "[192.0.2.1]"}


@pytest.mark.parametrize(
    "number",
    [
        "127.0.0.1",
        "2130706433",
        "127.1",
        "0x7f000001",
        "127.0.0.0x1",
        "\uff11\uff12\uff17\uff0e\uff10\uff0e\uff10\uff0e\uff11",
    ],
)
async def test_a_bare_number_is_an_address_literal_too(factory: Factory, number: str) -> None:
    """RFC 1123 section 2.1: no name ends in a number, so other hosts take it for an address."""
    path = f"<user@{number}>".encode()
    smtputf8 = b"" if path.isascii() else b" SMTPUTF8"
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example>" + smtputf8)).startswith("250")
        assert (await client.ask(b"RCPT TO:" + path)).startswith("554 5.7.1")
        for name in (b"<user@1.example>", b"<user@127.0.0.1.example>", b"<user@0xe.x0>"):
            assert (await client.ask(b"RCPT TO:" + name)).startswith("250")
    async with serving(factory.uri, server=rcptto(addressliteral="accept")) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example>" + smtputf8)).startswith("250")
        assert (await client.ask(b"RCPT TO:" + path)).startswith("250")


async def test_a_source_route_is_ignored_or_refused(factory: Factory) -> None:
    route = b"<@relay.example,@other.example:user@example.com>"
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.submit(b"", route, sender=b"<@x.example:a@sender.example>")).startswith("250")
    async with serving(factory.uri, server=rcptto(sourceroute="reject")) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:" + route)).startswith("550 5.1.0")
        await client.envelope()
        assert (await client.ask(b"RCPT TO:" + route)).startswith("550 5.1.0")
    [row] = factory.queue()
    assert (row.recipientlocalpart, row.recipientdomain, row.senderdomain) == ("user", "example.com", "sender.example")


async def test_a_percent_sign_is_part_of_a_mailbox(factory: Factory) -> None:
    """The local part is for its domain to resolve; we deliver to the domain after the last @."""
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.submit(b"", b"<victim%other.example@example.com>")).startswith("250")
    [row] = factory.queue()
    assert (row.recipientlocalpart, row.recipientdomain) == ("victim%other.example", "example.com")


@pytest.mark.parametrize(
    "name",
    [
        b"x\tX-Injected: yes",
        b"x(X-Injected:yes)",
        b"[127.0.0.1];X-Injected:",
        b"x;id=1",
        b"a" * 255,
        "grüße.example".encode(),
    ],
)
async def test_an_ehlo_name_adds_no_line_to_our_header(factory: Factory, name: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port, ehlo=None) as client:
        if not (await client.say(b"EHLO " + name))[0].startswith("250"):
            return  # refused is as good
        assert (await client.submit(b"\r\nbody\r\n")).startswith("250")
    [body] = factory.bodies().values()
    header = body.content.partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0] for line in header.split(b"\r\n") if line[:1] not in b" \t"]
    assert b"X-Injected" not in names
    assert names[0] == b"Received"
    assert max(len(line) for line in header.split(b"\r\n")) < 998


@pytest.mark.parametrize(
    "path",
    [
        b"<a@b.example\0>",
        b"<a@b.example\x0b>",
        b"<a\x1b@b.example>",
        b"<a@b.example>\x00",
        b"<a@b.example> SIZE=1\x00",
        b"<a@b.example> \x85",
        "<a@b.example\u2028>".encode(),
        b"<a@\xff.example>",
    ],
)
async def test_a_control_character_in_an_envelope_is_refused(factory: Factory, path: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:" + path))[:1] == "5"
        await client.envelope()
        assert (await client.ask(b"RCPT TO:" + path))[:1] == "5"
        assert (await client.data()).startswith("250")
    assert len(factory.queue()) == 1


async def test_vrfy_and_expn_do_not_reveal_addresses(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert await client.say(b"VRFY root") == await client.say(b"VRFY nobody-at-all")
        assert (await client.ask(b"EXPN staff")).startswith("502 5.5.1")
        assert (await client.ask(b"VRFY")).startswith("501 5.5.4")


async def test_a_repeated_recipient_gets_the_message_once(factory: Factory) -> None:
    """Each RCPT is answered and counted as usual."""
    rates = {"exempt": [], "window": "1h", "address": {"recipients": 4}}
    async with serving(factory.uri, rates=rates) as port, Dialogue(port) as client:
        await client.envelope(b"<b@example.com>", b"<b@example.com>", b"<b@EXAMPLE.com>", b"<B@example.com>")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("450 4.7.1")
        assert (await client.data()).startswith("250")
    assert sorted(row.recipientlocalpart for row in factory.queue()) == ["B", "b"]


async def test_postmaster_has_one_spelling(factory: Factory) -> None:
    """RFC 5321 section 4.5.1: without regard to case, and without a domain at ours."""
    async with serving(factory.uri) as port, Dialogue(port) as client:
        named = (b"<postmaster>", b"<POSTMASTER>", f"<Postmaster@{HOSTNAME}>".encode(), b"<Postmaster@example.com>")
        await client.envelope(*named, b'<"postMaster"@example.com>')
        assert (await client.data()).startswith("250")
    assert sorted(row.recipientdomain for row in factory.queue()) == ["example.com", HOSTNAME]


async def test_a_recipient_repeated_with_other_dsn_parameters_has_its_own_row(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope(
            b"<b@example.com>",
            b"<b@example.com> NOTIFY=SUCCESS",
            b"<b@example.com> ORCPT=rfc822;list@example.com",
            b"<b@example.com> NOTIFY=SUCCESS",
            b"<b@example.com> ORCPT=rfc822;list@example.com",
        )
        assert (await client.data()).startswith("250")
    asked = [row.metadata.get("_dsn") for row in factory.queue()]
    assert asked == [None, {"notify": ["SUCCESS"]}, {"orcpt": ["rfc822", "list@example.com"]}]
