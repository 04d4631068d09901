"""test_bdat — content in chunks is counted, never scanned, and discarded when it is refused

Owns: CHUNKING from the socket to the rows.
See: RFC 3030 sections 2, 4.2.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.serving import MESSAGE, Dialogue, serving

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory


def chunk(content: bytes, *, last: bool = False) -> bytes:
    return b"BDAT %d%s\r\n" % (len(content), b" LAST" if last else b"") + content


async def reply(client: Dialogue, octets: bytes) -> str:
    await client.send(octets)
    return (await client.reply())[0]


def content_of(factory: Factory) -> bytes:
    [body] = factory.bodies().values()
    return bytes(body.content[body.content.index(b"Subject:") :])


async def test_chunks_are_one_message_octet_for_octet(factory: Factory) -> None:
    pieces = [b"Subject: chunks\r\n\r\n", b".\r\n..\r\n.\r", b"\nMAIL FROM:<a@b.example>\r\n", b"end\r\n"]
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert "CHUNKING" in [line[4:] for line in client.offered]
        await client.envelope()
        for piece in pieces[:-1]:
            assert await reply(client, chunk(piece)) == f"250 2.0.0 {len(piece)} octets received"
        assert (await reply(client, chunk(pieces[-1], last=True))).startswith("250 2.0.0 Queued as ")
        assert (await client.submit()).startswith("250")
    first, *_ = sorted(factory.bodies().items())
    assert first[1].content.endswith(b"".join(pieces))


async def test_an_empty_last_chunk_ends_the_message(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await reply(client, chunk(MESSAGE))).startswith("250")
        assert (await client.ask(b"BDAT 0 LAST")).startswith("250 2.0.0 Queued")
    assert content_of(factory) == MESSAGE


async def test_envelope_and_chunks_may_arrive_in_one_packet(factory: Factory) -> None:
    """RFC 3030 section 4.2: BDAT may be pipelined, without the pause of DATA."""
    packet = (
        b"MAIL FROM:<a@sender.example>\r\nRCPT TO:<b@example.com>\r\n" + chunk(MESSAGE) + chunk(b"x\r\n", last=True)
    )
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.send(packet + b"QUIT\r\n")
        assert [(await client.reply())[0][:9] for _ in range(5)] == [
            "250 2.1.0",
            "250 2.1.5",
            "250 2.0.0",
            "250 2.0.0",
            "221 2.0.0",
        ]
    assert content_of(factory) == MESSAGE + b"x\r\n"


@pytest.mark.parametrize("cut", [1, 7, 12, 13, 14, 20])
async def test_a_chunk_may_arrive_in_pieces(factory: Factory, cut: int) -> None:
    octets = chunk(MESSAGE, last=True)
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        await client.send(octets[:cut])
        assert (await reply(client, octets[cut:])).startswith("250")
    assert content_of(factory) == MESSAGE


async def test_the_octets_of_a_refused_chunk_are_discarded(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        for content in (b"MAIL FROM:<smuggled@sender.example>\r\n", b""):
            assert (await reply(client, chunk(content, last=True))).startswith("503 5.5.1")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503")
    assert factory.bodies() == {}


async def test_after_an_error_all_chunks_up_to_the_last_are_refused(factory: Factory) -> None:
    server = {"phases": {"data": {"maxsize": 1000}}}
    async with serving(factory.uri, server=server) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await reply(client, chunk(b"x" * 900 + b"\r\n"))).startswith("250")
        for last in (False, False, True):
            assert (await reply(client, chunk(b"y" * 500 + b"\r\n", last=last))).startswith("552 5.3.4")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503")
        assert (await client.submit()).startswith("250")
    assert len(factory.bodies()) == 1


async def test_rset_forgets_chunks(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await reply(client, chunk(b"forgotten"))).startswith("250")
        assert (await client.ask(b"RSET")).startswith("250")
        await client.envelope()
        assert (await reply(client, chunk(MESSAGE, last=True))).startswith("250")
    assert content_of(factory) == MESSAGE


@pytest.mark.parametrize("command", [b"DATA", b"RCPT TO:<c@example.com>", b"MAIL FROM:<a@sender.example>"])
async def test_mail_and_rcpt_are_refused_between_chunks(factory: Factory, command: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await reply(client, chunk(MESSAGE))).startswith("250")
        assert (await client.ask(command)).startswith("503 5.5.1")
        assert (await client.ask(b"BDAT 0 LAST")).startswith("250")
    assert len(factory.queue()) == 1


@pytest.mark.parametrize("argument", [b"", b"x", b"-1", b"1 FIRST", b"1 LAST x", b"0x10", b"9" * 16, "٣".encode()])
async def test_a_chunk_of_unknown_size_ends_the_connection(factory: Factory, argument: bytes) -> None:
    """The octets that follow are unknown, and not taken for commands."""
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        await client.send(b"BDAT " + argument + b"\r\nRSET\r\n")
        assert (await client.reply())[0].startswith("521 5.5.4")
        assert await client.ended() == b""


@pytest.mark.parametrize("content", [b"a\nb\r\n", b"a\rb\r\n", b"a\0b\r\n"])
async def test_content_rules_apply_to_chunks(factory: Factory, content: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await reply(client, chunk(content, last=True))).startswith("554 5.6.0")
    assert factory.bodies() == {}


async def test_binarymime_is_not_offered_and_refused(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert "BINARYMIME" not in [line[4:] for line in client.offered]
        assert (await client.ask(b"MAIL FROM:<a@sender.example> BODY=BINARYMIME"))[:9] in {"501 5.5.4", "555 5.5.4"}


async def test_a_stop_between_chunks_waits_for_the_message(factory: Factory) -> None:
    finished: list[str] = []
    async with serving(factory.uri) as port:
        client = Dialogue(port)
        await client.__aenter__()
        await client.envelope()
        assert (await reply(client, chunk(MESSAGE))).startswith("250")

        async def finish() -> None:
            finished.append(await reply(client, chunk(b"", last=True)))
            finished.append((await client.reply())[0])

        ending = asyncio.create_task(finish())
    await ending
    await client.__aexit__(None, None, None)
    assert [each[:9] for each in finished] == ["250 2.0.0", "421 4.3.2"]
