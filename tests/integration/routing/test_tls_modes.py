"""test_tls_modes — every tls.mode against every kind of peer, over real sockets"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from queued.smtp.client import SmtpConnection
from queued.smtp.transaction import ConversationError, Timeouts, Transaction
from queued.tls.context import Contexts
from queued.tls.demanded import CLEAR, HostKnowledge, decide
from shared.config.queued.transport_tls import TransportTls
from shared.errors import ConfigError
from tests.fixtures.peers.certificates import Authority
from tests.fixtures.peers.scripted_peer import GREETING, HANDSHAKE, HANG, ScriptedPeer, until
from tests.fixtures.peers.tls_peer import TlsPeer, server_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from queued.tls.demanded import TlsWanted

NAME: Final = "peer.example"
MESSAGE: Final = Transaction("alice@example.com", ("bob@example.net",), b"Subject: x\r\n\r\ntext\r\n")
CLEAR_TEXT: Final = "none"
FAULT: Final = "fault"
OFFERED: Final = b"250-peer.example\r\n250 STARTTLS\r\n"

#: mode → the result with each peer of `peer`: the last word of TransactionResult.tls, or a fault.
OUTCOMES: Final[dict[str, dict[str, str]]] = {
    "disabled": dict.fromkeys(
        ("plain", "good", "stranger", "expired", "misnamed", "broken", "dropped", "refusing"), "none"
    ),
    "optional": {
        "plain": CLEAR_TEXT,
        "good": "unverified",
        "stranger": "unverified",
        "expired": "unverified",
        "misnamed": "unverified",
        "broken": CLEAR_TEXT,
        "dropped": CLEAR_TEXT,
        "refusing": CLEAR_TEXT,
    },
    "optional_verify": {
        "plain": CLEAR_TEXT,
        "good": "verified",
        "stranger": FAULT,
        "expired": FAULT,
        "misnamed": FAULT,
        "broken": FAULT,
        "dropped": FAULT,
        "refusing": FAULT,
    },
    "require": {
        "plain": FAULT,
        "good": "unverified",
        "stranger": "unverified",
        "expired": "unverified",
        "misnamed": "unverified",
        "broken": FAULT,
        "dropped": FAULT,
        "refusing": FAULT,
    },
    "require_verify": {
        "plain": FAULT,
        "good": "verified",
        "stranger": FAULT,
        "expired": FAULT,
        "misnamed": FAULT,
        "broken": FAULT,
        "dropped": FAULT,
        "refusing": FAULT,
    },
}
OUTCOMES["dane"] = OUTCOMES["optional"]  # where the domain has no TLSA records


def peer(kind: str, authority: Authority, elsewhere: Authority) -> TlsPeer:
    """A peer of this kind, which calls itself peer.example."""
    good = server_context(authority.issue(NAME))
    yesterday = datetime.now(UTC) - timedelta(days=1)
    kinds: dict[str, Callable[[], TlsPeer]] = {
        "plain": TlsPeer,
        "good": lambda: TlsPeer(good),
        "stranger": lambda: TlsPeer(server_context(elsewhere.issue(NAME))),
        "expired": lambda: TlsPeer(server_context(authority.ending(NAME, yesterday))),
        "misnamed": lambda: TlsPeer(server_context(authority.issue("other.example"))),
        "broken": lambda: TlsPeer(good, handshake="broken"),
        "dropped": lambda: TlsPeer(good, handshake="dropped"),
        "refusing": lambda: TlsPeer(good, answer=b"454 4.7.0 TLS not available\r\n"),
    }
    return kinds[kind]()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Authority:
    """An untrusted authority."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Authority(folder)


def settings(authority: Authority, **more: object) -> TransportTls:
    return TransportTls.model_validate({"ca": str(authority.file), **more})


