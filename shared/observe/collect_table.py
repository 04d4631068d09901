"""collect_table — the metrics of a collector of account mail and their names

Owns: the table of the collector's metrics and which events feed which.
Guarantees: constants; renaming one breaks users.
See: docs/reference/metrics.md; shared/observe/queued_table.py for queued's.
"""

from __future__ import annotations

from typing import Final

from shared.observe.queued_table import COMMIT, EVENTS_METRIC, EVENTS_TOTAL, SIZES, Feed, Metric, Table

_METRICS: Final[dict[str, Metric]] = {
    "pillarbox_collect_tokens_total": Metric(
        "counter", "Tokens that were marked and handed over, once their COMMIT was answered."
    ),
    "pillarbox_collect_refused_total": Metric(
        "counter", "Tokens whose mail cannot be made or queued; they are not tried again."
    ),
    "pillarbox_collect_batch_tokens": Metric("histogram", "How many tokens were collected in one go.", (), SIZES),
    "pillarbox_collect_batch_seconds": Metric("histogram", "How long that took, its COMMIT included.", (), COMMIT),
    "pillarbox_collect_forgotten_total": Metric("counter", "Tokens that expired long ago and were deleted."),
    EVENTS_TOTAL: EVENTS_METRIC,
    "pillarbox_collect_listening": Metric(
        "gauge", "1 while notifications are listened for; 0 means that it only polls."
    ),
    "pillarbox_collect_ready": Metric("gauge", "1 while the accounts' database answers."),
    "pillarbox_tokens_known": Metric(
        "gauge", "1 when PostgreSQL answered the last time it was asked which tokens wait, else 0 and no such figures."
    ),
    "pillarbox_tokens_waiting": Metric(
        "gauge",
        "Tokens that could be collected now, by action, counted up to 1000; every collector reports all of them.",
        ("action",),
    ),
    "pillarbox_tokens_oldest_seconds": Metric(
        "gauge", "How long the one that has waited longest could have been collected; 0 where none waits.", ("action",)
    ),
}

_FEEDS: Final[dict[str, tuple[Feed, ...]]] = {
    "collect.batch": (
        Feed("pillarbox_collect_tokens_total", amount="tokens"),
        Feed("pillarbox_collect_batch_tokens", amount="tokens"),
        Feed("pillarbox_collect_batch_seconds", amount="seconds"),
    ),
    "collect.refused": (Feed("pillarbox_collect_refused_total"),),
    "collect.forgot": (Feed("pillarbox_collect_forgotten_total", amount="tokens"),),
}

COLLECT: Final = Table(_METRICS, _FEEDS)
