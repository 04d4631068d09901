"""test_commands — early, overlong, invalid and foreign commands are refused, and their senders disconnected

Owns: early talkers, unauthorised pipelining, bare line ends and NUL in commands, long lines, error and junk limits,
    other protocols.
See: RFC 2920 section 3.1; RFC 5321 sections 2.3.8, 3.1, 4.5.3.1; Postfix smtpd_forbid_unauth_pipelining,
    postscreen(8), smtpd_hard_error_limit, smtpd_junk_command_limit, smtpd_forbidden_commands.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.serving import MESSAGE, Dialogue, serving
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

ENVELOPE = b"MAIL FROM:<a@sender.example>\r\nRCPT TO:<b@example.com>\r\nDATA\r\n"


def connect_phase(**settings: Any) -> dict[str, Any]:
    return {"phases": {"connect": settings}}


def limits(**settings: Any) -> dict[str, Any]:
    return {"limits": settings}


async def raw(port: int, octets: bytes) -> bytes:
    """All replies to a client that sends this at once and waits for the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(octets)
    try:
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


async def test_a_client_that_sends_before_the_greeting_is_refused(factory: Factory, heard: Heard) -> None:
    async with serving(factory.uri, server=connect_phase(greetdelay="5s")) as port:
        said = await raw(port, b"EHLO spam.example\r\n" + ENVELOPE + MESSAGE + b".\r\n")
    assert said.startswith(b"554 5.5.1")
    assert said.count(b"\r\n") == 1
    assert factory.bodies() == {}
    [refused] = heard.all("session.refused")
    assert refused["reply"].startswith("554 5.5.1")


async def test_a_client_that_waits_is_greeted_after_the_delay(factory: Factory) -> None:
    async with serving(factory.uri, server=connect_phase(greetdelay="50ms")) as port, Dialogue(port) as client:
        assert client.greeting[0].startswith("220 ")
        assert (await client.submit()).startswith("250")


async def test_early_talk_may_be_allowed(factory: Factory) -> None:
    settings = connect_phase(greetdelay="50ms", earlytalker="allow")
    async with serving(factory.uri, server=settings) as port:
        said = await raw(port, b"QUIT\r\n")
    assert [line[:3] for line in said.splitlines()] == [b"220", b"221"]


