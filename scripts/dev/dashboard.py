"""dashboard — writes the Grafana dashboard that is shipped, from one table of panels

Owns: deploy/grafana-dashboard.json, which is generated and never edited.
Guarantees: each query is for the instances that the reader chose, and names the chosen datasource. Without `--check`
    the file is current afterwards; with it nothing is written.
See: Grafana's documentation, "Dashboard JSON model"; docs/how-to/observe/watch-with-prometheus.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE: Final = Path(__file__).resolve().parents[2] / "deploy" / "grafana-dashboard.json"
_WIDTH, _HEIGHT, _ACROSS = 8, 7, 24  # of a panel, and of the page, in Grafana's units
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_IN: Final = '{instance=~"$instance"}'
_RATE: Final = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph. queries: by the legend of their series, which may name labels; unit: Grafana's word for it."""

    title: str
    meaning: str
    queries: dict[str, str]
    unit: str = "short"


def rate(metric: str, by: str = "") -> str:
    """How many in a second, by labels."""
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{_IN}{_RATE}))"


def quantile(part: float, metric: str) -> str:
    """The value that this part of a histogram's observations stays below."""
    return f"histogram_quantile({part}, sum by (le) (rate({metric}_bucket{_IN}{_RATE})))"


def quantiles(metric: str) -> dict[str, str]:
    """The middle one and the slow ones."""
    return {"half": quantile(0.5, metric), "95 %": quantile(0.95, metric), "99 %": quantile(0.99, metric)}


