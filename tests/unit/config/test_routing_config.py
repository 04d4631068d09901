"""test_routing_config — valid settings of routes, hosts and name servers in queued.yaml, and the errors for others"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shared.config.queued.load import load_queued
from shared.config.queued.routing import HostPort
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.queued.settings import QueuedConfig


def load(folder: Path, text: str) -> QueuedConfig:
    path = folder / "queued.yaml"
    path.write_text(text, encoding="utf-8")
    return load_queued(path, {})


def test_without_routes_all_mail_goes_to_one_server(tmp_path: Path) -> None:
    [transport] = load(tmp_path, "transports: [{connection: {server: relay.example.com, port: 2525}}]").transports
    connection = transport.connection
    assert (connection.mode, connection.server, connection.port, connection.hosts) == (
        "smarthost",
        "relay.example.com",
        2525,
        [],
    )
    assert (transport.routes, transport.allow.private) == ({}, False)


def test_a_full_routing_is_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
transports:
  - id: default
    connection:
      mode: mx
      addresses: 3
      sessions: 1
    routes:
      Example.com: mail.example.com:2525
      .example.com: "[2001:db8::25]:26"
      bücher.example: 192.0.2.1
      six.example: "2001:db8::26"
    allow: {private: true}
  - id: relay
    connection:
      hosts:
        - {server: a.example.com}
        - {server: b.example.com, port: 26, preference: 20, weight: 3}
routing:
  ourselves: [mx.example.com, 203.0.113.5]
  dns: {servers: [192.0.2.53, "127.0.0.1:5353", "[2001:db8::53]:5353"], timeout: 3s, ttl: 10m, entries: 100}
""",
    )
    direct, relay = config.transports
    assert direct.routes == {
        "example.com": HostPort("mail.example.com", 2525),
        ".example.com": HostPort("2001:db8::25", 26),
        "xn--bcher-kva.example": HostPort("192.0.2.1", None),
        "six.example": HostPort("2001:db8::26", None),
    }
    assert [str(place) for place in direct.routes.values()] == [
        "mail.example.com:2525",
        "[2001:db8::25]:26",
        "192.0.2.1",
        "[2001:db8::26]",
    ]
    assert direct.allow.private
    assert [(h.server, h.port, h.preference, h.weight) for h in relay.connection.hosts] == [
        ("a.example.com", 25, 10, 1),
        ("b.example.com", 26, 20, 3),
    ]
    assert [str(server) for server in config.routing.dns.servers] == [
        "192.0.2.53",
        "127.0.0.1:5353",
        "[2001:db8::53]:5353",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("transports: [{connection: {mode: dns}}]", 'transports[0].connection.mode: "dns" is not usable here'),
        ("transports: [{connection: {addresses: 0}}]", "transports[0].connection.addresses: 0 is not a usable number"),
        ("transports: [{connection: {hosts: [{weight: 0}]}}]", "transports[0].connection.hosts[0].weight: 0 is not a"),
        ("transports: [{connection: {hosts: [x]}}]", 'transports[0].connection.hosts[0]: "x" is not a section'),
        ("transports: [{allow: {private: 1}}]", "transports[0].allow.private: 1 is neither; allowed: true or false"),
        ("transports: [{routes: {a.test: 'b c'}}]", 'transports[0].routes["a.test"]: "b c" is not a place to deliver'),
        ("transports: [{routes: {a.test: 'b:0'}}]", 'transports[0].routes["a.test"]: "b:0" is not a place'),
        ("transports: [{routes: {a.test: 'b:99999'}}]", 'transports[0].routes["a.test"]: "b:99999" is not a place'),
        ("transports: [{routes: {a.test: 300.1.1.1}}]", 'transports[0].routes["a.test"]: "300.1.1.1" is not a place'),
        ("transports: [{routes: {a.test: '[b]:25'}}]", 'transports[0].routes["a.test"]: "[b]:25" is not a place'),
        ("transports: [{routes: {a.test: 25}}]", 'transports[0].routes["a.test"]: 25 is not a place'),
        ("transports: [{routes: {'*.test': b}}]", 'transports[0].routes["*.test"]: "*.test" is not usable here'),
        ("transports: [{routes: {a.test: b, A.test: c}}]", 'transports[0].routes["A.test"]: "A.test" is there twice'),
        ("transports: [{routes: [a]}]", "transports[0].routes: "),
        ("routing: {dns: {servers: [dns.test]}}", 'routing.dns.servers[0]: "dns.test" is not a name server'),
        ("routing: {dns: {timeout: 0}}", "routing.dns.timeout: 0 is too short"),
        ("routing: {ourselves: [a b]}", 'routing.ourselves[0]: "a b" is not a host'),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    [line] = str(error.value).splitlines()
    assert f"queued.yaml:1: {problem}" in line
    assert "allowed: " in line
