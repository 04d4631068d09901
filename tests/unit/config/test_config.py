"""test_config — YAML becomes frozen models with typed values

Owns: examples for shared.config and the models behind it, on real files; test_config_errors.py has the
refusals.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.settings import SmtpdConfig

if TYPE_CHECKING:
    from shared.config.queued.settings import QueuedConfig


@dataclass(frozen=True)
class Folder:
    """Writes one of the two files and loads it."""

    path: Path

    def smtpd(self, text: str) -> SmtpdConfig:
        (self.path / "smtpd.yaml").write_text(text, encoding="utf-8")
        return load_smtpd(self.path / "smtpd.yaml", {})

    def queued(self, text: str) -> QueuedConfig:
        (self.path / "queued.yaml").write_text(text, encoding="utf-8")
        return load_queued(self.path / "queued.yaml", {})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_omitted_keys_have_their_defaults(folder: Folder) -> None:
    config = folder.smtpd("spool: {timeout: 10s}")
    assert config.spool.timeout == timedelta(seconds=10)
    assert config.spool.group.maxbytes == 16 * 2**20
    assert config.servers[0].listeners[0].port == 2525
    assert config.servers[0].timeout.idle == timedelta(minutes=5)
    assert config.relay.networks == [ip_network("127.0.0.0/8"), ip_network("::1/128")]
    assert config.environment.var == Path("var")


def test_a_full_smtpd_yaml_is_read(folder: Folder) -> None:
    config = folder.smtpd(
        """
environment:
  database:
    uri: postgresql://db/queue
    partitions: {count: 12, leaves: {hot: ["1"], a_1: ["2", tenant-7]}}
servers:
  - id: public
    hostname: mail.example.com
    listeners: [{address: "::", port: 25}, {address: localhost, port: 0, backlog: 5}]
    tls: {certificate: c.pem, privatekey: k.pem}
    phases: {data: {maxsize: 25MiB, barenewline: normalize}}
  - id: submission
    hostname: "[IPv6:2001:db8::1]"
relay: {networks: []}
authentication: {users: {"bob@example.com": "$argon2id$v=19$m=65536,t=3,p=4$c2FsdA$aGFzaA"}}
spool: {synchronous_commit: off}
"""
    )
    public, submission = config.servers
    assert config.environment.database.partitions.leaves == {"hot": ["1"], "a_1": ["2", "tenant-7"]}
    assert public.tls is not None
    assert public.tls.certificate == Path("c.pem")
    assert public.phases.data.maxsize == 25 * 2**20
    assert public.listeners[1].port == 0
    assert submission.hostname == "[IPv6:2001:db8::1]"
    assert config.relay.networks == []
    assert config.spool.synchronous_commit == "off"


def test_policy_rules_are_read(folder: Folder) -> None:
    config = folder.smtpd(
        """
policy:
  rules:
    - id: one
      if:
        client: [192.0.2.0/24, "2001:db8::/32"]
        user: [bob]
        sender: ["", "Bob@Example.COM"]
        senderdomain: ["*.Example.com", bücher.example]
        recipientdomain: [example.net]
      then: {hold: review, metadata: {tenant: a}}
    - {id: two, then: {partition: "7"}}
"""
    )
    one, two = config.policy.rules
    assert one.condition.client == [ip_network("192.0.2.0/24"), ip_network("2001:db8::/32")]
    assert one.condition.sender == ["", "Bob@example.com"]
    assert one.condition.senderdomain == ["*.example.com", "xn--bcher-kva.example"]
    assert one.condition.recipient == []
    assert (one.action.hold, one.action.metadata, one.action.partition) == ("review", {"tenant": "a"}, None)
    assert two.condition.recipientdomain == []
    assert two.action.partition == "7"


def test_a_full_queued_yaml_is_read(folder: Folder) -> None:
    config = folder.queued(
        """
workers: [{id: only, where: "true"}]
claim: {batch: 10000, lease: 90}
transports:
  - id: default
  - id: slow
    connection: {server: "2001:db8::25", port: 2525}
    concurrency: 1
    pooling: {idle: 0s}
    retry: {intervals: [500ms, 1h30m], jitter: 1, count: 0}
"""
    )
    slow = config.transports[1]
    assert config.claim.lease == timedelta(seconds=90)
    assert slow.connection.server == "2001:db8::25"
    assert slow.pooling.idle == timedelta(0)
    assert slow.retry.intervals == [timedelta(milliseconds=500), timedelta(minutes=90)]
    assert slow.retry.jitter == 1.0
    assert slow.timeout.body == timedelta(minutes=3)
    assert config.workers[0].id == "only"


def test_models_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SmtpdConfig().spool.timeout = timedelta(0)


def test_leaves_may_be_empty_or_named_by_a_number(folder: Folder) -> None:
    text = "environment: {database: {partitions: {leaves: %s}}}"
    assert folder.smtpd(text % "{}").environment.database.partitions.leaves == {}
    assert folder.smtpd(text % "{123: ['1']}").environment.database.partitions.leaves == {"123": ["1"]}


def test_a_printed_config_shows_no_secret(folder: Folder) -> None:
    config = folder.smtpd(
        "environment: {database: {uri: 'postgresql://bob:hunter2@db'}}\n"
        "authentication: {users: {bob: $argon2id$hunter2}}"
    )
    assert config.environment.database.uri == "postgresql://bob:hunter2@db"
    assert "hunter2" not in repr(config)
    assert "hunter2" not in str(config)
