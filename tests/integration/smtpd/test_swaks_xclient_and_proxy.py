"""test_swaks_xclient_and_proxy — XCLIENT and the PROXY protocol as implemented by swaks

Owns: swaks as a trusted gateway, for each version of the PROXY header and each attribute of XCLIENT that we take.
See: tests/integration/smtpd/test_proxy_and_xclient.py for refusals and for untrusted clients; swaks(1).
Bugs: the header that swaks sends for LOCAL has a command that there is not, and an octet too few; it is not tried here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.serving import serving
from tests.fixtures.daemons.submitting import RECIPIENT, SENDER, TEXT, run, settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.peers.certificates import Authority

TRUSTED = {"networks": ["127.0.0.0/8"]}
ELSEWHERE = {"networks": ["192.0.2.0/24", "2001:db8::/32"]}


def listener(**more: Any) -> dict[str, Any]:
    return {"listeners": [{"address": "127.0.0.1", "port": 0, **more}]}


def mail(port: int) -> tuple[str, ...]:
    return (
        *("--server", "127.0.0.1", "--port", str(port), "--helo", "gateway.example", "--protocol", "ESMTP"),
        *("--from", SENDER, "--to", RECIPIENT, "--data", "-"),
    )


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(("client", "us"), [("192.0.2.7", "192.0.2.1"), ("2001:db8::7", "2001:db8::1")])
async def test_the_address_in_the_proxy_header_of_swaks_is_the_client(
    factory: Factory, swaks: Path, version: str, client: str, us: str
) -> None:
    old = version == "1"
    family = {False: ("AF_INET", "TCP4"), True: ("AF_INET6", "TCP6")}[":" in client][old]
    proxy = (
        *("--proxy-version", version, "--proxy-source", client, "--proxy-source-port", "4321"),
        *("--proxy-dest", us, "--proxy-dest-port", "25", "--proxy-family", family),
        *(() if old else ("--proxy-protocol", "STREAM", "--proxy-command", "PROXY")),
    )
    async with serving(factory.uri, server=listener(proxy=TRUSTED), relay=ELSEWHERE) as port:
        await run(swaks, *mail(port), *proxy, text=TEXT)
    [row] = factory.queue()
    assert row.senderip == client


async def test_the_xclient_attributes_of_swaks_are_applied(factory: Factory, swaks: Path) -> None:
    said_of_client = (
        *("--xclient-addr", "192.0.2.9", "--xclient-name", "client.example", "--xclient-port", "4321"),
        *("--xclient-proto", "ESMTP", "--xclient-helo", "client.example"),
        *("--xclient-login", "alice"),
    )
    async with serving(factory.uri, server=listener(xclient=TRUSTED), relay=ELSEWHERE) as port:
        await run(swaks, *mail(port), *said_of_client, text=TEXT)
    [row] = factory.queue()
    assert (row.senderip, row.saslusername) == ("192.0.2.9", "alice")
    [body] = factory.bodies().values()
    assert b"(client.example [192.0.2.9])" in body.content


@pytest.mark.parametrize("before", [True, False])
async def test_xclient_works_before_and_after_starttls(
    factory: Factory,
    authority: Authority,
    swaks: Path,
    before: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    chosen = settings(authority, "starttls")
    chosen["server"]["listeners"] = [{"address": "127.0.0.1", "port": 0, "tls": "starttls", "xclient": TRUSTED}]
    chosen["relay"] = ELSEWHERE
    tls = ("--tls", "--tls-verify", "--tls-ca-path", authority.file)
    async with serving(factory.uri, **chosen) as port:
        order = ("--xclient-before-starttls",) if before else ()
        await run(swaks, *mail(port), *tls, *order, "--xclient-addr", "192.0.2.9", text=TEXT)
    [row] = factory.queue()
    assert row.senderip == "192.0.2.9"


async def test_xclient_from_an_unlisted_swaks_is_refused(factory: Factory, swaks: Path) -> None:
    async with serving(factory.uri, server=listener(xclient=ELSEWHERE)) as port:
        with pytest.raises(AssertionError, match="XCLIENT"):
            await run(swaks, *mail(port), "--xclient-addr", "192.0.2.9", text=TEXT)
    assert factory.queue() == []