async def opened(
    port: int, tls: TransportTls, wanted: TlsWanted | None = None, timeouts: Timeouts | None = None
) -> SmtpConnection:
    """A connection as a transport with these settings makes it."""
    wanted = decide(tls, NAME, HostKnowledge()) if wanted is None else wanted
    return await SmtpConnection.open(
        "127.0.0.1", port, hostname="c.example", timeouts=timeouts or Timeouts(), tls=wanted, contexts=Contexts(tls)
    )


@pytest.mark.parametrize(
    ("mode", "kind", "expected"),
    [(mode, kind, expected) for mode, kinds in OUTCOMES.items() for kind, expected in kinds.items()],
)
async def test_each_tls_mode_against_each_kind_of_peer(
    mode: str, kind: str, expected: str, authority: Authority, elsewhere: Authority
) -> None:
    async with peer(kind, authority, elsewhere) as host:
        if expected == FAULT:
            with pytest.raises(ConversationError) as caught:
                await opened(host.port, settings(authority, mode=mode))
            assert (caught.value.fault.kind, caught.value.fault.phase) == ("tls", "starttls")
            assert b"MAIL" not in b" ".join(host.commands)
            return
        connection = await opened(host.port, settings(authority, mode=mode))
        result = await connection.send(MESSAGE)
        await connection.close()
        assert result.tls is not None
        assert (result.fault, result.tls.split()[-1]) == (None, expected)
        assert host.mails == ["clear" if expected == CLEAR_TEXT else result.tls.split()[0]]


async def test_clear_text_after_a_broken_handshake_is_a_new_connection(
    authority: Authority, elsewhere: Authority
) -> None:
    async with peer("broken", authority, elsewhere) as host:
        await (await opened(host.port, settings(authority))).close()
        assert host.connections == 2


async def test_the_connection_is_used_after_a_refused_starttls(authority: Authority, elsewhere: Authority) -> None:
    async with peer("refusing", authority, elsewhere) as host:
        await (await opened(host.port, settings(authority))).close()
        assert host.connections == 1


async def test_the_negotiated_tls_is_reported_and_sni_is_sent(authority: Authority, elsewhere: Authority) -> None:
    async with peer("good", authority, elsewhere) as host:
        connection = await opened(host.port, settings(authority, mode="require_verify"))
        assert connection.tls == "TLSv1.3 TLS_AES_256_GCM_SHA384 verified"
        await connection.close()
        assert host.sni == [NAME]


async def test_extensions_offered_before_the_handshake_are_discarded(authority: Authority) -> None:
    context = server_context(authority.issue(NAME))
    async with TlsPeer(context, offers=("SMTPUTF8", "PIPELINING"), later=("8BITMIME",)) as host:
        connection = await opened(host.port, settings(authority))
        assert set(connection.extensions) == {"8BITMIME", "OK"}
        assert host.commands == [b"EHLO c.example", b"STARTTLS", b"EHLO c.example"]
        await connection.close()


@pytest.mark.parametrize("injected", [b"250 injected\r\n", b"250-inj", b"\x16\x03\x01"])
@pytest.mark.parametrize("mode", ["optional", "require_verify"])
async def test_replies_injected_before_the_handshake_end_the_connection(
    injected: bytes, mode: str, authority: Authority
) -> None:
    # CVE-2011-0411: read after the handshake, they would count as the host's own words.
    script = (*GREETING, OFFERED, "STARTTLS", b"220 go on\r\n" + injected, HANG)
    async with ScriptedPeer(*script) as host:
        with pytest.raises(ConversationError) as caught:
            await opened(host.port, settings(authority, mode=mode))
        fault = caught.value.fault
        assert (fault.kind, fault.phase, host.connections) == ("protocol", "starttls", 1)


async def test_a_handshake_that_never_ends_is_cut_off(authority: Authority) -> None:
    async with ScriptedPeer(*GREETING, OFFERED, "STARTTLS", b"220 go on\r\n", HANG) as host:
        with pytest.raises(ConversationError) as caught:
            await opened(host.port, settings(authority, mode="require"), timeouts=Timeouts(starttls=0.2))
        assert (caught.value.fault.kind, caught.value.fault.phase) == ("tls", "starttls")


