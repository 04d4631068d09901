"""httpd_table — the metrics of httpd and their names

Owns: the table of httpd's metrics and which events feed which.
Guarantees: constants; renaming one breaks users.
See: docs/reference/metrics.md; shared/observe/queued_table.py for queued's.
"""

from __future__ import annotations

from typing import Final

from shared.observe.queued_table import CODE, COMMIT, EVENTS_METRIC, EVENTS_TOTAL, Feed, Metric, Table

#: The statuses that httpd answers with (RFC 9110 section 15, RFC 6585).
CODES: Final = tuple(
    "200 201 202 204 304 400 401 403 404 405 408 409 413 415 422 429 431 500 503".split()  # noqa: SIM905 - a table
)

_METRICS: Final[dict[str, Metric]] = {
    "pillarbox_httpd_requests_total": Metric("counter", "Requests that were answered, by status.", (CODE,)),
    "pillarbox_httpd_request_seconds": Metric("histogram", "How long an answer took.", (), COMMIT),
    "pillarbox_httpd_keys_refused_total": Metric("counter", "Requests without a key that is valid."),
    EVENTS_TOTAL: EVENTS_METRIC,
    "pillarbox_httpd_processes": Metric("gauge", "Processes. `state` is wanted or ready.", ("state",)),
    "pillarbox_httpd_connections": Metric("gauge", "Connections that are open.", ("process",)),
    "pillarbox_httpd_requests": Metric("gauge", "Requests that are being answered.", ("process",)),
    "pillarbox_httpd_ready": Metric("gauge", "1 while PostgreSQL answers a process.", ("process",)),
}

_FEEDS: Final[dict[str, tuple[Feed, ...]]] = {
    "request.answered": (
        Feed("pillarbox_httpd_requests_total"),
        Feed("pillarbox_httpd_request_seconds", amount="seconds"),
    ),
    "key.refused": (Feed("pillarbox_httpd_keys_refused_total"),),
}

HTTPD: Final = Table(_METRICS, _FEEDS)
