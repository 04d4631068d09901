"""test_slow_clients — a client that sends slowly to keep us busy is cut off

Owns: silence, dripping lines and content, and the limit on the rate of content.
See: RFC 5321 section 4.5.3.2; Postfix smtpd_timeout, smtpd_per_request_deadline, smtpd_min_data_rate.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from smtpd import replies
from tests.fixtures.daemons.serving import Dialogue, serving
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


def patient(idle: str, rate: int = 500) -> dict[str, Any]:
    return {"timeout": {"idle": idle}, "limits": {"datarate": rate}}


async def drip(client: Dialogue, octets: bytes, pause: float) -> None:
    """One octet after the other until the server has had enough."""
    with suppress(ConnectionError):
        while not client.reader.at_eof():
            await client.send(octets)
            await asyncio.sleep(pause)  # the pause is the attack


async def ending(client: Dialogue, octets: bytes, pause: float = 0.02) -> bytes:
    """The last reply to a client that drips."""
    dripping = asyncio.create_task(drip(client, octets, pause))
    try:
        return await client.ended()
    finally:
        dripping.cancel()


async def test_silence_ends_with_421(factory: Factory) -> None:
    async with serving(factory.uri, server=patient("1s")) as port, Dialogue(port) as client:
        assert (await client.ended()).startswith(b"421 4.4.2")


async def test_a_silent_client_is_closed_before_ehlo(factory: Factory) -> None:
    async with serving(factory.uri, server=patient("1s")) as port, Dialogue(port, ehlo=None) as client:
        assert (await client.ended()).startswith(b"421 4.4.2")


async def test_a_dripping_command_has_the_time_limit_of_silence(factory: Factory) -> None:
    async with serving(factory.uri, server=patient("1s")) as port, Dialogue(port) as client:
        assert (await ending(client, b"N")).startswith(b"421 4.4.2")


async def test_dripping_content_is_cut_off(factory: Factory) -> None:
    """Fifty octets a second for ever would be three hundred seconds each time without a rate."""
    async with serving(factory.uri, server=patient("1s", rate=10_000)) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await client.ask(b"DATA")).startswith("354")
        assert (await ending(client, b"x")).startswith(b"421 4.4.2")
    assert factory.bodies() == {}


async def test_a_dripping_chunk_is_cut_off(factory: Factory) -> None:
    async with serving(factory.uri, server=patient("1s", rate=10_000)) as port, Dialogue(port) as client:
        await client.envelope()
        await client.send(b"BDAT 1000000 LAST\r\n")
        assert (await ending(client, b"x")).startswith(b"421 4.4.2")


@pytest.mark.parametrize("octets", [b"BDAT 1\r\nx", b"BDAT 0\r\n", b"MAIL\r\n"])
async def test_a_message_in_dripping_chunks_is_cut_off(factory: Factory, octets: bytes) -> None:
    """If each reply restarted the time limit, the partial message would be held for ever."""
    limits = {"junkcommands": 1_000_000, "harderrors": 10_000, "softerrors": 10_000, "datarate": 10_000}
    server = {"timeout": {"idle": "1s"}, "limits": limits}
    async with serving(factory.uri, server=server) as port, Dialogue(port) as client:
        await client.envelope()
        await client.send(b"BDAT 10\r\n0123456789")
        assert (await client.reply())[0].startswith("250")
        assert b"421 4.4.2" in await ending(client, octets)


@pytest.mark.parametrize("begin", [b"DATA\r\n", b"BDAT 60 LAST\r\n"])
async def test_content_above_the_rate_may_take_longer_than_the_limit(factory: Factory, begin: bytes) -> None:
    """Six times 0.25 s at a limit of 1 s: each piece pays for more than the time it took."""
    loop = asyncio.get_running_loop()
    async with serving(factory.uri, server=patient("1s", rate=10)) as port, Dialogue(port) as client:
        await client.envelope()
        await client.send(begin)
        if begin.startswith(b"DATA"):
            await client.reply()
        began = loop.time()
        for _ in range(6):
            await asyncio.sleep(0.25)
            await client.send(b"12345678\r\n")
        assert loop.time() - began > 1
        if begin.startswith(b"DATA"):
            await client.send(b".\r\n")
        assert (await client.reply())[0].startswith("250 2.0.0")


async def test_a_client_cut_off_while_sending_can_read_the_421(factory: Factory, heard: Heard) -> None:
    """A reset would come before the reply, or throw it away."""
    async with serving(factory.uri, server=patient("1s", rate=10_000)) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await client.ask(b"DATA")).startswith("354")
        await until(lambda: heard.all("session.replied")[-1]["reply"] == replies.R421_IDLE)
        for _ in range(3):
            await client.send(b"x")
        assert (await client.ended()).startswith(b"421 4.4.2")


async def test_a_client_that_does_not_answer_a_challenge_is_cut_off(factory: Factory) -> None:
    authentication = {"users": {"alice": "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAA"}, "tlsonly": False}
    settings = patient("1s")
    async with serving(factory.uri, server=settings, authentication=authentication) as port, Dialogue(port) as client:
        assert (await client.ask(b"AUTH PLAIN")).startswith("334")
        assert (await client.ended()).startswith(b"421 4.4.2")


async def test_a_client_that_neither_goes_nor_stops_sending_is_cut_off(factory: Factory, heard: Heard) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.send(b"NOOP\r\nNOOP\r\n")
        assert (await client.reply())[0].startswith("554 5.5.0")
        dripping = asyncio.create_task(drip(client, b"NOOP\r\n", 0.02))
        await heard.wait("session.closed")
        dripping.cancel()
