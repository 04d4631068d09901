"""test_reload — the changes that a reload can apply, and the names of those it cannot

Owns: proofs about smtpd/process/reload.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from shared.config.smtpd.settings import SmtpdConfig
from smtpd.process.reload import effective

RUNNING: dict[str, Any] = {
    "servers": [
        {"id": "mx", "listeners": [{"port": 25}]},
        {"id": "submission", "listeners": [{"port": 587}, {"port": 465}]},
    ]
}


def config(**changes: Any) -> SmtpdConfig:
    return SmtpdConfig.model_validate({**RUNNING, **changes})


def servers(**changes: Any) -> list[dict[str, Any]]:
    """The running servers, the first one changed."""
    first, second = RUNNING["servers"]
    return [{**first, **changes}, second]


def test_an_unchanged_configuration_changes_nothing() -> None:
    assert effective(config(), config()) == (config(), [])


@pytest.mark.parametrize(
    "changes",
    [
        {"relay": {"networks": ["192.0.2.0/24"]}},
        {"rates": {"address": {"messages": 5}}},
        {"load": {"sessions": 5}},
        {"environment": {"log": {"level": "debug"}}},
        {"servers": servers(hostname="other.example")},
        {"servers": servers(phases={"data": {"maxsize": 1000}})},
        {"servers": servers(timeout={"idle": "1s"})},
    ],
)
def test_reloadable_keys_are_applied(changes: dict[str, Any]) -> None:
    assert effective(config(), config(**changes)) == (config(**changes), [])


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"processes": 4}, ["processes"]),
        ({"user": "nobody", "group": "daemon"}, ["user", "group"]),
        ({"spool": {"timeout": "1s"}}, ["spool"]),
        ({"memory": {"bodies": "512MiB"}}, ["memory"]),
        ({"environment": {"var": "elsewhere"}}, ["environment.var"]),
        ({"environment": {"database": {"uri": "postgresql:///x"}}}, ["environment.database"]),
        ({"servers": servers(listeners=[{"port": 26}])}, ["servers[mx].listeners"]),
        ({"servers": servers(listeners=[{"port": 25, "backlog": 7}])}, ["servers[mx].listeners"]),
        ({"servers": servers()[:1]}, ["servers[submission]"]),
        ({"servers": [*servers(), {"id": "third", "listeners": [{"port": 2525}]}]}, ["servers[third]"]),
    ],
)
def test_keys_that_need_a_restart_are_kept_and_named(changes: dict[str, Any], keys: list[str]) -> None:
    assert effective(config(), config(**changes)) == (config(), keys)


def test_a_key_that_needs_a_restart_does_not_block_the_others() -> None:
    wanted = config(processes=2, servers=servers(listeners=[{"port": 26}], hostname="other.example"))
    found, ignored = effective(config(), wanted)
    assert ignored == ["processes", "servers[mx].listeners"]
    assert found == config(servers=servers(hostname="other.example"))


def test_servers_keep_their_order_after_a_reload() -> None:
    found, ignored = effective(config(), config(servers=servers()[::-1]))
    assert ignored == []
    assert [server.id for server in found.servers] == ["mx", "submission"]


def test_the_permissions_of_a_listener_are_reloadable_and_its_address_is_not() -> None:
    wanted = config(servers=servers(listeners=[{"port": 25, "proxy": {"networks": ["192.0.2.1/32"]}}]))
    assert effective(config(), wanted) == (wanted, [])
