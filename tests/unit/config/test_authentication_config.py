"""test_authentication_config — each mistake in the sections authentication and tls is one clear line"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.tls import ClientCertificates
from shared.config.smtpd.users import load_users
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PAIR = "certificate: c, privatekey: k"


@pytest.mark.parametrize(
    ("yaml", "problem"),
    [
        ("authentication: {source: ldap}", 'authentication.source: "ldap" is not usable here; allowed: file or table'),
        (
            "authentication: {source: table, file: users.yaml}",
            "authentication: source is table but file is users.yaml; allowed: source: file, or no file",
        ),
        (
            "authentication: {mechanisms: [CRAM-MD5]}",
            'authentication.mechanisms[0]: "CRAM-MD5" is not usable here; allowed: ',
        ),
        ("authentication: {mechanisms: []}", "authentication.mechanisms: the list is empty; allowed: at least one"),
        (
            "authentication: {iterations: 1000}",
            "authentication.iterations: 1000 is not a usable number; allowed: a",
        ),
        ("authentication: {hashing: {threads: 0}}", "authentication.hashing.threads: 0 is not a usable number"),
        (
            "authentication: {failures: {within: 0s}}",
            "authentication.failures.within: 0s is too short; allowed:",
        ),
        (
            "authentication: {failures: {banned: 3}}",
            "authentication.failures.banned: unknown key (value ***); allowed: ",
        ),
        (
            "authentication: {tlsonly: 1}",
            "authentication.tlsonly: 1 is neither true nor false; allowed: ",
        ),
        (f"servers: [{{tls: {{{PAIR}, minimum: TLSv1.1}}}}]", "servers[0].tls.minimum: TLSv1.1 is not usable here"),
        (f"servers: [{{tls: {{{PAIR}, minimum: 1.2}}}}]", "servers[0].tls.minimum: 1.2 is not usable here"),
        ("servers: [{tls: {certificate: c}}]", "servers[0].tls.privatekey: is missing"),
        (
            f"servers: [{{tls: {{{PAIR}, client: {{ask: require}}}}}}]",
            "servers[0].tls.client: ask is require but authorities is not given; allowed: both, or ask: never",
        ),
        (
            f"servers: [{{tls: {{{PAIR}, client: {{users: {{app: alice}}}}}}}}]",
            "servers[0].tls.client.users.app: app is not the identity of a certificate; allowed: sha256: and the",
        ),
        (
            f"servers: [{{tls: {{{PAIR}, certificates: [{{{PAIR}, names: ['*']}}]}}}}]",
            'servers[0].tls.certificates[0].names[0]: "*" is not usable here; allowed: a host name',
        ),
        (
            "servers: [{listeners: [{tls: implicit}]}]",
            "servers[0]: listeners[0].tls is implicit but the server has no tls; allowed: both, or starttls",
        ),
    ],
)
def test_mistakes_in_smtpd_yaml(tmp_path: Path, yaml: str, problem: str) -> None:
    file = tmp_path / "smtpd.yaml"
    file.write_text(yaml)
    with pytest.raises(ConfigError) as refused:
        load_smtpd(file, {})
    [line] = str(refused.value).splitlines()
    assert line.replace('"', "").startswith(f"{file}:1: {problem}".replace('"', ""))


@pytest.mark.parametrize(
    ("yaml", "problem"),
    [
        ("{}", None),
        ("users: {}", None),
        ("users: {messages: {messages: 1}}", None),
        ("user: {}", "user: unknown key (value a mapping); allowed: users; did you mean users?"),
        ("users: {alice: {argon2: hunter2}}", "users.alice.argon2: the value is not a password hash"),
        ("users: {alice: {scram: hunter2}}", "users.alice.scram: no SCRAM keys; allowed: SCRAM-SHA-256$"),
        (
            "users: {alice: {scram: 12}}",
            "users.alice.scram: the value is not a SCRAM key set; allowed: the text that `pillarbox user` writes",
        ),
        (
            "users: {alice: {senders: ['a@*.b']}}",
            "users.alice.senders[0]: a@*.b is not a valid sender; allowed: user@",
        ),
        ("users: {alice: {messages: 0}}", "users.alice.messages: 0 is not a usable number"),
        ('users: {"\\u202e": {}}', "users["),
        ("users: {alice: hunter2}", "users.alice: "),
        ("users: {messages: {message: 1}}", "users.messages.message: unknown key (value ***); allowed: argon2, "),
    ],
)
def test_mistakes_in_the_file_of_users(tmp_path: Path, yaml: str, problem: str | None) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(yaml)
    if problem is None:
        load_users(file)
        return
    with pytest.raises(ConfigError) as refused:
        load_users(file)
    [line] = str(refused.value).splitlines()
    assert line.replace('"', "").startswith(f"{file}:1: {problem}")
    assert "hunter2" not in line


def test_a_fingerprint_is_taken_as_openssl_prints_it() -> None:
    printed = ":".join(["AB"] * 32)
    section = ClientCertificates.model_validate({"users": {f"SHA256:{printed}": "gru\u0308ße"}})
    assert section.users == {"sha256:" + "ab" * 32: "grüße"}
