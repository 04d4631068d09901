"""test_tls — the certificate that a client requests, the recorded session, and certificates that change

Owns: proofs about smtpd/tls.py with real handshakes on the loopback interface, apart from SMTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from shared.config.smtpd.settings import Server
from shared.config.smtpd.tls import ClientCertificates, Tls
from shared.errors import ConfigError
from smtpd.tls import Certificates, TlsFacts, certificate_user, facts, refuse_ended
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fixtures.heard import Heard
    from tests.fixtures.peers.certificates import Authority

NAMES = ["mx.pillarbox.example", "mx.other.example", "mail.wild.example"]


def certificates(**settings: Any) -> Certificates:
    return Certificates(Tls.model_validate(settings), "servers[0].tls")


class Peer:
    """A server that reports its view of the handshake; a client that returns the certificate it got."""

    def __init__(self, served: Certificates) -> None:
        self._served = served
        self._known: asyncio.Queue[TlsFacts] = asyncio.Queue()
        self.port = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"ready\n")
            await writer.start_tls(self._served.context())
            self._known.put_nowait(facts(writer.get_extra_info("ssl_object")))
            writer.write(b"done\n")
            await writer.drain()
        except (OSError, ssl.SSLError):
            pass  # the test sees it at the client
        finally:
            writer.close()

    async def ask(self, trust: ssl.SSLContext, name: str | None) -> tuple[TlsFacts, bytes]:
        """One handshake: the facts that the server has, and the certificate (DER) that the client got."""
        trust.check_hostname = name is not None
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                assert await reader.readline() == b"ready\n"
                await writer.start_tls(trust, server_hostname=name or "")
                assert await reader.readline() == b"done\n"
                shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                return await self._known.get(), shown
            finally:
                writer.close()


@asynccontextmanager
async def shaking(served: Certificates) -> AsyncIterator[Peer]:
    peer = Peer(served)
    server = await asyncio.start_server(peer.accept, "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()


def names_of(der: bytes) -> list[str]:
    extension = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return extension.value.get_values_for_type(x509.DNSName)


async def test_sni_selects_the_certificate(authority: Authority) -> None:
    served = certificates(
        **authority.issue("mx.pillarbox.example"),
        certificates=[
            authority.issue("mx.other.example", "also.example"),
            {**authority.issue("*.wild.example"), "names": ["*.wild.example"]},
        ],
    )
    async with shaking(served) as peer:
        for name, shown in (
            ("mx.pillarbox.example", ["mx.pillarbox.example"]),
            ("mx.other.example", ["mx.other.example", "also.example"]),
            ("also.example", ["mx.other.example", "also.example"]),
            ("MX.Other.Example", ["mx.other.example", "also.example"]),
            ("mail.wild.example", ["*.wild.example"]),
        ):
            known, der = await peer.ask(authority.trust(), name)
            assert names_of(der) == shown
            assert known.sni is not None
            assert known.sni.lower() == name.lower()
            assert known.bindings["tls-server-end-point"] == hashlib.sha256(der).digest()
        for name_unknown in ("nobody.example", "a.mail.wild.example"):
            trust = authority.trust()
            with pytest.raises(ssl.SSLCertVerificationError):  # the default one, which does not name it
                await peer.ask(trust, name_unknown)


async def test_a_client_without_sni_gets_the_default_certificate(authority: Authority) -> None:
    served = certificates(**authority.issue("mx.pillarbox.example"), certificates=[authority.issue("mx.other.example")])
    async with shaking(served) as peer:
        known, der = await peer.ask(authority.trust(), None)
    assert names_of(der) == ["mx.pillarbox.example"]
    assert (known.sni, known.version, known.subject, known.verified) == (None, "TLSv1.3", None, False)
    assert known.bits >= 128
    assert known.cipher.startswith("TLS_")


@pytest.mark.parametrize(
    ("settings", "client", "version"),
    [
        ({}, ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
        ({"minimum": "TLSv1.3"}, ssl.TLSVersion.TLSv1_3, "TLSv1.3"),
        ({"minimum": "TLSv1.3"}, ssl.TLSVersion.TLSv1_2, None),
        ({"ciphers": "ECDHE+AESGCM"}, ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
    ],
)
async def test_tls_versions_below_the_minimum_are_refused(
    authority: Authority,
    settings: dict[str, str],
    client: ssl.TLSVersion,
    version: str | None,
) -> None:
    async with shaking(certificates(**authority.issue(NAMES[0]), **settings)) as peer:
        trust = authority.trust()
        trust.maximum_version = client
        if version is None:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await peer.ask(trust, NAMES[0])
        else:
            known, _ = await peer.ask(trust, NAMES[0])
            assert known.version == version


async def test_a_new_certificate_is_served_after_a_reload_and_a_broken_one_never(
    authority: Authority, heard: Heard
) -> None:
    pair = authority.issue(NAMES[0], stem="served")
    served = certificates(**pair)
    async with shaking(served) as peer:
        _, first = await peer.ask(authority.trust(), NAMES[0])
        authority.issue(NAMES[0], stem="served")
        _, same = await peer.ask(authority.trust(), NAMES[0])
        assert same == first
        served.reload()
        _, second = await peer.ask(authority.trust(), NAMES[0])
        assert second != first
        authority.folder.joinpath("served.key").write_text("broken")
        with pytest.raises(ConfigError) as refused:
            served.reload()
        assert "\n" not in str(refused.value)
        assert str(refused.value).startswith(f"servers[0].tls: {pair['certificate']}, {pair['privatekey']}: ")
        known, still = await peer.ask(authority.trust(), NAMES[0])
        assert still == second
        assert known.bindings["tls-server-end-point"] == hashlib.sha256(second).digest()


async def test_an_open_connection_keeps_its_session_over_a_reload(authority: Authority) -> None:
    served = certificates(**authority.issue(NAMES[0], stem="served"))
    before = served.context()
    authority.issue(NAMES[0], stem="served")
    served.reload()
    assert served.context() is not before


CLIENT = "CN=app,O=Example"


async def shown_by(authority: Authority, tmp_path: Path, *, ask: str, by: trustme.CA | None, **more: Any) -> TlsFacts:
    served = certificates(**authority.issue(NAMES[0]), client={"ask": ask, "authorities": str(authority.file), **more})
    trust = authority.trust()
    if by is not None:
        by.issue_cert("app@example.com", common_name="app", organization_name="Example").configure_cert(trust)
    async with shaking(served) as peer:
        return (await peer.ask(trust, NAMES[0]))[0]


@pytest.mark.parametrize("ask", ["request", "require"])
async def test_a_client_certificate_is_verified_and_its_subject_known(
    authority: Authority, tmp_path: Path, ask: str
) -> None:
    known = await shown_by(authority, tmp_path, ask=ask, by=authority.ca)
    assert known.verified
    assert known.subject is not None
    assert "CN=app" in known.subject
    assert known.fingerprint is not None
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", known.fingerprint)
    by_subject = ClientCertificates.model_validate({"users": {known.subject: "alice"}})
    assert certificate_user(known, by_subject) == "alice"
    spelled = "SHA256:" + known.fingerprint[7:].upper()
    both = ClientCertificates.model_validate({"users": {known.subject: "alice", spelled: "bob"}})
    assert certificate_user(known, both) == "bob"
    assert certificate_user(known, ClientCertificates()) is None
    assert certificate_user(None, both) is None


async def test_a_client_without_a_certificate_is_accepted_unless_required(authority: Authority, tmp_path: Path) -> None:
    known = await shown_by(authority, tmp_path, ask="request", by=None)
    assert (known.subject, known.fingerprint, known.verified) == (None, None, False)
    with pytest.raises((ssl.SSLError, OSError, AssertionError)):
        await shown_by(authority, tmp_path, ask="require", by=None)


async def test_a_client_certificate_of_an_unknown_authority_ends_the_handshake(
    authority: Authority, tmp_path: Path
) -> None:
    with pytest.raises((ssl.SSLError, OSError, AssertionError)):
        await shown_by(authority, tmp_path, ask="request", by=trustme.CA())


async def test_a_certificate_may_be_its_own_authority(authority: Authority, tmp_path: Path) -> None:
    """Like Postfix's relay_clientcerts: self-signed certificates, listed one by one."""
    stranger = trustme.CA()
    issued = stranger.issue_cert("app@example.com")
    authorities = tmp_path / "clients.pem"
    authorities.write_bytes(issued.cert_chain_pems[0].bytes())
    served = certificates(**authority.issue(NAMES[0]), client={"ask": "require", "authorities": str(authorities)})
    trust = authority.trust()
    issued.configure_cert(trust)
    async with shaking(served) as peer:
        known, _ = await peer.ask(trust, NAMES[0])
    assert known.verified
    other = authority.trust()
    stranger.issue_cert("other@example.com").configure_cert(other)
    async with shaking(served) as peer:
        with pytest.raises((ssl.SSLError, OSError, AssertionError)):
            await peer.ask(other, NAMES[0])