async def test_a_configured_certificate_name_is_accepted(authority: Authority, elsewhere: Authority) -> None:
    async with peer("misnamed", authority, elsewhere) as host:
        tls = settings(authority, mode="require_verify", names=[".example"])
        connection = await opened(host.port, tls)
        assert connection.tls.endswith(" verified")
        await connection.close()


async def test_a_host_below_the_minimum_tls_version_is_a_fault(authority: Authority) -> None:
    context = server_context(authority.issue(NAME))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with TlsPeer(context) as host:
        connection = await opened(host.port, settings(authority, mode="require"))
        assert connection.tls.startswith("TLSv1.2 ")
        await connection.close()
        with pytest.raises(ConversationError) as caught:
            await opened(host.port, settings(authority, mode="require", minimum="TLSv1.3"))
        assert caught.value.fault.kind == "tls"


async def test_implicit_tls_is_used_from_the_first_octet(authority: Authority, elsewhere: Authority) -> None:
    tls = settings(authority, mode="require_verify", implicit=True)
    async with TlsPeer(server_context(authority.issue(NAME)), implicit=True) as host:
        connection = await opened(host.port, tls)
        result = await connection.send(MESSAGE)
        assert (result.fault, host.mails) == (None, ["TLSv1.3"])
        assert b"STARTTLS" not in host.commands
        await connection.close()
    async with TlsPeer(server_context(elsewhere.issue(NAME)), implicit=True) as host:
        with pytest.raises(ConversationError) as caught:
            await opened(host.port, tls)
        assert (caught.value.fault.kind, caught.value.fault.phase) == ("tls", "connect")


async def test_our_certificate_is_sent_on_request(authority: Authority) -> None:
    ours = authority.issue("client.example")
    context = server_context(authority.issue(NAME))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    async with TlsPeer(context) as host:
        connection = await opened(host.port, settings(authority, mode="require", **ours))
        assert (await connection.send(MESSAGE)).fault is None
        await connection.close()
        assert [bool(shown) for shown in host.shown] == [True]


async def test_a_host_that_is_refused_is_not_connected_to(authority: Authority) -> None:
    async with TlsPeer() as host:
        with pytest.raises(ConversationError) as caught:
            await opened(host.port, settings(authority), CLEAR._replace(refused="MTA-STS: not this one"))
        assert (caught.value.fault.text, host.connections) == ("MTA-STS: not this one", 0)


def test_an_unusable_file_is_one_clear_line(tmp_path: Path, authority: Authority) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("this is no certificate")
    missing = tmp_path / "missing.pem"
    pair = authority.issue("client.example")
    for tls, line in (
        ({"ca": str(missing)}, f"transports[a].tls.ca: {missing}: No such file or directory"),
        ({"ca": str(rubbish)}, f"transports[a].tls.ca: {rubbish}: not usable: "),
        ({**pair, "privatekey": str(rubbish)}, f"transports[a].tls.certificate: {pair['certificate']}: not usable: "),
    ):
        with pytest.raises(ConfigError) as caught:
            Contexts(TransportTls.model_validate(tls), "transports[a].tls")
        assert str(caught.value).startswith(line)


async def test_a_host_that_refuses_ehlo_under_tls_gets_quit(authority: Authority) -> None:
    no = b"550 5.7.1 go away\r\n"
    script = (*GREETING, OFFERED, "STARTTLS", b"220 go on\r\n", HANDSHAKE, "EHLO", no, "HELO", no, "QUIT")
    async with ScriptedPeer(*script, later=server_context(authority.issue(NAME))) as host:
        with pytest.raises(ConversationError) as caught:
            await opened(host.port, settings(authority, mode="require"))
        assert (caught.value.fault.kind, caught.value.fault.phase) == ("refused", "helo")
        await until(lambda: host.heard[-1] == b"QUIT")
