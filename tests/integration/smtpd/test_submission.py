"""test_submission — the rights of an authenticated user, and authentication by certificate and channel binding

Owns: proofs with real clients about EXTERNAL, SCRAM-SHA-256-PLUS, a user's own senders, relaying by certificate.
See: tests/integration/smtpd/test_clients.py for each client's everyday login.
"""

from __future__ import annotations

import asyncio
import hashlib
import smtplib
import subprocess
from typing import TYPE_CHECKING

import aiosmtplib
import pytest
from scramp import ScramClient

from tests.fixtures.daemons.login import PASSWORD
from tests.fixtures.daemons.serving import HOSTNAME, serving
from tests.fixtures.daemons.submitting import RECIPIENT, SENDER, TEXT, arrived, named, run_curl, run_msmtp, settings
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard
    from tests.fixtures.peers.certificates import Authority


async def test_a_certificate_is_enough_for_curl(factory: Factory, authority: Authority, curl: Path) -> None:
    """AUTH EXTERNAL, by a certificate of the client's own."""
    made = authority.issue("app.example", common_name="app")
    chosen = settings(authority, "starttls")
    trusting = {"ask": "request", "authorities": str(authority.file), "users": {fingerprint(made): "alice"}}
    chosen["server"]["tls"]["client"] = trusting
    async with serving(factory.uri, **chosen) as port:
        certificate = ("--cert", made["certificate"], "--key", made["privatekey"])
        await run_curl(
            curl, authority, "smtp", port, *certificate, "--user", "alice:", "--login-options", "AUTH=EXTERNAL"
        )
    arrived(factory)


def fingerprint(made: dict[str, str]) -> str:
    """As `openssl x509 -fingerprint -sha256` prints it, behind sha256:."""
    said = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", made["certificate"]],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return "sha256:" + said.strip().partition("=")[2]