def test_an_expired_certificate_is_refused_unless_already_in_use(authority: Authority) -> None:
    now = datetime.now(UTC)
    pair = authority.ending("mx.example", now + timedelta(days=1))
    servers = [Server.model_validate({"tls": {**authority.issue("default.example"), "certificates": [pair]}})]
    served = refuse_ended(servers, now)
    assert len(served) == 2
    later = now + timedelta(days=2)
    assert refuse_ended(servers, later, served) == served
    with pytest.raises(ConfigError, match=r"servers\[0\]\.tls\.certificates\[0\]\.certificate: .* expired 20"):
        refuse_ended(servers, later)


def test_a_certificate_that_expires_soon_is_a_warning(authority: Authority, heard: Heard) -> None:
    now = datetime.now(UTC)
    soon = authority.ending("soon.example", now + timedelta(days=5))
    ended = authority.ending("ended.example", now - timedelta(days=3), not_before=now - timedelta(days=9))
    fine = authority.ending("fine.example", now + timedelta(days=60))
    served = certificates(**fine, certificates=[soon, ended])
    said = heard.all("tls.expires")
    assert [(each["names"], each["days"]) for each in said] == [("soon.example", 4), ("ended.example", -3)]
    served.reload()
    assert len(heard.all("tls.expires")) == 4
    certificates(**fine, expirywarning="61d")
    assert heard.all("tls.expires")[-1]["names"] == "fine.example"


