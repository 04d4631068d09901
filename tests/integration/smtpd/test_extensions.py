"""test_extensions — every extension that EHLO offers is accepted, and minor commands work

Owns: the reply to EHLO and HELO, limits announced by LIMITS, and NOOP, RSET, HELP, ETRN, QUIT.
See: RFC 5321 section 4.1.1; RFC 9422; the RFC of each extension in smtpd/session/service.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.login import HASH
from tests.fixtures.daemons.serving import HOSTNAME, MESSAGE, Dialogue, serving

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

OFFERED = [
    "PIPELINING",
    "SIZE 10240000",
    "8BITMIME",
    "SMTPUTF8",
    "ENHANCEDSTATUSCODES",
    "CHUNKING",
    "DSN",
    "MT-PRIORITY",
    "LIMITS RCPTMAX=1000",
]


def limited(**settings: Any) -> dict[str, Any]:
    return {"limits": settings}


async def test_ehlo_offers_our_extensions(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert client.offered[0] == f"250-{HOSTNAME}"
        assert [line[4:] for line in client.offered[1:-1]] == OFFERED
        assert re.fullmatch(r"250 FUTURERELEASE 604800 [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z", client.offered[-1])


@pytest.mark.parametrize(
    ("keyword", "parameter"),
    [
        ("8BITMIME", b"MAIL FROM:<a@sender.example> BODY=8BITMIME"),
        ("DSN", b"MAIL FROM:<a@sender.example> RET=HDRS"),
        ("MT-PRIORITY", b"MAIL FROM:<a@sender.example> MT-PRIORITY=1"),
        ("SIZE", b"MAIL FROM:<a@sender.example> SIZE=1"),
        ("SMTPUTF8", b"MAIL FROM:<a@sender.example> SMTPUTF8"),
        ("ENHANCEDSTATUSCODES", None),
        ("LIMITS", None),
        ("PIPELINING", None),
    ],
)
async def test_discarded_keywords_are_not_offered_and_their_parameters_refused(
    factory: Factory, keyword: str, parameter: bytes | None
) -> None:
    async with serving(factory.uri, server={"discardkeywords": [keyword]}) as port, Dialogue(port) as client:
        offered = [line[4:] for line in client.offered[1:-1]]
        assert offered == [line for line in OFFERED if line.partition(" ")[0] != keyword]
        if parameter is not None:
            assert (await client.ask(parameter)).startswith("555 5.5.4")
        assert (await client.submit()).startswith("250")


async def test_without_chunking_no_octet_behind_bdat_is_a_command(factory: Factory) -> None:
    async with serving(factory.uri, server={"discardkeywords": ["CHUNKING"]}) as port, Dialogue(port) as client:
        assert "CHUNKING" not in [line[4:] for line in client.offered]
        await client.envelope()
        await client.send(b"BDAT 40 LAST\r\nDATA\r\nSubject: smuggled\r\n\r\nx\r\n.\r\n")
        assert await client.reply() == ["521 5.5.1 CHUNKING is not offered; closing the connection"]
        assert await client.ended() == b""
    assert factory.queue() == []


async def test_helo_offers_no_extension_and_refuses_parameters(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port, ehlo=b"HELO client.example") as client:
        assert client.offered == [f"250 {HOSTNAME}"]
        assert (await client.ask(b"MAIL FROM:<a@sender.example> SIZE=1")).startswith("555 5.5.4")
        assert (await client.ask(b"AUTH PLAIN")).startswith("503 5.5.1")
        assert (await client.submit()).startswith("250")


@pytest.mark.parametrize("command", [b"HELO", b"EHLO", b"HELO ", b"EHLO a b", b"EHLO " + b"a" * 256])
async def test_ehlo_requires_a_name(factory: Factory, command: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port, ehlo=None) as client:
        assert (await client.ask(command)).startswith("501 5.5.4")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("503 5.5.1")


async def test_a_second_ehlo_resets_the_transaction(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await client.say(b"EHLO other.example"))[0].startswith("250-")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503 5.5.1")


async def test_a_second_mail_within_a_transaction_is_503(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await client.ask(b"MAIL FROM:<other@sender.example>")).startswith("503 5.5.1")
        assert (await client.data()).startswith("250")
    assert [row.senderlocalpart for row in factory.queue()] == ["a"]


async def test_the_messages_of_a_connection_may_be_limited(factory: Factory) -> None:
    async with serving(factory.uri, server=limited(messages=2)) as port, Dialogue(port) as client:
        assert any(line[4:] == "LIMITS RCPTMAX=1000 MAILMAX=2" for line in client.offered)
        for _ in range(2):
            assert (await client.submit()).startswith("250")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("452 4.5.3")


async def test_futurerelease_can_be_disabled(factory: Factory) -> None:
    server = {"phases": {"mailfrom": {"maxhold": None}}}
    async with serving(factory.uri, server=server) as port, Dialogue(port) as client:
        assert not any("FUTURERELEASE" in line for line in client.offered)
        assert (await client.ask(b"MAIL FROM:<a@sender.example> HOLDFOR=60")).startswith("555 5.5.4")


async def test_futurerelease_is_offered_to_relay_clients_and_if_auth_is_possible(factory: Factory) -> None:
    """To relay clients, and to clients that may authenticate: RFC 4954 requires no second EHLO after AUTH."""
    settings: dict[str, Any] = {"relay": {"networks": ["127.0.0.2"]}}
    auth = {"authentication": {"users": {"alice": HASH}, "tlsonly": False}}
    cases: list[tuple[str, dict[str, Any], bool]] = [
        ("127.0.0.1", {}, False),
        ("127.0.0.2", {}, True),
        ("127.0.0.1", auth, True),
    ]
    for source, more, offered in cases:
        async with serving(factory.uri, **settings, **more) as port, Dialogue(port, source=source) as client:
            assert any("FUTURERELEASE" in line for line in client.offered) is offered


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (b"noop", "250 2.0.0"),
        (b"NOOP whatever", "250 2.0.0"),
        (b"RSET", "250 2.0.0"),
        (b"RSET now", "501 5.5.4"),
        (b"HELP", "214 2.0.0"),
        (b"ETRN example.com", "502 5.5.1"),
        (b"EXPN list", "502 5.5.1"),
        (b"VRFY user", "252 2.5.0"),
        (b"TURN", "500 5.5.2"),
        (b"", "500 5.5.2"),
        (b" NOOP", "500 5.5.2"),
        (b"\xff\xfe", "500 5.5.2"),
        (b"MAIL a@sender.example", "501 5.5.4"),
        (b"MAIL FROM: <a@sender.example>", "250 2.1.0"),
        (b"mail from:<a@sender.example>", "250 2.1.0"),
        (b"MAIL", "501 5.5.4"),
        (b"DATA now", "501 5.5.4"),
        (b"STARTTLS now", "501 5.5.4"),
        (b"AUTH", "5"),
    ],
)
async def test_each_command_line_gets_its_reply(factory: Factory, command: bytes, reply: str) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.ask(command)).startswith(reply)


@pytest.mark.parametrize("command", [b"QUIT", b"QUIT now"])
async def test_quit_ends_the_connection(factory: Factory, command: bytes) -> None:
    async with serving(factory.uri) as port, Dialogue(port, ehlo=None) as client:
        assert (await client.ask(command)).startswith("221 2.0.0")
        assert await client.ended() == b""


@pytest.mark.parametrize(
    ("broken", "lines"),
    [
        ("smtpd.session.phases.at_helo", [b"EHLO x.example"]),
        ("smtpd.session.phases.at_mail", [b"MAIL FROM:<a@sender.example>"]),
        ("smtpd.session.phases.at_rcpt", [b"MAIL FROM:<a@sender.example>", b"RCPT TO:<b@example.com>"]),
        ("smtpd.commands.data.not_ready", [b"MAIL FROM:<a@sender.example>", b"RCPT TO:<b@example.com>", b"DATA"]),
    ],
)
async def test_a_fault_of_ours_is_451_with_an_id_in_the_log_and_the_session_continues(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch, broken: str, lines: list[bytes]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    async with serving(factory.uri) as port, Dialogue(port) as client:
        with monkeypatch.context() as breaking:
            breaking.setattr(broken, fail)
            replies = [await client.ask(line) for line in lines]
        assert replies[-1] == "451 4.3.0 Local error in processing, try again"
        await client.ask(b"RSET")
        assert (await client.submit(MESSAGE)).startswith("250")
    [fault] = heard.all("session.error")
    assert re.fullmatch(r"[0-9a-f]{8}", fault["id"])
    assert "secret detail" in fault["error"]


async def test_a_fault_of_ours_before_the_greeting_is_421(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret detail")

    async with serving(factory.uri) as port:
        with monkeypatch.context() as breaking:
            breaking.setattr("smtpd.session.phases.at_connect", fail)
            async with Dialogue(port, ehlo=None) as client:
                assert client.greeting == ["421 4.3.0 Local error in processing, try again"]
                assert await client.ended() == b""
    assert len(heard.all("session.error")) == 1
