"""test_unserved_mail_raises_the_alarm — the shipped alert fires for mail that no running worker selects

Owns: the alert for a partition without a worker, with a real scrape; served mail raises none.
See: deploy/prometheus-alerts.yml; sql/schema/13_register.sql; promtool(1), "test rules".
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from scripts.dev.peers import find_peer
from tests.fixtures.peers.web.scrape import scraped
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System
    from tests.fixtures.peers.web.scrape import Samples

RULES: Final = Path(__file__).parents[3] / "deploy" / "prometheus-alerts.yml"
ALERT: Final = "PillarboxMailUnserved"
METRIC: Final = "pillarbox_unserved_overdue_seconds"
OVERDUE: Final = """
INSERT INTO queue (messages__id, recipientlocalpart, recipientdomain, metadata, next_retry, priority)
SELECT id, 'r', 'example.com', jsonb_build_object('_partid', '1'), now() - interval '2 hours', %s FROM messages LIMIT 1
"""
MESSAGE: Final = "INSERT INTO messages (id, size, content) VALUES (gen_random_uuid(), 0, '')"
# As if a minute had passed with a heartbeat of every worker.
A_MINUTE: Final = "UPDATE unserved SET noted = noted - interval '2 minutes'"


def rule() -> Any:
    [found] = [each for each in yaml.safe_load(RULES.read_text())["groups"][0]["rules"] if each.get("alert") == ALERT]
    return found


def firing(found: Samples) -> set[tuple[str, ...]]:
    """The labels for which the alert's expression holds: one maximum, one bound."""
    labels, metric, bound = re.fullmatch(r"max by \((.*)\) \((\w+)\) > (\d+)", rule()["expr"]).groups()  # type: ignore[union-attr]
    assert labels == "leaf, partition"
    return {values for (name, values), value in found.items() if name == metric and value > float(bound)}


def fires_in_prometheus(found: Samples, folder: Path) -> None:
    """The same in Prometheus itself, if available: after five minutes, as `for` says, and not before."""
    promtool = find_peer("promtool")
    if promtool is None:
        return
    series, alerts = [], []
    for (name, (leaf, partition)), value in ((each, v) for each, v in found.items() if each[0] == METRIC):
        series.append({"series": f'{name}{{leaf="{leaf}",partition="{partition}"}}', "values": f"{int(value)}x10"})
        hours, minutes, seconds = int(value) // 3600, int(value) // 60 % 60, int(value) % 60
        said = rule()["annotations"]["summary"]
        for old, new in (
            ("{{ $labels.partition }}", partition),
            ("{{ $labels.leaf }}", leaf),
            ("{{ $value | humanizeDuration }}", f"{hours}h {minutes}m {seconds}s"),
        ):
            said = said.replace(old, new)
        labels = rule()["labels"] | {"leaf": leaf, "partition": partition}
        alerts.append({"exp_labels": labels, "exp_annotations": {"summary": said}})
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "alert_rule_test": [
                    {"eval_time": "4m", "alertname": ALERT, "exp_alerts": []},
                    {"eval_time": "6m", "alertname": ALERT, "exp_alerts": alerts},
                ],
            }
        ],
    }
    passes(promtool, tests, folder)


def passes(promtool: str | Path, tests: dict[str, Any], folder: Path) -> None:
    """Prometheus' own test of its rules."""
    written = folder / "alert-test.yml"
    written.write_text(json.dumps(tests))
    done = subprocess.run([promtool, "test", "rules", str(written)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_without_any_worker_another_alert_fires(system: System, books: Books, tmp_path: Path) -> None:
    """Only workers export `unserved`: where none runs, and pg_cron goes on with maintenance, no process does."""
    [alert] = [
        each
        for each in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
        if each.get("alert") == "PillarboxNoWorker"
    ]
    [metric] = re.fullmatch(r"absent\((\w+)\)", alert["expr"]).groups()  # type: ignore[union-attr]
    metrics = {"listen": "127.0.0.1:0"}
    worker, smtpd = await system.worker(books.sink.port, metrics=metrics), await system.smtpd(metrics=metrics)

    def exported(found: Samples) -> bool:
        return any(metric in {each, each[0]} for each in found)

    assert exported(await scraped(worker))
    assert not exported(await scraped(smtpd)), "while smtpd runs the alert would not fire"
    promtool = find_peer("promtool")
    if promtool is None:
        return
    expected = [{"exp_labels": alert["labels"], "exp_annotations": alert["annotations"]}]
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": metric, "values": "1x3 stale"}],  # the last worker goes after three minutes
                "alert_rule_test": [
                    {"eval_time": "3m", "alertname": alert["alert"], "exp_alerts": []},
                    {"eval_time": "7m", "alertname": alert["alert"], "exp_alerts": expected},
                ],
            }
        ],
    }
    passes(promtool, tests, tmp_path)


async def test_the_alert_fires_for_mail_due_two_hours_in_an_unserved_partition(
    system: System, books: Books, tmp_path: Path
) -> None:
    metrics = {"listen": "127.0.0.1:0", "refresh": "100ms"}
    where = "metadata->>'_partid' IN ('4', '5', '6')"
    worker = await system.worker(books.sink.port, "watched", where, metrics=metrics)
    await system.rows(MESSAGE)
    assert firing(await scraped(worker)) == set()
    for priority in (5, 0, -5):
        await system.rows(OVERDUE, priority)
    await system.until("SELECT count(*) = 3 FROM unserved")
    await system.rows(A_MINUTE)

    async def tells() -> bool:
        return firing(await scraped(worker)) == {("queue_def_123", "1")}

    await eventually(tells, "the alert fires")
    found = await scraped(worker)
    assert 7200 <= found[METRIC, ("queue_def_123", "1")] < 7500
    assert found["pillarbox_unserved_recipients", ("queue_def_123", "1")] == 3
    fires_in_prometheus(found, tmp_path)
    assert (await worker.until_said("maintain.unserved"))[0]["partitions"] == "1"

    other = await system.worker(books.sink.port, "other", "metadata->>'_partid' = '1'", metrics=metrics)

    async def silent() -> bool:
        return firing(await scraped(worker)) == firing(await scraped(other)) == set()

    await eventually(silent, "the alert ends once a worker serves the partition")
