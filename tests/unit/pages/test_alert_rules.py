"""test_alert_rules — each shipped alert fires when what it is for happens, and none fires while all is well

Guarantees: promtool evaluates the rules as Prometheus does. An alert without a case of its own fails the test.
See: deploy/prometheus-alerts.yml; promtool(1), "test rules".
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from scripts.dev.peers import find_peer, how_to_get
from tests.fixtures.pages.walking import DOCS

if TYPE_CHECKING:
    from pathlib import Path

RULES: Final = DOCS.parent / "deploy" / "prometheus-alerts.yml"
ALERTS: Final = [rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]]
ALWAYS: Final = "x60"  # minutes
#: The series by which each alert fires within an hour; a value is written as promtool has it.
FIRES: Final[dict[str, dict[str, str]]] = {
    "PillarboxWorkerGone": {'up{job="pillarbox", instance="a"}': "0"},
    "PillarboxNoWorker": {'up{job="pillarbox", instance="a"}': "1"},
    "PillarboxMailWithoutWorker": {
        'pillarbox_queue_leaf_rows{instance="smtpd", leaf="queue_def_def"}': "7",
        'pillarbox_queue_leaf_rows{instance="smtpd", leaf="queue_hold"}': "3",
    },
    "PillarboxMailWaits": {'pillarbox_queue_overdue_seconds{partition="1"}': "301"},
    "PillarboxMailUnserved": {'pillarbox_unserved_overdue_seconds{leaf="queue_def_def", partition="7"}': "301"},
    "PillarboxQueueUnknown": {'pillarbox_queue_known{instance="a"}': "0"},
    "PillarboxResultsUnrecorded": {
        'pillarbox_results_unrecorded{instance="a"}': "5",
        'pillarbox_events_total{event="result.unrecorded", instance="a", level="error"}': "0+1",
    },
    "PillarboxNotDurable": {'pillarbox_smtpd_not_durable_total{instance="a"}': "0+1"},
    "PillarboxSpaceLow": {'pillarbox_events_total{event="spool.space_low", instance="a"}': "0+1"},
    "PillarboxSpaceUnknown": {
        'pillarbox_events_total{event="spool.space_unknown", instance="a"}': "0+1",
        'pillarbox_smtpd_space_known{instance="a", process="0"}': "0",
    },
    "PillarboxPossibleDuplicates": {
        'pillarbox_leases_returned_total{instance="a"}': "0+1",
        'pillarbox_claims_lost_total{instance="a"}': "0+0",
    },
    "PillarboxNothingArrives": {
        'pillarbox_attempts_total{outcome="deferred", transport="default"}': "0+60",
        'pillarbox_attempts_total{outcome="delivered", transport="default"}': "7+0",
    },
    "PillarboxLoginRefused": {'pillarbox_logins_refused_total{instance="a", transport="relay"}': "0+1"},
    "PillarboxSlowDelivery": {
        'pillarbox_delivery_seconds_bucket{le="300", transport="default"}': "0+1",
        'pillarbox_delivery_seconds_bucket{le="600", transport="default"}': "0+9",
        'pillarbox_delivery_seconds_bucket{le="+Inf", transport="default"}': "0+9",
    },
    "PillarboxOnlyPolls": {'pillarbox_listening{instance="a"}': "0"},
    "PillarboxTokensWait": {'pillarbox_tokens_oldest_seconds{action="activation"}': "121"},
    "PillarboxTokensUnknown": {'pillarbox_tokens_known{instance="a"}': "0"},
    "PillarboxErrors": {'pillarbox_events_total{event="claim.failed", instance="a", level="error"}': "0+1"},
}
#: The same series on a good day, and what the alerts' bounds allow.
WELL: Final[dict[str, str]] = {
    'up{job="pillarbox", instance="a"}': "1",
    'pillarbox_queue_overdue_seconds{partition="1"}': "299",
    'pillarbox_unserved_overdue_seconds{leaf="queue_def_def", partition="7"}': "299",
    'pillarbox_queue_known{instance="a"}': "1",
    'pillarbox_queue_leaf_rows{instance="smtpd", leaf="queue_def_def"}': "7",
    'pillarbox_results_unrecorded{instance="a"}': "5",
    'pillarbox_smtpd_not_durable_total{instance="a"}': "3+0",
    'pillarbox_smtpd_space_known{instance="a", process="0"}': "1",
    'pillarbox_leases_returned_total{instance="a"}': "3+0",
    'pillarbox_claims_lost_total{instance="a"}': "3+0",
    'pillarbox_attempts_total{outcome="deferred", transport="default"}': "0+60",
    'pillarbox_attempts_total{outcome="delivered", transport="default"}': "0+1",
    'pillarbox_logins_refused_total{instance="a", transport="relay"}': "3+0",
    'pillarbox_delivery_seconds_bucket{le="300", transport="default"}': "0+9",
    'pillarbox_delivery_seconds_bucket{le="600", transport="default"}': "0+9",
    'pillarbox_delivery_seconds_bucket{le="+Inf", transport="default"}': "0+9",
    'pillarbox_listening{instance="a"}': "1",
    'pillarbox_tokens_oldest_seconds{action="activation"}': "119",
    'pillarbox_tokens_known{instance="a"}': "1",
    'pillarbox_events_total{event="claim.expired", instance="a", level="warning"}': "0+1",
    'pillarbox_events_total{event="claim.failed", instance="a", level="error"}': "3+0",
}


def case(name: str, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    """A test of promtool's: whether this alert, or any for "", fires after an hour of these values."""
    selected = f', alertname="{name}"' if name else ""
    samples = [{"labels": "{}", "value": 1}] if fires else []
    query = {"expr": f'count(ALERTS{{alertstate="firing"{selected}}})', "eval_time": "59m", "exp_samples": samples}
    return {
        "interval": "1m",
        "input_series": [{"series": each, "values": f"{value}{ALWAYS}"} for each, value in series.items()],
        "promql_expr_test": [query],
    }


def evaluate(folder: Path, *cases: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """What promtool says about these cases."""
    promtool = find_peer("promtool")
    if promtool is None:
        pytest.skip(how_to_get("promtool"))
    file = folder / "cases.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": list(cases)}, sort_keys=False)
    )
    return subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)


def test_every_alert_has_a_case() -> None:
    assert list(FIRES) == ALERTS


def test_each_alert_fires_for_what_it_is_for_and_none_on_a_good_day(tmp_path: Path) -> None:
    done = evaluate(
        tmp_path, case("", WELL, fires=False), *(case(name, series, fires=True) for name, series in FIRES.items())
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_tells_an_alert_that_does_not_fire(tmp_path: Path) -> None:
    said = evaluate(tmp_path, *(case(name, WELL, fires=True) for name in ALERTS)).stderr
    assert said.count("expr:") == len(ALERTS), said
