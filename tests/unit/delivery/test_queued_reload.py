"""test_queued_reload — which changes of queued.yaml a running worker can take, and which it names

Owns: proofs about queued/reload.py, which is pure.
See: tests/scenario/operation/test_queued_reloads.py for running workers.
"""

from __future__ import annotations

from typing import Any

import pytest

from queued.reload import FIXED, LIVE, effective
from shared.config.queued.settings import QueuedConfig


def config(**sections: Any) -> QueuedConfig:
    return QueuedConfig.model_validate(sections)


def test_every_section_is_reloadable_or_needs_a_restart() -> None:
    assert set(QueuedConfig.model_fields) == FIXED | LIVE
    assert not FIXED & LIVE


def test_an_unchanged_configuration_names_no_key() -> None:
    assert effective(config(), config()) == (config(), [])


@pytest.mark.parametrize(
    "changed",
    [
        {"transports": [{"id": "other"}]},
        {"routing": {"dns": {"timeout": "3s"}}},
        {"signing": {"onerror": "unsigned"}},
        {"shutdown": {"timeout": "1s"}},
        {"bounces": {"gather": "1s"}},
        {"suppression": {"atdelivery": "off"}},
        {"webhooks": {"timeout": "20s"}},
        {"environment": {"log": {"level": "debug"}}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_reloadable_key_takes_effect(changed: dict[str, Any]) -> None:
    found, ignored = effective(config(), config(**changed))
    assert found == config(**changed)
    assert found != config()
    assert ignored == []


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"claim": {"batch": 7, "poll": "1s"}}, ["claim.batch", "claim.poll"]),
        ({"metrics": {"listen": "127.0.0.1:9464"}}, ["metrics.listen"]),
        ({"maintenance": {"keep": {"history": "1d"}}}, ["maintenance.keep.history"]),
        ({"environment": {"database": {"uri": "postgresql:///x"}}}, ["environment.database.uri"]),
        (
            {"workers": [{"id": "queued-123", "where": "true"}, {"id": "new", "where": "true"}]},
            ["workers[queued-123]", "workers[queued-456]", "workers[new]"],
        ),
    ],
)
def test_a_key_that_needs_a_restart_is_named_and_keeps_its_value(changed: dict[str, Any], named: list[str]) -> None:
    found, ignored = effective(config(), config(**changed, shutdown={"timeout": "1s"}))
    assert ignored == named
    assert found == config(shutdown={"timeout": "1s"}), "the rest is used"
