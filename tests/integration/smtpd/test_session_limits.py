"""test_session_limits — a refusal has the right code and leaves nothing, and the session continues

Owns: proofs about refusals at MAIL, RCPT and after DATA.
See: RFC 5321 sections 2.3.8, 4.1.1, 4.5.3.1.10, 6.3; RFC 1870 section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.serving import MESSAGE, Dialogue, serving

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


def data_phase(**limits: Any) -> dict[str, Any]:
    return {"phases": {"data": limits}}


async def test_a_declared_size_over_the_limit_is_refused_at_mail(factory: Factory) -> None:
    async with serving(factory.uri, server=data_phase(maxsize=1000)) as port, Dialogue(port) as client:
        assert "SIZE 1000" in [line[4:] for line in client.offered]
        assert (await client.ask(b"MAIL FROM:<a@sender.example> SIZE=1001")).startswith("552")
        assert (await client.ask(b"MAIL FROM:<a@sender.example> SIZE=1000")).startswith("250")


async def test_the_size_limit_counts_the_content_only(factory: Factory) -> None:
    async with serving(factory.uri, server=data_phase(maxsize=1000)) as port, Dialogue(port) as client:
        fits = b"..\r\n" + b"x" * 995 + b"\r\n"  # 1001 octets on the wire, 1000 once its dot is taken out
        assert (await client.submit(fits)).startswith("250")
        assert (await client.submit(b"x" * 999 + b"\r\n")).startswith("552 5.3.4")
        assert (await client.submit(MESSAGE)).startswith("250")
    assert len(factory.bodies()) == len(factory.queue()) == 2


async def test_far_more_than_the_limit_is_read_to_its_end_and_refused(factory: Factory) -> None:
    async with serving(factory.uri, server=data_phase(maxsize=1000)) as port, Dialogue(port) as client:
        assert (await client.submit(b"x" * 98 + b"\r\n" + b"y" * 5_000_000 + b"\r\n")).startswith("552 5.3.4")
        assert (await client.submit(MESSAGE)).startswith("250")
    assert len(factory.bodies()) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"a\nb\r\n",
        b"a\rb\r\n",
        b"a\n.\r\nMAIL FROM:<smuggled@sender.example>\r\n",
        b"a\n.\nb\r\n",
        b"a\r\n.\nb\r\n",
        b"a\r.\rb\r\n",
        b"a\r\r\n",
        b"a\n\r\n",
        b"\n\r\n",
    ],
)
async def test_bare_newlines_are_refused_and_do_not_end_the_data(factory: Factory, content: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.submit(content)).startswith("554 5.6.0")
        assert (await client.ask(b"NOOP")).startswith("250")
        assert (await client.submit(MESSAGE)).startswith("250")
    assert len(factory.bodies()) == 1


async def test_bare_newlines_are_normalized_if_configured(factory: Factory) -> None:
    async with serving(factory.uri, server=data_phase(barenewline="normalize")) as port, Dialogue(port) as client:
        assert (await client.submit(b"S: x\n\nb\rc\r\nd\r\r\n")).startswith("250")
    [body] = factory.bodies().values()
    assert body.content.endswith(b"\r\nS: x\r\n\r\nb\r\nc\r\nd\r\n\r\n")
    assert body.size == len(body.content)


@pytest.mark.parametrize("mode", ["reject", "normalize"])
async def test_nul_is_refused_in_either_mode(factory: Factory, mode: str) -> None:
    async with serving(factory.uri, server=data_phase(barenewline=mode)) as port, Dialogue(port) as client:
        assert (await client.submit(b"a\0b\r\n")).startswith("554 5.6.0")
    assert factory.bodies() == {}


async def test_too_many_recipients_are_452_and_the_others_are_kept(factory: Factory) -> None:
    phases = {"phases": {"rcptto": {"maxrecipients": 3}}}
    async with serving(factory.uri, server=phases) as port, Dialogue(port) as client:
        await client.envelope(b"<a@example.com>", b"<b@example.com>", b"<c@example.com>")
        for _ in range(2):
            assert (await client.ask(b"RCPT TO:<d@example.com>")).startswith("452 4.5.3")
        assert (await client.data()).startswith("250")
        await client.envelope(b"<d@example.com>")
    assert [row.recipientlocalpart for row in factory.queue()] == ["a", "b", "c"]


async def test_too_many_hops_are_refused_as_a_loop(factory: Factory) -> None:
    hop = b"Received: from x by y; z\r\n"
    body = b"\r\n" + hop * 10
    async with serving(factory.uri, server=data_phase(maxhops=3)) as port, Dialogue(port) as client:
        assert (await client.submit(hop.swapcase() * 4 + body)).startswith("554 5.4.6")
        assert (await client.submit(hop * 3 + b"Not-Received: x\r\n" + body)).startswith("250")
    assert len(factory.bodies()) == 1


@pytest.mark.parametrize(
    ("recipient", "code"),
    [
        (b"<user>", "550 5.1.3"),
        (b"<user@-bad.example>", "501 5.1.3"),
        (b"<user@[1.2.3]>", "501 5.1.3"),
        (b"<user@[IPv6:fe80::1%eth0]>", "501 5.1.3"),
        (b"<user@a..example>", "5"),
        (b"<" + b"x" * 65 + b"@example.com>", "5"),
        (b"<us er@example.com>", "5"),
        (b"<user@example.com> UNHEARD=OF", "555 5.5.4"),
        (b"<user@example.com> NOTIFY=PERHAPS", "501 5.5.4"),
        (b"<user@[192.0.2.1]>", "554 5.7.1"),
        (b"", "501"),
    ],
)
async def test_invalid_recipients_are_refused_and_the_session_continues(
    factory: Factory, heard: Heard, recipient: bytes, code: str
) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope(b"<good@example.com>")
        assert (await client.ask(b"RCPT TO:" + recipient)).startswith(code)
        assert (await client.data()).startswith("250")
    assert [row.recipientlocalpart for row in factory.queue()] == ["good"]
    assert all(refused["client"] == "127.0.0.1" for refused in heard.all("session.refused"))


async def test_an_invalid_sender_is_refused_and_the_next_one_accepted(factory: Factory, heard: Heard) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@[IPv6:nonsense]>")).startswith("501 5.1.7")
        assert (await client.ask(b"MAIL FROM:<nodomain>")).startswith("501 5.1.7")
        await client.envelope()
    assert [refused["address"] for refused in heard.all("session.refused")] == ["a@[IPv6:nonsense]", "nodomain"]


async def test_commands_out_of_order_are_503(factory: Factory) -> None:
    async with serving(factory.uri) as port:
        async with Dialogue(port, ehlo=None) as client:
            for command in (b"MAIL FROM:<a@sender.example>", b"RCPT TO:<b@example.com>", b"DATA"):
                assert (await client.ask(command)).startswith("503")
        async with Dialogue(port) as client:
            assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503")
            assert (await client.ask(b"DATA")).startswith("503 5.5.1")
            await client.envelope()
            assert (await client.ask(b"DATA now")).startswith("501 5.5.4")
            assert (await client.data()).startswith("250")
            assert (await client.ask(b"DATA")).startswith("503 5.5.1")


@pytest.mark.parametrize("verb", [b"HELO", b"EHLO"])
@pytest.mark.parametrize("name", [b"nul\x00.example", b"\xff\xfe.example", b"bell\x07"])
async def test_a_host_name_that_cannot_be_stored_is_refused_at_once(factory: Factory, verb: bytes, name: bytes) -> None:
    """Else each of its messages would be refused by PostgreSQL, and take its group apart."""
    async with serving(factory.uri) as port, Dialogue(port, ehlo=None) as client:
        assert (await client.ask(verb + b" " + name)).startswith("501 5.5.4")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("503")
        assert (await client.ask(verb + b" client.example")).startswith("250")
        await client.envelope()
        assert (await client.data()).startswith("250 2.0.0")
    assert [row.senderhelo for row in factory.queue()] == ["client.example"]