#: Gauges of the queue: each worker reports its own partitions, which may overlap, so the largest counts.
_QUEUE: Final = f"sum by (state) (max by (state, partition) (pillarbox_queue_recipients{_IN}))"
ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Mail": (
        Panel(
            "Accepted and delivered",
            "Recipients in a second. Where deliveries stay below for long, the queue grows.",
            {
                "accepted by SMTP": rate("pillarbox_smtpd_recipients_total"),
                "{{outcome}}": rate("pillarbox_attempts_total", "outcome"),
            },
            "reqps",
        ),
        Panel(
            "Waiting",
            "Recipients by state, as workers count them, up to a bound.",
            {"{{state}}": _QUEUE},
        ),
        Panel(
            "Overdue",
            "For how long due mail has waited for a claim, by partition; mail that no worker selects is unserved.",
            {
                "partition {{partition}}": f"max by (partition) (pillarbox_queue_overdue_seconds{_IN})",
                "unserved {{leaf}} {{partition}}": (
                    f"max by (leaf, partition) (pillarbox_unserved_overdue_seconds{_IN})"
                ),
            },
            "s",
        ),
        Panel(
            "From receipt to delivery",
            "Of recipients that were delivered.",
            quantiles("pillarbox_delivery_seconds"),
            "s",
        ),
        Panel(
            "By class of destination",
            "Tries by the classes of metrics.destinations.",
            {"{{destination}} {{outcome}}": rate("pillarbox_destination_attempts_total", "destination, outcome")},
            "reqps",
        ),
        Panel(
            "Warnings and errors",
            "Events of level warning and above; each is explained in docs/reference/events.md.",
            {"{{event}}": f"sum by (event) (increase(pillarbox_events_total{_IN}[$__range])) > 0"},
        ),
    ),
    "Workers": (
        Panel(
            "Running",
            "Workers, those that listen for notifications, and those that PostgreSQL answers.",
            {
                "workers": f"sum(pillarbox_worker{_IN})",
                "listening": f"sum(pillarbox_listening{_IN})",
                "queue known": f"sum(pillarbox_queue_known{_IN})",
            },
        ),
        Panel("Tries", "How long a try takes.", quantiles("pillarbox_attempt_seconds"), "s"),
        Panel(
            "Claims",
            "Recipients claimed, given back and parked in a second.",
            {
                "claimed": rate("pillarbox_claimed_recipients_total"),
                "given back": rate("pillarbox_released_recipients_total"),
                "parked": rate("pillarbox_parked_recipients_total"),
            },
            "reqps",
        ),
        Panel(
            "Possible duplicates",
            "Recipients whose claim was lost or taken over in the time shown.",
            {
                "claims lost": f"sum(increase(pillarbox_claims_lost_total{_IN}[$__range]))",
                "leases taken over": f"sum(increase(pillarbox_leases_returned_total{_IN}[$__range]))",
            },
        ),
        Panel(
            "In hand",
            "Recipients claimed, and results that PostgreSQL does not have yet.",
            {
                "in hand {{instance}}": f"sum by (instance) (pillarbox_recipients_in_hand{_IN})",
                "unrecorded {{instance}}": f"sum by (instance) (pillarbox_results_unrecorded{_IN})",
            },
        ),
        Panel("Recording results", "How long a group takes.", quantiles("pillarbox_record_seconds"), "s"),
        Panel(
            "Connections to PostgreSQL",
            "Of workers' pools, and who waits for one.",
            {
                "{{state}}": f"sum by (state) (pillarbox_pool_connections{_IN})",
                "waiting": f"sum(pillarbox_pool_waiting{_IN})",
            },
        ),
        Panel(
            "Logins refused by next hops",
            "In the time shown, by transport. Their mail waits.",
            {"{{transport}}": f"sum by (transport) (increase(pillarbox_logins_refused_total{_IN}[$__range]))"},
        ),
        Panel(
            "Notifications and webhooks",
            "Notifications to senders, events that webhooks took, and requests that they did not take.",
            {
                "notifications": rate("pillarbox_notices_total"),
                "events": rate("pillarbox_webhook_events_total"),
                "webhook failures": rate("pillarbox_webhook_failures_total"),
            },
            "reqps",
        ),
        Panel(
            "Rows by leaf",
            "As PostgreSQL's statistics estimate them.",
            {"{{leaf}}": f"max by (leaf) (pillarbox_queue_leaf_rows{_IN})"},
        ),
    ),
    "smtpd": (
        Panel("Replies", "By code, in a second.", {"{{code}}": rate("pillarbox_smtpd_replies_total", "code")}, "reqps"),
        Panel(
            "Sessions",
            "Open ones by instance, and new ones in a second.",
            {
                "open {{instance}}": f"sum by (instance) (pillarbox_smtpd_sessions{_IN})",
                "new in a second": rate("pillarbox_smtpd_sessions_total"),
            },
        ),
        Panel("Commit of a group", "What a client waits for.", quantiles("pillarbox_smtpd_commit_seconds"), "s"),
        Panel("Octets accepted", "In a second.", {"octets": rate("pillarbox_smtpd_bytes_total")}, "Bps"),
        Panel(
            "Turned away",
            "By load and by rates, in a second.",
            {
                "load: {{reason}}": rate("pillarbox_smtpd_shed_total", "reason"),
                "rates: {{limit}}": rate("pillarbox_smtpd_limited_total", "limit"),
            },
            "reqps",
        ),
        Panel(
            "Logins", "By result, in a second.", {"{{result}}": rate("pillarbox_smtpd_logins_total", "result")}, "reqps"
        ),
        Panel(
            "Room for mail",
            "On the fullest of PostgreSQL's volumes; smtpd refuses mail below spool.minfree.",
            {"free {{instance}}": f"min by (instance) (pillarbox_smtpd_space_free_bytes{_IN})"},
            "bytes",
        ),
        Panel(
            "Load",
            "How late the event loop is, by process.",
            {"{{instance}} {{process}}": f"pillarbox_smtpd_lag_seconds{_IN}"},
            "s",
        ),
        Panel(
            "Processes",
            "Wanted, ready, and of these such as would commit a message now.",
            {
                "{{state}}": f"sum by (state) (pillarbox_smtpd_processes{_IN})",
                "would commit": f"sum(pillarbox_smtpd_ready{_IN})",
            },
        ),
    ),
    "httpd and account mail": (
        Panel(
            "Requests", "By status, in a second.", {"{{code}}": rate("pillarbox_httpd_requests_total", "code")}, "reqps"
        ),
        Panel("Answers", "How long one takes.", quantiles("pillarbox_httpd_request_seconds"), "s"),
        Panel(
            "Tokens of account mail",
            "How long the one that has waited longest could have been collected, and how many are collected.",
            {
                "oldest {{action}}": f"max by (action) (pillarbox_tokens_oldest_seconds{_IN})",
                "collected in a second": rate("pillarbox_collect_tokens_total"),
            },
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"h": 1, "w": _ACROSS, "x": 0, "y": top}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        )
        top += 1
        for number, panel in enumerate(row):
            left = number * _WIDTH % _ACROSS
            place = {"h": _HEIGHT, "w": _WIDTH, "x": left, "y": top + number * _WIDTH // _ACROSS * _HEIGHT}
            panels.append(_graph(len(panels) + 1, panel, place))
        top += -(-len(row) * _WIDTH // _ACROSS) * _HEIGHT
    return {
        "title": "Pillarbox",
        "uid": "pillarbox",
        "description": "Mail, workers, smtpd, httpd and account mail of Pillarbox.",
        "tags": ["mail", "pillarbox"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 39,
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource(), _instance()]},
        "panels": panels,
    }


def _graph(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + n), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for n, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus", "hide": 0}


def _instance() -> dict[str, Any]:
    return {
        "name": "instance",
        "type": "query",
        "label": "Instance",
        "datasource": _SOURCE,
        "query": {"query": 'label_values({__name__=~"pillarbox_.+"}, instance)', "refId": "instance"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def text() -> str:
    """The content of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the file; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.dev.dashboard", description="Write the dashboard.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is out of date")
    options = parser.parse_args(arguments)
    if FILE.exists() and FILE.read_text(encoding="utf-8") == text():
        return 0
    if options.check:
        print(f"{FILE} is out of date; run python -m scripts.dev.dashboard", file=sys.stderr)
        return 1
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
