"""test_transport_groups — transports inherit from their group, and errors name the place in the file

See: tests/unit/config/test_config_errors.py for the wording of errors in general.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shared.config.queued.load import load_queued
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.queued.settings import QueuedConfig

GROUPS = """\
transportgroups:
  - id: bulk
    hostname: bulk.example.com
    connection: {mode: mx, addresses: 3}
    routes: {a.example: one.example, b.example: two.example}
    retry: {intervals: [5m, 10m], count: 5}
    sources: [{address: 192.0.2.1}, {address: 192.0.2.2}]
"""


def load(folder: Path, text: str) -> QueuedConfig:
    path = folder / "queued.yaml"
    path.write_text(text, encoding="utf-8")
    return load_queued(path, {})


def refused(folder: Path, text: str) -> list[str]:
    """The errors in the file, without the folder."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return [line.replace(f"{folder}/", "") for line in str(caught.value).splitlines()]


def test_a_transport_inherits_the_settings_of_its_group(tmp_path: Path) -> None:
    [transport] = load(tmp_path, GROUPS + "transports: [{id: a, group: bulk}]").transports
    assert transport.hostname == "bulk.example.com"
    assert (transport.connection.mode, transport.connection.addresses) == ("mx", 3)
    assert transport.retry.intervals == [timedelta(minutes=5), timedelta(minutes=10)]
    assert [str(source.address) for source in transport.sources] == ["192.0.2.1", "192.0.2.2"]
    assert transport.id == "a"


def test_the_keys_of_a_transport_override_those_of_its_group(tmp_path: Path) -> None:
    own = """\
transports:
  - id: a
    group: bulk
    hostname: null
    connection: {addresses: 7}
    routes: {b.example: three.example}
    retry: {intervals: [1h]}
    sources: []
  - id: b
    group: bulk
"""
    a, b = load(tmp_path, GROUPS + own).transports
    assert (a.connection.mode, a.connection.addresses, a.hostname) == ("mx", 7, None)
    assert {domain: str(place) for domain, place in a.routes.items()} == {
        "a.example": "one.example",
        "b.example": "three.example",
    }
    assert (a.retry.intervals, a.retry.count, a.sources) == ([timedelta(hours=1)], 5, [])
    assert (b.connection.addresses, b.retry.count) == (3, 5)


def test_a_transport_without_group_inherits_nothing(tmp_path: Path) -> None:
    config = load(tmp_path, GROUPS + "transports: [{id: a}]")
    assert config.transports == load(tmp_path, "transports: [{id: a}]").transports


def test_smart_hosts_of_a_group_serve_all_its_transports(tmp_path: Path) -> None:
    text = """\
transportgroups:
  - id: relays
    connection:
      hosts: [{server: a.example, weight: 3}, {server: b.example, preference: 20}]
transports: [{id: x, group: relays}, {id: y, group: relays, connection: {hosts: [{server: c.example}]}}]
"""
    x, y = load(tmp_path, text).transports
    assert [(h.server, h.preference, h.weight) for h in x.connection.hosts] == [
        ("a.example", 10, 3),
        ("b.example", 20, 1),
    ]
    assert [h.server for h in y.connection.hosts] == ["c.example"]


def test_an_error_in_a_group_is_reported_once_at_its_line(tmp_path: Path) -> None:
    text = """\
transportgroups:
  - id: bulk
    retry:
      age: never
    connectoin: {}
transports:
  - {id: a, group: bulk}
  - {id: b, group: bulk, retry: {count: 3}}
"""
    first, second = refused(tmp_path, text)
    assert first.startswith('queued.yaml:4: transportgroups[0].retry.age: "never" is not a duration; allowed: ')
    assert second.startswith("queued.yaml:5: transportgroups[0].connectoin: unknown key")
    assert second.endswith("did you mean connection?")


def test_an_error_in_a_transport_is_reported_at_its_line(tmp_path: Path) -> None:
    text = GROUPS + "transports:\n  - id: a\n    group: bulk\n    retry: {count: -1}\n"
    [error] = refused(tmp_path, text)
    assert error.startswith("queued.yaml:11: transports[0].retry.count: -1 is not a usable number")


def test_an_error_in_an_inherited_list_is_reported_at_its_line(tmp_path: Path) -> None:
    text = GROUPS.replace("192.0.2.2", "192.0.2.1") + "transports: [{id: a, group: bulk}]"
    assert refused(tmp_path, text) == [
        (
            'queued.yaml:7: transportgroups[0].sources[1].address: "192.0.2.1" is already taken by [0]; '
            "allowed: each address once"
        )
    ]


@pytest.mark.parametrize(
    ("groups", "allowed"), [(GROUPS, "bulk"), ("claim: {batch: 1}\n", "none, for transportgroups is empty")]
)
def test_an_unknown_group_is_refused(tmp_path: Path, groups: str, allowed: str) -> None:
    [error] = refused(tmp_path, f"{groups}transports:\n  - id: a\n    group: bulky\n")
    line = groups.count("\n") + 3
    assert error == f'queued.yaml:{line}: transports[0].group: group "bulky" does not exist; allowed: {allowed}'


@pytest.mark.parametrize("groups", ["7", "[7]", "[{id: [x]}]", "{bulk: {}}", "[{}]"])
def test_groups_of_the_wrong_form_are_refused(tmp_path: Path, groups: str) -> None:
    error = refused(tmp_path, f"transportgroups: {groups}\ntransports: [{{id: a, group: bulk}}]\n")
    assert error[0].startswith("queued.yaml:1: transportgroups")


def test_two_groups_with_the_same_id_are_refused(tmp_path: Path) -> None:
    [error] = refused(tmp_path, "transportgroups: [{id: a}, {id: a}]")
    assert error.startswith("queued.yaml:1: transportgroups[1].id:")
