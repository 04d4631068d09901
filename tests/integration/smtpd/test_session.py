"""test_session — submitted mail is stored unaltered behind our Received field, and refused mail leaves nothing

Owns: proofs about smtpd from the socket to the rows: acceptance, envelopes, policy, pipelining. test_session_limits.py
    has refusals, test_session_login.py the right to send, test_session_trouble.py our own faults.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from shared.mail.partition import partition_id
from tests.fixtures.daemons.serving import HOSTNAME, MESSAGE, Dialogue, serving
from tests.fixtures.database.results import claim

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

RECEIVED = re.compile(
    rb"Received: from (?P<helo>\S+) \(\[(?P<client>\S+)\]\)\r\n\tby (?P<by>\S+) with (?P<with>\S+)\r\n"
    rb"\tid (?P<id>\S+?)(?:\r\n\tfor <\S+>)?; [^\r\n]+ \+0000\r\n"
)


def contents(factory: Factory) -> list[bytes]:
    """Every stored message, oldest first, without our header."""
    stored = factory.sql("SELECT content FROM pillarbox.messages ORDER BY id")
    return [RECEIVED.sub(b"", bytes(row.content), count=1) for row in stored]


async def test_the_250_reply_has_the_id_of_the_stored_message(factory: Factory, heard: Heard) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert client.greeting[0].startswith(f"220 {HOSTNAME} ")
        reply = await client.submit(MESSAGE, b"<b@example.com>", b"<C@Example.NET>")
        [(id_, body)] = factory.bodies().items()
        assert reply == f"250 2.0.0 Queued as {id_}"
        rows = factory.queue()
    assert [(row.recipientlocalpart, row.recipientdomain) for row in rows] == [
        ("b", "example.com"),
        ("C", "example.net"),
    ]
    assert {(row.messages__id, row.senderip, row.senderhelo, row.serverid) for row in rows} == {
        (id_, "127.0.0.1", "client.example", "default")
    }
    assert [row.partid for row in rows] == [partition_id("example.com", 6), partition_id("example.net", 6)]
    assert (body.refcount, body.size) == (2, len(body.content))
    [committed] = heard.all("spool.committed")
    assert (committed["id"], committed["recipients"], committed["size"]) == (id_, 2, body.size)


async def test_our_received_header_names_client_and_protocol(factory: Factory) -> None:
    async with serving(factory.uri) as port:
        async with Dialogue(port) as client:
            await client.submit()
        async with Dialogue(port, ehlo=b"HELO old.example") as client:
            await client.submit()
        async with Dialogue(port) as client:
            await client.ask(b"MAIL FROM:<a@sender.example> SMTPUTF8")
            await client.ask(b"RCPT TO:<b@example.com>")
            await client.data()
    for (id_, body), helo, keyword in zip(
        sorted(factory.bodies().items()),
        (b"client.example", b"old.example", b"client.example"),
        (b"ESMTP", b"SMTP", b"UTF8SMTP"),
        strict=True,
    ):
        match = RECEIVED.match(body.content)
        assert match is not None, body.content
        assert (match["helo"], match["client"], match["with"]) == (helo, b"127.0.0.1", keyword)
        assert (match["by"], match["id"]) == (HOSTNAME.encode(), str(id_).encode())


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (b"", b""),
        (b"no header\r\n", b"no header\r\n"),
        (b"\r\n", b"\r\n"),
        (b"S: x\r\n\r\n..dot\r\n...\r\n.. \r\n", b"S: x\r\n\r\n.dot\r\n..\r\n. \r\n"),
        (b"S: \xff\xfe\x80\r\n\r\n" + bytes(range(14, 256)) + b"\r\n", None),
        (b"S: x\r\n\r\n" + b"y" * 100_000 + b"\r\n", None),
        (b"S: x\r\n\r\n" + b"z\r\n" * 100_000, None),
    ],
    ids=["empty", "no-header", "one-line", "dots", "octets", "long-line", "many-lines"],
)
async def test_content_is_stored_octet_for_octet(factory: Factory, sent: bytes, stored: bytes | None) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.submit(sent)).startswith("250")
    assert contents(factory) == [sent if stored is None else stored]


async def test_the_next_transaction_may_be_pipelined_after_the_content(factory: Factory) -> None:
    """RFC 2920 section 3.1: DATA is the last of a group, and the content the first of the next."""
    envelope = b"MAIL FROM:<a@sender.example>\r\nRCPT TO:<b@example.com>\r\nDATA\r\n"
    codes = []
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert any(line[4:] == "PIPELINING" for line in client.offered)
        for group in (envelope, b"number 1\r\n.\r\n" + envelope, b"number 2\r\n.\r\nQUIT\r\n"):
            await client.send(group)
            codes += [(await client.reply())[0][:3] for _ in range(group.count(b"\r\n") - group.count(b"number"))]
    assert codes == ["250", "250", "354", "250"] * 2 + ["221"]
    assert contents(factory) == [b"number 1\r\n", b"number 2\r\n"]


async def test_the_end_of_data_may_arrive_in_pieces(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        await client.ask(b"DATA")
        for piece in (b"a\r", b"\n", b".", b"\r", b"\nNOOP\r\n"):
            await client.send(piece)
        assert (await client.reply())[0].startswith("250 2.0.0")
        assert (await client.reply())[0].startswith("250")
    assert contents(factory) == [b"a\r\n"]


async def test_the_null_sender_and_postmaster_are_accepted(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.submit(MESSAGE, b"<Postmaster>", sender=b"<>")).startswith("250")
    [row] = factory.queue()
    assert (row.senderlocalpart, row.senderdomain) == (None, None)
    assert (row.recipientlocalpart, row.recipientdomain) == ("Postmaster", HOSTNAME)


async def test_dots_that_clients_misplace_are_quoted(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.submit(MESSAGE, b"<a..b@example.com>", b"<c@example.com.>")).startswith("250 ")
    assert [(row.recipientlocalpart, row.recipientdomain) for row in factory.queue()] == [
        ('"a..b"', "example.com"),
        ("c", "example.com"),
    ]


async def test_international_addresses_require_smtputf8(factory: Factory) -> None:
    address = "<grüße@münchen.example>".encode()
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:" + address)).startswith("553 5.6.7")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
        assert (await client.ask(b"RCPT TO:" + address)).startswith("553 5.6.7")
        await client.ask(b"RSET")
        assert (await client.submit(MESSAGE, address, sender=address + b" SMTPUTF8")).startswith("250")
    [row] = factory.queue()
    assert (row.senderlocalpart, row.senderdomain) == ("grüße", "xn--mnchen-3ya.example")
    assert (row.recipientlocalpart, row.recipientdomain) == ("grüße", "xn--mnchen-3ya.example")
    assert row.partid == partition_id("xn--mnchen-3ya.example", 6)
    [body] = factory.bodies().values()
    assert body.smtputf8


async def test_rules_set_hold_transport_and_partition_of_recipients(factory: Factory) -> None:
    rules = [
        {"id": "review", "if": {"recipientdomain": ["held.example"]}, "then": {"hold": "mailreview"}},
        {"id": "fixed", "if": {"recipientdomain": ["*.fixed.example"]}, "then": {"partition": "456-only"}},
        {
            "id": "route",
            "if": {"recipient": ["x@Routed.example"]},
            "then": {"transport": "relay", "metadata": {"k": "v"}},
        },
    ]
    recipients = (b"<a@held.example>", b"<b@sub.fixed.example>", b"<x@routed.example>", b"<d@example.com>")
    async with serving(factory.uri, policy={"rules": rules}) as port, Dialogue(port) as client:
        assert (await client.submit(MESSAGE, *recipients)).startswith("250")
    held, fixed, routed, plain = factory.queue()
    assert (held.status, held.leaf) == ("HOLD", "queue_hold")
    assert held.metadata == {
        "_partid": partition_id("held.example", 6),
        "_holdreason": "rule review",
        "_policyrule": "review",
        "_quarantineid": "mailreview",
    }
    assert (fixed.status, fixed.partid, fixed.leaf) == ("DELIVER", "456-only", "queue_def_def")
    assert (routed.transportid, routed.metadata["k"], routed.partid) == (
        "relay",
        "v",
        partition_id("routed.example", 6),
    )
    assert plain.metadata == {"_partid": partition_id("example.com", 6)}
    assert {c.id for c in await claim(factory.uri)} == {fixed.id, routed.id, plain.id}


async def test_rset_discards_the_transaction(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope(b"<forgotten@example.com>")
        assert (await client.ask(b"RSET")).startswith("250")
        assert (await client.ask(b"DATA")).startswith("503")
        await client.submit(MESSAGE, b"<kept@example.com>")
    assert [row.recipientlocalpart for row in factory.queue()] == ["kept"]
