"""test_host_name — qualified host names, and the address literals used in place of others

Owns: shared/host_name.py, and the verdict of doctor on it.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

from operate.doctor.checks import Severity
from operate.doctor.host import name
from shared.config.queued.settings import QueuedConfig
from shared.config.smtpd.settings import SmtpdConfig
from shared.host_name import is_qualified, literal, own_name


@pytest.mark.parametrize("known", ["mx.example.com", "MX1.example", "a-b.c.de", "xn--mx-0ja.example"])
def test_a_qualified_name_is_used(known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_qualified(known)
    monkeypatch.setattr(socket, "getfqdn", lambda: known)
    assert own_name() == known


@pytest.mark.parametrize(
    "known",
    ["localhost", "localhost.localdomain", "ip6-localhost", "3f2a1b", "mx.localdomain", "10.0.0.1", "a_b.example", ""],
)
def test_an_unqualified_name_is_replaced_by_an_address_literal(known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_qualified(known)
    monkeypatch.setattr(socket, "getfqdn", lambda: known)
    assert own_name().startswith("[")
    SmtpdConfig.model_validate({"servers": [{"hostname": own_name()}]})  # it is valid where a name is configured


def test_an_ipv6_literal_has_its_tag() -> None:
    assert literal("192.0.2.1") == "[192.0.2.1]"
    assert literal("2001:db8::1") == "[IPv6:2001:db8::1]"


@pytest.mark.parametrize(
    ("known", "configured", "verdict", "found"),
    [
        ("mx.example.com", None, Severity.OK, "by configuration, or mx.example.com"),
        ("localhost", "mx.example.com", Severity.OK, "by configuration"),
        ("localhost", None, Severity.WARN, "localhost is not a fully qualified name, so mail says [192.0.2.1]"),
    ],
)
def test_doctor_names_the_keys_that_need_a_host_name(
    known: str, configured: str | None, verdict: Severity, found: str
) -> None:
    given: dict[str, Any] = {"hostname": configured} if configured else {}
    smtpd = SmtpdConfig.model_validate({"servers": [given]})
    queued = QueuedConfig.model_validate({"transports": [{"id": "default", **given}], "bounces": given})
    finding = name(smtpd, queued, known, "[192.0.2.1]")
    assert finding.verdict is verdict
    assert finding.found.startswith(found)
    if verdict is Severity.WARN:
        assert finding.remedy.startswith("give servers[0].hostname, transports[0].hostname, bounces.hostname, or")