@pytest.mark.parametrize("command", [b"EHLO x.example", b"HELO x.example", b"NOOP", b"VRFY a", b"EXPN a", b"DATA"])
async def test_octets_after_a_command_that_must_be_last_end_the_connection(factory: Factory, command: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        await client.send(command + b"\r\nMAIL FROM:<next@sender.example>\r\n")
        assert (await client.reply())[0].startswith("554 5.5.0")
        assert await client.ended() == b""
    assert factory.bodies() == {}


async def test_content_sent_before_354_is_not_a_message(factory: Factory) -> None:
    """A request that a web page can make a browser send."""
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.send(ENVELOPE + MESSAGE + b".\r\n")
        assert [(await client.reply())[0][:9] for _ in range(3)] == ["250 2.1.0", "250 2.1.5", "554 5.5.0"]
        assert await client.ended() == b""
    assert factory.bodies() == {}


async def test_unauthorised_pipelining_may_be_allowed(factory: Factory) -> None:
    settings = connect_phase(unauthpipelining="allow")
    async with serving(factory.uri, server=settings) as port, Dialogue(port) as client:
        await client.send(ENVELOPE + MESSAGE + b".\r\nNOOP\r\nQUIT\r\n")
        codes = [(await client.reply())[0][:3] for _ in range(6)]
    assert codes == ["250", "250", "354", "250", "250", "221"]
    assert len(factory.bodies()) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"MAIL FROM:<a@sender.example>\nRCPT TO:<b@example.com>\r\n",
        b"MAIL FROM:<a@sender.example>\rRCPT TO:<b@example.com>\r\n",
        b"MAIL FROM:<a@sender.example>\r\r\n",
        b"MAIL FROM:<a@sender.example>\n\r\n",
    ],
)
async def test_a_bare_line_end_does_not_begin_a_second_command(factory: Factory, line: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.send(line)
        assert (await client.reply())[0].startswith("500 5.5.2")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503")


async def test_lines_that_end_with_bare_lf_are_500_and_not_executed(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        for _ in range(2):
            await client.send(b"MAIL FROM:<a@sender.example>\n")
            assert (await client.reply())[0].startswith("500 5.5.2")
        # The rest of that line, up to its CR LF, belongs to it.
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("500 5.5.2")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503")


async def test_an_overlong_line_is_500_once_and_its_rest_is_not_a_command(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.send(b"NOOP " + b"x" * 5000)
        assert (await client.reply())[0].startswith("500 5.5.2")
        await client.send(b"y" * 300_000 + b"\r\nVRFY marker\r\n")
        assert (await client.reply())[0].startswith("252")
        assert (await client.ask(b"NOOP " + b"x" * 2043)).startswith("250")
        assert (await client.ask(b"NOOP " + b"x" * 2044)).startswith("500 5.5.2")


async def test_a_session_with_many_errors_is_delayed_and_then_closed(factory: Factory) -> None:
    settings = limits(softerrors=2, harderrors=5, errordelay="20ms")
    loop = asyncio.get_running_loop()
    async with serving(factory.uri, server=settings) as port, Dialogue(port) as client:
        took = []
        for _ in range(5):
            began = loop.time()
            assert (await client.ask(b"NONSENSE")).startswith("500 5.5.2")
            took.append(loop.time() - began)
        assert (await client.reply())[0].startswith("421 4.7.0")
        assert await client.ended() == b""
    assert [least <= each for least, each in zip((0, 0, 0.019, 0.039, 0.059), took, strict=True)] == [True] * 5


async def test_a_delayed_client_does_not_delay_others(factory: Factory) -> None:
    settings = limits(softerrors=0, errordelay="1h")
    async with serving(factory.uri, server=settings) as port, Dialogue(port) as slow, Dialogue(port) as other:
        await slow.send(b"NONSENSE\r\n")
        assert (await other.submit()).startswith("250")


async def test_an_accepted_message_resets_the_error_count(factory: Factory) -> None:
    async with serving(factory.uri, server=limits(harderrors=3)) as port, Dialogue(port) as client:
        for _ in range(2):
            for _ in range(2):
                assert (await client.ask(b"NONSENSE")).startswith("500")
            assert (await client.submit()).startswith("250")


async def test_too_many_junk_commands_count_as_errors(factory: Factory) -> None:
    async with serving(factory.uri, server=limits(junkcommands=3, harderrors=2)) as port, Dialogue(port) as client:
        for _ in range(2):  # EHLO was the first
            assert (await client.ask(b"NOOP")).startswith("250")
        assert (await client.ask(b"RSET")).startswith("250")
        await client.send(b"NOOP\r\n")
        assert [(await client.reply())[0][:3] for _ in range(2)] == ["250", "421"]


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1", b"POST /x HTTP/1.1", b"CONNECT mx:25 HTTP/1.1"])
async def test_an_http_client_is_disconnected_before_its_body_is_read(factory: Factory, line: bytes) -> None:
    body = b"\r\nHost: x\r\n\r\nEHLO x\r\n" + ENVELOPE + MESSAGE + b".\r\n"
    async with serving(factory.uri) as port, Dialogue(port, ehlo=None) as client:
        await client.send(line + body)
        assert (await client.reply())[0].startswith("221 2.7.0")
        assert await client.ended() == b""
    assert factory.bodies() == {}


async def test_unread_replies_do_not_accumulate(factory: Factory) -> None:
    """A client that only sends is read no further than its unread replies allow."""
    async with serving(factory.uri, server=limits(junkcommands=1_000_000)) as port, Dialogue(port) as client:
        client.reader._limit = 1024  # type: ignore[attr-defined]  # so that our side does not read ahead
        client.writer.transport.set_write_buffer_limits(high=1 << 16)
        wanted = 0
        with pytest.raises(TimeoutError):  # noqa: PT012 - the drain that does not come back is the point
            async with asyncio.timeout(2):
                while True:
                    client.writer.write(b"RSET\r\n" * 10_000)
                    wanted += 10_000
                    await client.writer.drain()
        assert wanted < 5_000_000
        client.writer.transport.abort()  # else each side would wait for the other to read
