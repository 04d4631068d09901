"""test_metrics — events become counts under bounded labels, cheaply, and the table names their events

Owns: proofs about shared/observe/metrics.py without a server, and that the page and the sample alerts name only
    existing metrics.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from timeit import repeat
from typing import TYPE_CHECKING

import pytest
import yaml

from scripts.dev import reference
from shared.mail.message import Address
from shared.observe.collect_table import COLLECT
from shared.observe.events import emit, watched
from shared.observe.events_table import EVENTS, WARNING
from shared.observe.httpd_table import HTTPD
from shared.observe.metrics import OTHER, ProcessCounts, by_destination, by_reply, by_transport
from shared.observe.metrics_totals import Reading, Totals
from shared.observe.queued_table import FEEDS, METRICS, QUEUED, VARYING
from shared.observe.smtpd_table import SMTPD
from tests.fixtures.peers.web.scrape import Samples, samples
from tests.layout.sources import PACKAGES, python_files, tree

if TYPE_CHECKING:
    from shared.observe.queued_table import Table

DOCS = Path(__file__).parents[3] / "docs"
LABELS = by_transport(["default", "relay"]) | by_destination({"big": ["big.example", ".big.example"]})
RESULTS = {"result.delivered", "result.deferred", "result.failed", "result.held"}
MOST = 120  # calls of an empty function that counting one event may take: 2 µs where such a call takes 17 ns


def counted(*emitted: tuple[str, dict[str, object]]) -> Samples:
    counts = ProcessCounts(LABELS)
    with watched(counts.watchers()):
        for event, fields in emitted:
            emit(event, **fields)
    return samples(counts.exposition().decode())


def test_results_are_counted_by_outcome_and_transport() -> None:
    found = counted(
        ("result.delivered", {"transport": "relay", "seconds": 0.3, "delay": 7.0}),
        ("result.delivered", {"transport": "relay", "seconds": 0.03, "delay": 0.5}),
        ("result.deferred", {"transport": "default", "seconds": 30.0, "delay": 40.0}),
    )
    assert found["pillarbox_attempts_total", ("delivered", "relay")] == 2
    assert found["pillarbox_attempts_total", ("deferred", "default")] == 1
    assert found["pillarbox_attempts_total", ("failed", "default")] == 0
    assert found["pillarbox_attempt_seconds_bucket", ("relay", "0.05")] == 1
    assert found["pillarbox_attempt_seconds_bucket", ("relay", "0.25")] == 1
    assert found["pillarbox_attempt_seconds_bucket", ("relay", "+Inf")] == 2
    assert found["pillarbox_attempt_seconds_sum", ("relay",)] == pytest.approx(0.33)
    assert found["pillarbox_delivery_seconds_count", ("relay",)] == 2
    assert found["pillarbox_delivery_seconds_count", ("default",)] == 0


def test_a_value_equal_to_a_bucket_bound_is_in_its_bucket() -> None:
    found = counted(("result.delivered", {"transport": "relay", "seconds": 0.5, "delay": 0.5}))
    assert found["pillarbox_attempt_seconds_bucket", ("relay", "0.5")] == 1
    assert found["pillarbox_attempt_seconds_bucket", ("relay", "0.25")] == 0


def test_unknown_transports_share_one_series() -> None:
    names = [f"made-up-{number}" for number in range(100)]
    found = counted(*(("result.deferred", {"transport": name, "seconds": 0.0}) for name in names))
    assert found["pillarbox_attempts_total", ("deferred", OTHER)] == 100
    assert {labels[1] for name, labels in found if name == "pillarbox_attempts_total"} == {"default", "relay", OTHER}


def test_missing_or_invalid_fields_raise_no_error() -> None:
    found = counted(
        ("result.delivered", {}),
        ("result.delivered", {"transport": None, "seconds": "long", "delay": -5.0}),
        ("claim.taken", {"recipients": None}),
    )
    assert found["pillarbox_attempts_total", ("delivered", OTHER)] == 2
    assert found["pillarbox_delivery_seconds_sum", (OTHER,)] == 0
    assert found["pillarbox_claims_total", ()] == 1
    assert found["pillarbox_claimed_recipients_total", ()] == 0


def test_every_event_of_level_warning_and_above_has_a_series_from_the_start() -> None:
    found = counted(("claim.failed", {"error": "e", "seconds": 1.0}))
    series = {labels: value for (name, labels), value in found.items() if name == "pillarbox_events_total"}
    assert {event for event, _ in series} == {event for event, (level, _) in EVENTS.items() if level >= WARNING}
    assert [labels for labels, value in series.items() if value] == [("claim.failed", "error")]


def test_events_are_not_counted_after_the_watch_ends() -> None:
    counts = ProcessCounts(LABELS)
    with watched(counts.watchers()):
        emit("claim.lost")
    emit("claim.lost")
    assert samples(counts.exposition().decode())["pillarbox_claims_lost_total", ()] == 1


def test_a_reading_keeps_its_label_values() -> None:
    odd = 'a "b"\\\nc'
    text = ProcessCounts(LABELS).exposition([Reading("pillarbox_queue_recipients", 3, ("ACTIVE", odd))])
    assert samples(text.decode())["pillarbox_queue_recipients", ("ACTIVE", odd)] == 3
    assert len([line for line in text.splitlines() if line.startswith(b"pillarbox_queue_recipients")]) == 1


@pytest.mark.parametrize("event", FEEDS)
def test_counting_an_event_is_cheap(event: str) -> None:
    counts = ProcessCounts(LABELS)
    watchers = counts.watchers()[event]
    fields = {"transport": "default", "seconds": 0.25, "delay": 1.5, "recipients": 200}

    def once() -> None:
        for watcher in watchers:
            watcher(fields)

    # The least of many: the rest is other work on this machine, which slows the yardstick as well.
    assert min(repeat(once, number=1000, repeat=30)) < MOST * min(repeat(lambda: None, number=1000, repeat=30))


@cache
def emissions() -> list[tuple[str, set[str]]]:
    """Every call of events.emit: the text of its first argument, and the names of its fields."""
    return [
        (ast.unparse(node.args[0]), {keyword.arg for keyword in node.keywords if keyword.arg})
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func) == "events.emit"
    ]


def fields_emitted(event: str) -> set[str]:
    """The fields that every place that emits this event gives it."""
    found = [
        fields
        for text, fields in emissions()
        if event in text or (event in RESULTS and text.startswith(("f'result.{", 'f"result.{')))
    ]
    return set.intersection(*found)


@pytest.mark.parametrize(("table", "event"), [(table, event) for table in (QUEUED, SMTPD) for event in table.feeds])
def test_an_event_has_the_fields_that_are_fed_from_it(table: Table, event: str) -> None:
    of_label = {"transport": "transport", "destination": "to", "code": "reply", "reason": "reason", "limit": "limit"}
    wanted = {feed.amount for feed in table.feeds[event] if feed.amount}
    wanted |= {
        of_label[label]
        for feed in table.feeds[event]
        for label in table.metrics[feed.metric].labels
        if label in VARYING
    }
    assert wanted <= fields_emitted(event)


def test_destinations_are_counted_by_class_or_as_other() -> None:
    domains = ["big.example", "mail.Big.example", "a.b.big.example", "small.example", "notbig.example"]
    found = counted(*(("result.delivered", {"to": Address("a", domain), "seconds": 0.1}) for domain in domains))
    assert found["pillarbox_destination_attempts_total", ("delivered", "big")] == 3
    assert found["pillarbox_destination_attempts_total", ("delivered", OTHER)] == 2
    assert {key[1][1] for key in found if key[0] == "pillarbox_destination_attempts_total"} == {"big", OTHER}


def test_a_transport_added_by_a_reload_has_its_series_at_once() -> None:
    counts = ProcessCounts(LABELS)
    counts.know("transport", ["new", "relay"])
    with watched(counts.watchers()):
        emit("result.delivered", transport="new", seconds=0.1, delay=0.2)
    found = samples(counts.exposition().decode())
    assert found["pillarbox_attempts_total", ("delivered", "new")] == 1
    assert found["pillarbox_attempts_total", ("deferred", "new")] == 0
    assert found["pillarbox_delivery_seconds_count", ("new",)] == 1


def test_counts_of_two_processes_add_up() -> None:
    snapshots = []
    for seconds in (0.003, 4.0):
        counts = ProcessCounts(by_reply(), SMTPD)
        with watched(counts.watchers()):
            emit("spool.group", messages=3, seconds=seconds)
            emit("session.replied", reply="250 2.0.0 OK")
            emit("session.replied", reply="499 of a policy")
        snapshots.append(json.loads(json.dumps(counts.totals.snapshot())))
    both = Totals(SMTPD)
    for snapshot in snapshots:
        both.add(snapshot)
    found = samples(both.exposition().decode())
    assert found["pillarbox_smtpd_replies_total", ("250",)] == 2
    assert found["pillarbox_smtpd_replies_total", (OTHER,)] == 2
    assert found["pillarbox_smtpd_commit_seconds_bucket", ("0.005",)] == 1
    assert found["pillarbox_smtpd_commit_seconds_count", ()] == 2
    assert found["pillarbox_smtpd_commit_seconds_sum", ()] == pytest.approx(4.003)


def test_names_are_as_prometheus_wants_them() -> None:
    for name, metric in (*METRICS.items(), *SMTPD.metrics.items(), *COLLECT.metrics.items()):
        assert re.fullmatch(r"pillarbox(_[a-z]+)+", name)
        assert name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(metric.buckets)
        assert "transport" not in metric.labels[:-1]
        assert metric.meaning.endswith(".")


def test_the_page_has_every_metric_once() -> None:
    page = reference.pages()["metrics.md"]
    assert re.findall(r"^\| `(\w+)`", page, re.MULTILINE) == [
        *METRICS,
        *SMTPD.metrics,
        *HTTPD.metrics,
        *COLLECT.metrics,
    ]


@pytest.mark.parametrize("file", ["deploy/prometheus-alerts.yml", "docs/how-to/observe/watch-with-prometheus.md"])
def test_every_metric_and_event_in_the_docs_exists(file: str) -> None:
    text = (DOCS.parent / file).read_text(encoding="utf-8")
    used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bpillarbox_\w+", text)}
    assert used
    assert used - METRICS.keys() - SMTPD.metrics.keys() - COLLECT.metrics.keys() == set()
    for event in re.findall(r'event="([^"]*)"', text):
        assert event in EVENTS


def test_the_sample_alerts_are_alerts() -> None:
    text = (DOCS.parent / "deploy" / "prometheus-alerts.yml").read_text(encoding="utf-8")
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]
