"""test_login_config — valid settings of logins and LMTP, and errors that never repeat a secret"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from queued.tls.demanded import HostKnowledge, decide
from scripts.cli import main
from shared.config.queued.load import load_queued
from shared.config.queued.login import Auth
from shared.config.queued.transport_tls import TransportTls
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from queued.tls.demanded import TlsWanted
    from shared.config.queued.login import Over

PASSWORD: dict[str, Any] = {"password": {"file": "/etc/relay"}}
LMTP: dict[str, Any] = {"protocol": "lmtp"}


def error_of(folder: Path, **transport: Any) -> str:
    """The error for this transport; "" if it is valid."""
    file = folder / "queued.yaml"
    file.write_text(json.dumps({"transports": [transport]}))
    try:
        load_queued(file)
    except ConfigError as error:
        return str(error).replace(str(file), "")
    return ""


@pytest.mark.parametrize(
    ("auth", "wrong"),
    [
        ({"user": "u", **PASSWORD}, ""),
        ({"user": "u", "password": {"environment": "RELAY"}}, ""),
        ({"user": "u", "token": {"command": ["a", "b"]}}, ""),
        ({"user": "u", "oauth": {"url": "https://x.example/t", "clientid": "c"}}, ""),
        (PASSWORD, "auth.user: is missing"),  # the place of the section that lacks it
        ({"user": "u"}, "none of them is given; allowed: one of password, token, oauth"),
        ({"user": "u", **PASSWORD, "token": {"file": "t"}}, "password and token is given; allowed: one of"),
        ({"user": "u", "password": {}}, "none of them is given; allowed: one of file, environment"),
        ({"user": "u", "password": "hunter2"}, "auth.password: *** is not a section; allowed: the keys file, environ"),
        ({"user": "u", "password": {"inline": "hunter2"}}, "unknown key (value ***); allowed: file, environment"),
        (
            {"user": "u", "password": {"environment": "hunter2 !"}},
            "is not the name of an environment variable",
        ),
        ({"user": "u", "oauth": {"url": "http://x.example/t", "clientid": "c"}}, "a URL that begins with https://"),
        ({"user": "u", "oauth": {"url": "https://c:hunter2@x.example/t", "clientid": "c"}}, "without @ and ?"),
        ({"user": "u", "oauth": {"url": "https://x.example/t?s=hunter2", "clientid": "c"}}, "without @ and ?"),
        ({"user": "u\r\nMAIL", **PASSWORD}, "without control characters"),
        ({"user": "u", **PASSWORD, "mechanisms": ["XOAUTH2"]}, "XOAUTH2 cannot be used with a password; allowed: SCR"),
        (
            {"user": "u", "token": {"file": "t"}, "mechanisms": ["PLAIN"]},
            "PLAIN cannot be used with a token; allowed: O",
        ),
        ({"user": "u", **PASSWORD, "mechanisms": ["CRAM-MD5"]}, "allowed: SCRAM-SHA-256-PLUS, SCRAM-SHA-256, PLAIN"),
        ({"user": "u", **PASSWORD, "over": "tls"}, "allowed: verified_tls, any_tls or cleartext"),
    ],
)
def test_a_login_is_valid_or_refused_without_its_secret(tmp_path: Path, auth: dict[str, Any], wrong: str) -> None:
    said = error_of(tmp_path, connection={"auth": auth})
    assert wrong in said
    assert bool(said) is bool(wrong)
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("transport", "wrong"),
    [
        ({"connection": {"mode": "mx", "auth": {"user": "u", **PASSWORD}}}, "connection.mode: mx would show our cred"),
        (
            {"connection": {"mode": "mx", "hosts": [{"auth": {"user": "u", **PASSWORD}}]}},
            "connection.mode: mx would show our credentials",
        ),
        ({"connection": {"auth": {"user": "u", **PASSWORD}}, "tls": {"mode": "disabled"}}, "tls.mode: disabled would"),
        ({"connection": {"auth": {"user": "u", **PASSWORD, "over": "cleartext"}}, "tls": {"mode": "disabled"}}, ""),
        ({"connection": {**LMTP, "port": 24}}, ""),
        ({"connection": {**LMTP, "socket": "/run/lmtp"}}, ""),
        ({"connection": LMTP}, "connection.port: 25 is the port of SMTP"),
        ({"connection": {**LMTP, "hosts": [{"port": 24}, {}]}}, "connection.hosts[1].port: 25 is the port of SMTP"),
        ({"connection": {**LMTP, "mode": "mx", "port": 24}}, "connection.mode: mx leads to hosts that speak SMTP"),
        ({"connection": {"socket": "/run/lmtp"}}, "connection.socket: is for protocol lmtp"),
        ({"connection": {**LMTP, "socket": "/x", "hosts": [{"port": 24}]}}, "connection.socket: conflicts with hosts"),
        ({"connection": {**LMTP, "socket": "/x"}, "tls": {"mode": "require"}}, "tls.mode: require cannot be had over"),
        ({"connection": {**LMTP, "socket": "/x"}, "sources": [{"address": "192.0.2.1"}]}, "sources: mean nothing over"),
    ],
)
def test_contradictory_settings_are_refused(tmp_path: Path, transport: dict[str, Any], wrong: str) -> None:
    said = error_of(tmp_path, **transport)
    assert wrong in said
    assert bool(said) is bool(wrong)


def test_a_group_may_leave_required_keys_to_its_transports(tmp_path: Path) -> None:
    file = tmp_path / "queued.yaml"
    groups = [{"id": "boxes", "connection": LMTP}]
    transports = [{"id": "default", "group": "boxes", "connection": {"port": 24}}]
    file.write_text(json.dumps({"transportgroups": groups, "transports": transports}))
    assert load_queued(file).transports[0].connection.protocol == "lmtp"


def test_the_strongest_mechanism_is_first_and_plus_only_if_configured() -> None:
    def allowed(**more: Any) -> tuple[str, ...]:
        return Auth.model_validate({"user": "u", **more}).allowed

    assert allowed(**PASSWORD) == ("SCRAM-SHA-256", "PLAIN", "LOGIN")
    assert allowed(token={"file": "t"}) == ("OAUTHBEARER", "XOAUTH2")
    asked = ["LOGIN", "SCRAM-SHA-256-PLUS", "PLAIN"]
    assert allowed(**PASSWORD, mechanisms=asked) == ("SCRAM-SHA-256-PLUS", "PLAIN", "LOGIN")


@pytest.mark.parametrize(
    ("mode", "over", "speak", "proof"),
    [
        ("optional", "verified_tls", "must", "certificate"),
        ("optional_verify", "verified_tls", "must", "certificate"),
        ("require", "verified_tls", "must", "certificate"),
        ("require_verify", "verified_tls", "must", "certificate"),
        ("dane", "verified_tls", "must", "certificate"),  # where there is no TLSA record
        ("optional", "any_tls", "must", "none"),
        ("optional_verify", "any_tls", "must", "certificate"),
        ("require_verify", "any_tls", "must", "certificate"),
        ("optional", "cleartext", "offered", "none"),
        ("require_verify", "cleartext", "must", "certificate"),
        ("disabled", "cleartext", "never", "none"),
    ],
)
def test_a_login_requires_verified_tls(mode: str, over: Over, speak: str, proof: str) -> None:
    wanted: TlsWanted = decide(TransportTls.model_validate({"mode": mode}), "relay.example", HostKnowledge(login=over))
    assert (wanted.speak, wanted.proof, wanted.refused) == (speak, proof, "")
    assert wanted.names == (("relay.example",) if proof == "certificate" else ())


def test_config_show_does_not_print_the_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "relay"
    secret.write_text("hunter2")
    auth = {"user": "u", "password": {"file": str(secret)}}
    (tmp_path / "queued.yaml").write_text(json.dumps({"transports": [{"connection": {"auth": auth}}]}))
    assert main(["config", "show", "--config", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "hunter2" not in shown
    assert json.loads(shown)["transports"][0]["connection"]["auth"]["user"] == "u"