def test_unusable_certificates_are_one_clear_line(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.issue(NAMES[0]), authority.issue(NAMES[1])
    encrypted = tmp_path / "encrypted.key"
    key = load_pem_private_key((tmp_path / "certificate1.key").read_bytes(), None)
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for settings, words in (
        ({**pair, "privatekey": other["privatekey"]}, "servers[0].tls: *the private key is not the certificate's"),
        ({**pair, "privatekey": str(encrypted)}, "servers[0].tls: *the private key is encrypted"),
        ({**pair, "certificate": str(empty)}, "servers[0].tls: *"),
        ({**pair, "certificate": str(tmp_path / "none")}, "servers[0].tls.certificate: *No such file or directory"),
        ({**pair, "privatekey": str(tmp_path / "none")}, "servers[0].tls.privatekey: *No such file or directory"),
        ({**pair, "ciphers": "NONE:x"}, 'servers[0].tls.ciphers: "NONE:x" names no cipher; allowed: '),
        ({**pair, "certificates": [{**other, "privatekey": pair["privatekey"]}]}, "servers[0].tls.certificates[0]: "),
        (
            {**pair, "client": {"ask": "request", "authorities": str(empty)}},
            f"servers[0].tls.client.authorities: {empty}: ",
        ),
    ):
        with pytest.raises(ConfigError) as refused:
            certificates(**settings)
        assert re.match(re.escape(words).replace(r"\*", ".*"), str(refused.value)), refused.value
        assert "\n" not in str(refused.value)
