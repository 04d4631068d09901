"""test_clients — other projects' clients submit with TLS and AUTH

Owns: one test for each client and mechanism: swaks, CPython's smtplib, aiosmtplib, curl, msmtp, nodemailer.
Guarantees: each client verifies our certificate, and its name if the client can be configured with it.
See: tests/integration/smtpd/test_submission.py for the rights of a user; test_session_login.py for refusals.
"""

from __future__ import annotations

import asyncio
import json
import smtplib
from email.message import EmailMessage
from typing import TYPE_CHECKING

import aiosmtplib
import pytest

from tests.fixtures.daemons.login import PASSWORD
from tests.fixtures.daemons.serving import HOSTNAME, serving
from tests.fixtures.daemons.submitting import (
    RECIPIENT,
    SENDER,
    TEXT,
    arrived,
    named,
    run,
    run_curl,
    run_msmtp,
    settings,
)
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.peers.certificates import Authority

HOW = pytest.mark.parametrize("tls", ["starttls", "implicit"])
MECHANISMS = ["PLAIN", "LOGIN", "SCRAM-SHA-256"]


@HOW
@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_swaks_submits_with_tls_and_auth(
    factory: Factory, authority: Authority, swaks: Path, tls: str, mechanism: str
) -> None:
    async with serving(factory.uri, **settings(authority, tls, [mechanism])) as port:
        said = await run(
            swaks,
            *("--server", "127.0.0.1", "--port", str(port), "--helo", "client.example", "--protocol", "ESMTP"),
            *("--from", SENDER, "--to", RECIPIENT, "--data", "-"),
            *("--tls" if tls == "starttls" else "--tls-on-connect", "--tls-verify", "--tls-ca-path", authority.file),
            *("--auth", mechanism, "--auth-user", "alice", "--auth-password", PASSWORD),
            text=TEXT,
        )
    assert "235 2.7.0" in said
    arrived(factory)


@HOW
@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_smtplib_submits_with_tls_and_auth(
    factory: Factory, authority: Authority, tls: str, mechanism: str
) -> None:
    def send(port: int) -> None:
        with named(smtplib.SMTP if tls == "starttls" else smtplib.SMTP_SSL)(
            local_hostname="client.example", timeout=PATIENCE, **({"context": trust} if tls == "implicit" else {})
        ) as client:
            client.connect("127.0.0.1", port)
            if tls == "starttls":
                client.starttls(context=trust)
            client.login("alice", PASSWORD)
            assert client.sendmail(SENDER, [RECIPIENT], TEXT) == {}

    trust = authority.trust()
    async with serving(factory.uri, **settings(authority, tls, [mechanism])) as port:
        await asyncio.to_thread(send, port)
    arrived(factory)


@HOW
@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_aiosmtplib_submits_with_tls_and_auth(
    factory: Factory, authority: Authority, tls: str, mechanism: str
) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = SENDER, RECIPIENT, "hello"
    message.set_content("body")
    trust = authority.trust()
    trust.check_hostname = False  # it can only check the address it connects to
    async with serving(factory.uri, **settings(authority, tls, [mechanism])) as port:
        errors, reply = await aiosmtplib.send(
            message,
            hostname="127.0.0.1",
            port=port,
            username="alice",
            password=PASSWORD,
            start_tls=tls == "starttls",
            use_tls=tls == "implicit",
            tls_context=trust,
            timeout=PATIENCE,
        )
    assert errors == {}
    assert reply.startswith("2.0.0 Queued as ")
    arrived(factory)


@HOW
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_curl_submits_with_tls_and_auth(
    factory: Factory, authority: Authority, curl: Path, tls: str, mechanism: str
) -> None:
    if mechanism.startswith("SCRAM") and "gsasl" not in await run(curl, "--version"):
        pytest.skip("this curl was built without GNU SASL, and knows no SCRAM")
    scheme = "smtp" if tls == "starttls" else "smtps"
    async with serving(factory.uri, **settings(authority, tls)) as port:
        login = ("--user", f"alice:{PASSWORD}", "--login-options", f"AUTH={mechanism}")
        await run_curl(curl, authority, scheme, port, *login)
    arrived(factory)


@HOW
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_msmtp_submits_with_tls_and_auth(
    factory: Factory, authority: Authority, msmtp: Path, tls: str, mechanism: str
) -> None:
    async with serving(factory.uri, **settings(authority, tls)) as port:
        await run_msmtp(
            msmtp,
            *("--host=127.0.0.1", f"--port={port}", "--domain=client.example", "--timeout=60", "--file=/dev/null"),
            *("--tls=on", f"--tls-starttls={'on' if tls == 'starttls' else 'off'}"),
            *(f"--tls-trust-file={authority.file}", f"--tls-host-override={HOSTNAME}"),
            *(f"--auth={mechanism.lower()}", "--user=alice", f"--passwordeval=echo '{PASSWORD}'"),
            *(f"--from={SENDER}", "--", RECIPIENT),
            text=TEXT,
        )
    arrived(factory)


async def test_msmtp_chooses_scram(factory: Factory, authority: Authority, msmtp: Path) -> None:
    async with serving(factory.uri, **settings(authority, "starttls")) as port:
        said = await run_msmtp(
            msmtp,
            *("--host=127.0.0.1", f"--port={port}", "--timeout=60", "--file=/dev/null"),
            *("--tls=on", f"--tls-trust-file={authority.file}", f"--tls-host-override={HOSTNAME}"),
            *("--auth=on", "--user=alice", f"--passwordeval=echo '{PASSWORD}'", f"--from={SENDER}", "--", RECIPIENT),
            text=TEXT,
        )
    assert "AUTH SCRAM-SHA-256" in said
    arrived(factory)


@HOW
@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_nodemailer_submits_with_tls_and_auth(
    factory: Factory, authority: Authority, nodemailer: Path, tls: str, mechanism: str
) -> None:
    async with serving(factory.uri, **settings(authority, tls)) as port:
        transport = {
            "host": "127.0.0.1",
            "port": port,
            "name": "client.example",
            "secure": tls == "implicit",
            "requireTLS": True,
            "tls": {"servername": HOSTNAME, "ca": authority.file.read_text()},
            "authMethod": mechanism,
            "auth": {"user": "alice", "pass": PASSWORD},
        }
        mail = {"from": SENDER, "to": RECIPIENT, "subject": "hello", "text": "body"}
        script = authority.folder / "send.js"
        script.write_text(
            f"require('nodemailer').createTransport({json.dumps(transport)}).sendMail({json.dumps(mail)})"
            ".then(sent => console.log(sent.response))"
        )
        said = await run(nodemailer, script)
    assert said.startswith("250 2.0.0 Queued as ")
    arrived(factory)
