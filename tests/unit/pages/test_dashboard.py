"""test_dashboard — the shipped Grafana dashboard is current, has the form that Grafana imports, and names real metrics

See: tests/scenario/operation/test_dashboard_shows_a_running_system.py, where Prometheus answers each query.
"""

from __future__ import annotations

import copy
import json
import re
from itertools import pairwise
from typing import Any, Final

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from scripts.dev import dashboard
from shared.observe.collect_table import COLLECT
from shared.observe.httpd_table import HTTPD
from shared.observe.queued_table import QUEUED
from shared.observe.smtpd_table import SMTPD

METRICS: Final = {**QUEUED.metrics, **SMTPD.metrics, **HTTPD.metrics, **COLLECT.metrics}
FOUND: Final[dict[str, Any]] = json.loads(dashboard.FILE.read_text(encoding="utf-8"))
GRAPHS: Final[list[dict[str, Any]]] = [panel for panel in FOUND["panels"] if panel["type"] != "row"]


def test_the_file_is_current() -> None:
    assert dashboard.main(["--check"]) == 0


def test_it_is_importable_into_any_grafana() -> None:
    assert "id" not in FOUND, "Grafana gives the id"
    assert (FOUND["uid"], FOUND["schemaVersion"]) == ("pillarbox", 39)
    source, instance = FOUND["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert (instance["name"], instance["type"], instance["allValue"]) == ("instance", "query", ".*")
    ids = [panel["id"] for panel in FOUND["panels"]]
    assert ids == list(range(1, len(ids) + 1))


def by_grafana_s_schema(board: dict[str, Any]) -> Any:
    """What Grafana's own library, which is generated from its schemas, reads of a dashboard and writes again."""
    register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(board)))


def only(keys_of: Any, value: Any) -> Any:
    """The value, without what Grafana's library adds: defaults of keys that the other lacks."""
    if isinstance(keys_of, dict) and isinstance(value, dict):
        return {key: only(keys_of[key], value[key]) for key in keys_of.keys() & value.keys()}
    if isinstance(keys_of, list) and isinstance(value, list) and len(keys_of) == len(value):
        return [only(*pair) for pair in zip(keys_of, value, strict=True)]
    return value


def test_every_key_of_it_is_in_grafana_s_schema() -> None:
    assert only(FOUND, by_grafana_s_schema(FOUND)) == FOUND
    wrong = copy.deepcopy(FOUND)
    wrong["panels"][1]["fieldConfig"]["defaults"]["units"] = "s"
    assert only(wrong, by_grafana_s_schema(wrong)) != wrong, "a word that Grafana does not know is noticed"


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in FOUND["panels"]):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells
        assert max(x for x, _ in cells) < 24
        taken |= cells
    tops = [panel["gridPos"]["y"] for panel in FOUND["panels"]]
    assert all(one <= other for one, other in pairwise(tops))


@pytest.mark.parametrize("panel", GRAPHS, ids=lambda panel: panel["title"])
def test_each_query_is_about_our_metrics_and_the_chosen_instances(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["datasource"]["uid"] == "${datasource}"
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
    for target in panel["targets"]:
        names = re.findall(r"pillarbox_\w+", target["expr"])
        assert names
        assert target["expr"].count('{instance=~"$instance"}') == len(names)
        for name in names:
            metric = METRICS[name.removesuffix("_bucket")]
            assert (metric.kind == "histogram") == name.endswith("_bucket")
            assert (metric.kind == "gauge") != bool(re.search(rf"(rate|increase)\({name}\b", target["expr"]))
        labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        [known] = {frozenset(METRICS[name.removesuffix("_bucket")].labels) for name in names}
        assert labels <= known | {"instance"}


def test_every_metric_of_mail_is_on_it() -> None:
    shown = {name.removesuffix("_bucket") for name in re.findall(r"pillarbox_\w+", json.dumps(FOUND))}
    left_out = {
        *("pillarbox_claims_total", "pillarbox_record_results", "pillarbox_wakeups_heard_total"),
        *("pillarbox_wakeups_lost_total", "pillarbox_hints_unsent_total", "pillarbox_queue_oldest_seconds"),
        *("pillarbox_unserved_recipients",),
    }
    assert set(QUEUED.metrics) - shown == left_out