@pytest.mark.parametrize("genuine", [True, False])
async def test_scram_plus_binds_to_the_certificate_of_the_connection(
    factory: Factory,
    authority: Authority,
    genuine: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """With scramp in smtplib: no packaged client binds by tls-server-end-point, and CPython has no tls-exporter."""

    def send(port: int) -> int:
        with named(smtplib.SMTP)(local_hostname="client.example", timeout=PATIENCE) as client:
            client.connect("127.0.0.1", port)
            client.starttls(context=trust)
            client.ehlo()
            assert "SCRAM-SHA-256-PLUS" in client.esmtp_features["auth"].split()
            shown = client.sock.getpeercert(binary_form=True)  # type: ignore[union-attr]
            point = hashlib.sha256(shown if genuine else b"another certificate").digest()
            exchange = ScramClient(
                ["SCRAM-SHA-256-PLUS"], "alice", PASSWORD, channel_binding=("tls-server-end-point", point)
            )

            def answer(challenge: bytes | None = None) -> str:
                if challenge is None:
                    return str(exchange.get_client_first())
                if challenge.startswith(b"v="):
                    exchange.set_server_final(challenge.decode())
                    return ""
                exchange.set_server_first(challenge.decode())
                return str(exchange.get_client_final())

            try:
                code, _ = client.auth("SCRAM-SHA-256-PLUS", answer)
            except smtplib.SMTPAuthenticationError as refused:
                return refused.smtp_code
            client.sendmail(SENDER, [RECIPIENT], TEXT)
            return code

    trust = authority.trust()
    chosen = settings(authority, "starttls", ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"])
    # The one for this name is not the default one.
    by_name = {key: chosen["server"]["tls"][key] for key in ("certificate", "privatekey")}
    chosen["server"]["tls"] |= {**authority.issue("other.example"), "certificates": [by_name]}
    async with serving(factory.uri, **chosen) as port:
        code = await asyncio.to_thread(send, port)
    if genuine:
        assert code == 235
        arrived(factory)
    else:
        assert code == 535
        assert factory.queue() == []


async def test_offering_scram_plus_does_not_exclude_other_clients(
    factory: Factory, authority: Authority, msmtp: Path
) -> None:
    """A client that could bind but was not offered it says so, and would be refused (RFC 5802 section 6)."""
    async with serving(factory.uri, **settings(authority, "starttls", ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"])) as port:
        await run_msmtp(
            msmtp,
            *("--host=127.0.0.1", f"--port={port}", "--timeout=60", "--file=/dev/null"),
            *("--tls=on", f"--tls-trust-file={authority.file}", f"--tls-host-override={HOSTNAME}"),
            *("--auth=scram-sha-256", "--user=alice", f"--passwordeval=echo '{PASSWORD}'"),
            *(f"--from={SENDER}", "--", RECIPIENT),
            text=TEXT,
        )
    arrived(factory)


async def test_a_wrong_password_is_reported_to_the_client(factory: Factory, authority: Authority) -> None:
    trust = authority.trust()
    trust.check_hostname = False
    async with serving(factory.uri, **settings(authority, "starttls")) as port:
        client = aiosmtplib.SMTP(hostname="127.0.0.1", port=port, start_tls=True, tls_context=trust, timeout=PATIENCE)
        async with client:
            with pytest.raises(aiosmtplib.SMTPAuthenticationError) as refused:
                await client.login("alice", "wrong")
            assert refused.value.code == 535
            with pytest.raises(aiosmtplib.SMTPRecipientsRefused) as stranger:
                await client.sendmail(SENDER, [RECIPIENT], TEXT)
        assert [each.code for each in stranger.value.recipients] == [554]
    assert factory.queue() == []


async def test_a_foreign_sender_is_refused(factory: Factory, authority: Authority) -> None:
    trust = authority.trust()
    trust.check_hostname = False
    async with serving(factory.uri, **settings(authority, "starttls")) as port:
        client = aiosmtplib.SMTP(hostname="127.0.0.1", port=port, start_tls=True, tls_context=trust, timeout=PATIENCE)
        async with client:
            await client.login("alice", PASSWORD)
            with pytest.raises(aiosmtplib.SMTPSenderRefused) as envelope:
                await client.sendmail("mallory@elsewhere.example", [RECIPIENT], TEXT)
            assert (envelope.value.code, envelope.value.message[:6]) == (553, "5.7.1 ")
            foreign = TEXT.replace(f"From: {SENDER}", "From: mallory@elsewhere.example")
            with pytest.raises(aiosmtplib.SMTPDataError) as field:
                await client.sendmail(SENDER, [RECIPIENT], foreign)
            assert (field.value.code, field.value.message[:6]) == (550, "5.7.1 ")
    assert factory.queue() == []


async def test_with_checkfrom_off_a_foreign_from_is_marked(factory: Factory, authority: Authority) -> None:
    """So that its domain is not signed for: queued/signing/sign.py."""
    trust = authority.trust()
    trust.check_hostname = False
    chosen = settings(authority, "starttls")
    chosen["authentication"]["checkfrom"] = False
    async with serving(factory.uri, **chosen) as port:
        client = aiosmtplib.SMTP(hostname="127.0.0.1", port=port, start_tls=True, tls_context=trust, timeout=PATIENCE)
        async with client:
            await client.login("alice", PASSWORD)
            await client.sendmail(SENDER, [RECIPIENT], TEXT)
            dressed = '"x" (a\\) <alice@sender.example>) <ceo@elsewhere.example>'
            await client.sendmail(SENDER, [RECIPIENT], TEXT.replace(f"From: {SENDER}", f"From: {dressed}"))
    assert [(row.metadata or {}).get("_foreignfrom") for row in factory.queue()] == [None, True]


async def test_relaying_by_certificate_needs_no_auth(factory: Factory, authority: Authority) -> None:
    """`tls.client.relay`: the client is the user of its certificate as soon as TLS is established."""
    made = authority.issue("app.example", common_name="app")
    chosen = settings(authority, "starttls")
    trusting = {"ask": "request", "authorities": str(authority.file), "users": {fingerprint(made): "alice"}}
    chosen["server"]["tls"]["client"] = {**trusting, "relay": True}
    async with serving(factory.uri, **chosen) as port:
        for shown, code in ((False, 554), (True, 250)):
            trust = authority.trust()
            trust.check_hostname = False
            if shown:
                trust.load_cert_chain(made["certificate"], made["privatekey"])
            client = aiosmtplib.SMTP(
                hostname="127.0.0.1", port=port, start_tls=True, tls_context=trust, timeout=PATIENCE
            )
            async with client:
                await client.mail(SENDER)
                try:
                    said = (await client.rcpt(RECIPIENT)).code
                except aiosmtplib.SMTPRecipientRefused as refused:
                    said = refused.code
                assert said == code
                if shown:
                    await client.data(TEXT)
    arrived(factory)


async def test_with_unavailable_users_a_client_with_a_certificate_gets_421(
    factory: Factory, authority: Authority, heard: Heard
) -> None:
    """Our own faults are 4xx: without its user the client would get 554 to RCPT."""
    made = authority.issue("app.example", common_name="app")
    chosen = settings(authority, "starttls")
    trusting = {"ask": "request", "authorities": str(authority.file), "users": {fingerprint(made): "alice"}}
    chosen["server"]["tls"]["client"] = {**trusting, "relay": True}
    chosen["authentication"] = {"source": "table"}
    factory.sql("ALTER TABLE pillarbox.users RENAME TO users_away")
    trust = authority.trust()
    trust.check_hostname = False
    trust.load_cert_chain(made["certificate"], made["privatekey"])
    async with serving(factory.uri, **chosen) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(PATIENCE):
            await reader.readline()
            writer.write(b"EHLO client.example\r\n")
            while (await reader.readline())[3:4] == b"-":
                pass
            writer.write(b"STARTTLS\r\n")
            assert (await reader.readline()).startswith(b"220")
            await writer.start_tls(trust, server_hostname="")
            writer.write(b"EHLO client.example\r\nMAIL FROM:<a@sender.example>\r\nRCPT TO:<b@example.com>\r\n")
            said = (await reader.read()).splitlines()
        writer.close()
    assert said, "hung up without a word"
    assert all(line.startswith(b"4") for line in said), said
    assert said[0].startswith(b"421 4.7.0")
    assert heard.all("users.unavailable")
    assert heard.all("session.error") == [], "it is a known condition, not an internal error"
