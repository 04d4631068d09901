"""test_smuggling — one message stays one message, with any line ends

Owns: the forms of SMTP smuggling: a second message in the content of a first, which another server on the way would see
    or would not. Here it is never accepted as a message.
See: RFC 5321 sections 2.3.8, 4.1.1.4; CVE-2023-51764 (Postfix), CVE-2023-51765 (sendmail), CVE-2023-51766 (Exim),
    CVE-2024-27305 (aiosmtpd).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.serving import Dialogue, serving

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

ENDS = {
    "lf-dot-lf": b"\n.\n",
    "lf-dot-crlf": b"\n.\r\n",
    "cr-dot-cr": b"\r.\r",
    "cr-dot-crlf": b"\r.\r\n",
    "crlf-dot-cr": b"\r\n.\r",
    "crlf-dot-lf": b"\r\n.\n",
    "nul-before": b"\r\n\0.\r\n",
    "nul-after": b"\r\n.\0\r\n",
    "cr-cr-lf": b"\r\r\n.\r\r\n",
    "lf-cr": b"\n\r.\n\r",
    "vertical-tab": b"\x0b.\x0b",
    "blank-after": b"\r\n. \r\n",
}
SMUGGLED = (
    b"MAIL FROM:<smuggled@sender.example>\r\nRCPT TO:<victim@example.com>\r\nDATA\r\nSubject: smuggled\r\n\r\nbody\r\n"
)
HARMLESS = {"vertical-tab", "blank-after"}  # no server takes these for an end: they are content


@pytest.mark.parametrize("mode", ["reject", "normalize"])
@pytest.mark.parametrize("name", ENDS)
async def test_commands_smuggled_into_content_are_not_executed(factory: Factory, name: str, mode: str) -> None:
    server = {"phases": {"data": {"barenewline": mode}}}
    async with serving(factory.uri, server=server) as port, Dialogue(port) as client:
        reply = await client.submit(b"Subject: a\r\n\r\nfirst" + ENDS[name] + SMUGGLED)
        accepted = name in HARMLESS or (mode == "normalize" and "nul" not in name)
        assert reply[:9] == ("250 2.0.0" if accepted else "554 5.6.0")
        # One reply, and the session is where it was: nothing of the content was a command.
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503")
    assert len(factory.bodies()) == int(accepted)
    assert {row.senderlocalpart for row in factory.queue()} == ({"a"} if accepted else set())


@pytest.mark.parametrize("name", [name for name in ENDS if name not in HARMLESS and "nul" not in name])
async def test_normalized_content_contains_no_bare_line_end(factory: Factory, name: str) -> None:
    server = {"phases": {"data": {"barenewline": "normalize"}}}
    async with serving(factory.uri, server=server) as port, Dialogue(port) as client:
        assert (await client.submit(b"Subject: a\r\n\r\nfirst" + ENDS[name] + SMUGGLED)).startswith("250")
    [body] = factory.bodies().values()
    rest = body.content.replace(b"\r\n", b"")
    assert b"\r" not in rest
    assert b"\n" not in rest


@pytest.mark.parametrize("name", ENDS)
async def test_commands_smuggled_into_chunks_are_not_executed(factory: Factory, name: str) -> None:
    content = b"Subject: a\r\n\r\nfirst" + ENDS[name] + SMUGGLED
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.envelope()
        await client.send(b"BDAT %d LAST\r\n" % len(content) + content)
        assert (await client.reply())[0][:9] == ("250 2.0.0" if name in HARMLESS else "554 5.6.0")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503")
    assert len(factory.bodies()) == int(name in HARMLESS)


@pytest.mark.parametrize("cut", range(1, 6))
async def test_a_split_end_of_data_is_found_only_when_complete(factory: Factory, cut: int) -> None:
    """State that a reader might lose between two packets."""
    false, true = b"\r\n.\n\r\n", b"\r\n.\r\n"
    async with (
        serving(factory.uri, server={"phases": {"data": {"barenewline": "normalize"}}}) as port,
        Dialogue(port) as client,
    ):
        await client.envelope()
        assert (await client.ask(b"DATA")).startswith("354")
        for piece in (b"first", false[:cut], false[cut:], SMUGGLED, true[: cut - 1], true[cut - 1 :]):
            await client.send(piece)
        assert (await client.reply())[0].startswith("250 2.0.0")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503")
    assert len(factory.bodies()) == 1
