"""smtpd_table — the metrics of smtpd and their names

Owns: the table of smtpd's metrics and which events feed which.
Guarantees: constants; renaming one breaks users. Of several processes counters and histograms are summed, and gauges
    name the process.
See: docs/reference/metrics.md; shared/observe/queued_table.py for queued's.
"""

from __future__ import annotations

from typing import Final

from shared.observe.queued_table import (
    CODE,
    COMMIT,
    EVENTS_METRIC,
    EVENTS_TOTAL,
    LEAF_ROWS,
    LEAF_ROWS_METRIC,
    LIMIT,
    REASON,
    SIZES,
    Feed,
    Metric,
    Table,
)

#: The codes smtpd answers with by itself; a policy's own count as `other` (RFC 5321 section 4.2.3, RFC 4954, RFC 7504).
CODES: Final = (
    "214",
    "220",
    "221",
    "235",
    "250",
    "251",
    "252",
    "334",
    "354",
    "421",
    "432",
    "450",
    "451",
    "452",
    "454",
    "455",
    "500",
    "501",
    "502",
    "503",
    "504",
    "521",
    "523",
    "530",
    "534",
    "535",
    "538",
    "550",
    "551",
    "552",
    "553",
    "554",
    "555",
    "556",
)

#: Why load turns a client away, and which limits `rates` has.
REASONS: Final = ("sessions", "lag")
LIMITS: Final = ("session", "connection", "message", "recipient")

_METRICS: Final[dict[str, Metric]] = {
    "pillarbox_smtpd_sessions_total": Metric("counter", "Connections that were not turned away at once."),
    "pillarbox_smtpd_replies_total": Metric("counter", "Replies by code; a greeting is one.", (CODE,)),
    "pillarbox_smtpd_messages_total": Metric("counter", "Messages accepted: committed, and answered 250."),
    "pillarbox_smtpd_recipients_total": Metric("counter", "Their recipients."),
    "pillarbox_smtpd_bytes_total": Metric("counter", "Their octets as stored."),
    "pillarbox_smtpd_not_durable_total": Metric(
        "counter",
        "Recipients of messages that are committed and were answered 451, since PostgreSQL gave up waiting for a "
        "standby: possible duplicates.",
    ),
    "pillarbox_smtpd_hints_unsent_total": Metric(
        "counter", "Notifications to workers that could not be sent: mail waits for a poll."
    ),
    "pillarbox_smtpd_commit_seconds": Metric("histogram", "How long a group's commit took.", (), COMMIT),
    "pillarbox_smtpd_commit_messages": Metric("histogram", "How many messages shared a commit.", (), SIZES),
    "pillarbox_smtpd_shed_total": Metric(
        "counter", "Clients that got 421 in place of a greeting. `reason` is sessions, lag or reserve.", (REASON,)
    ),
    "pillarbox_smtpd_limited_total": Metric(
        "counter",
        "Refusals by `rates`. `limit` is session, connection, message or recipient.",
        (LIMIT,),
    ),
    "pillarbox_smtpd_logins_total": Metric(
        "counter", "Logins. `result` is succeeded, refused or busy; banned counts the bans that follow.", ("result",)
    ),
    "pillarbox_smtpd_tls_failures_total": Metric("counter", "TLS handshakes that failed."),
    "pillarbox_smtpd_contentcheck_seconds": Metric("histogram", "How long rspamd took for its verdict.", (), COMMIT),
    EVENTS_TOTAL: EVENTS_METRIC,
    "pillarbox_smtpd_processes": Metric("gauge", "Processes. `state` is wanted or ready.", ("state",)),
    "pillarbox_smtpd_ready": Metric("gauge", "1 while a process would commit a message now.", ("process",)),
    "pillarbox_smtpd_sessions": Metric("gauge", "Connections that are open.", ("process",)),
    "pillarbox_smtpd_space_known": Metric(
        "gauge", "1 while a process knows how much room PostgreSQL's volumes have.", ("process",)
    ),
    "pillarbox_smtpd_space_free_bytes": Metric(
        "gauge", "Room on the volume that has least, where it is known; compare it with `spool.minfree`.", ("process",)
    ),
    "pillarbox_smtpd_lag_seconds": Metric("gauge", "How late the event loop was at its last beat.", ("process",)),
    "pillarbox_smtpd_pending_bytes": Metric("gauge", "Content that waits for its commit.", ("process",)),
    LEAF_ROWS: LEAF_ROWS_METRIC,
}

_FEEDS: Final[dict[str, tuple[Feed, ...]]] = {
    "session.opened": (Feed("pillarbox_smtpd_sessions_total"),),
    "session.replied": (Feed("pillarbox_smtpd_replies_total"),),
    "spool.committed": (
        Feed("pillarbox_smtpd_messages_total"),
        Feed("pillarbox_smtpd_recipients_total", amount="recipients"),
        Feed("pillarbox_smtpd_bytes_total", amount="size"),
    ),
    "spool.group": (
        Feed("pillarbox_smtpd_commit_seconds", amount="seconds"),
        Feed("pillarbox_smtpd_commit_messages", amount="messages"),
    ),
    "spool.not_durable": (Feed("pillarbox_smtpd_not_durable_total", amount="recipients"),),
    "wakeup.unsent": (Feed("pillarbox_smtpd_hints_unsent_total", amount="hints"),),
    "load.refused": (Feed("pillarbox_smtpd_shed_total"),),
    "rates.exceeded": (Feed("pillarbox_smtpd_limited_total"),),
    "authenticate.succeeded": (Feed("pillarbox_smtpd_logins_total", ("succeeded",)),),
    "authenticate.refused": (Feed("pillarbox_smtpd_logins_total", ("refused",)),),
    "authenticate.banned": (Feed("pillarbox_smtpd_logins_total", ("banned",)),),
    "authenticate.busy": (Feed("pillarbox_smtpd_logins_total", ("busy",)),),
    "tls.failed": (Feed("pillarbox_smtpd_tls_failures_total"),),
    "content.checked": (Feed("pillarbox_smtpd_contentcheck_seconds", amount="seconds"),),
}

SMTPD: Final = Table(_METRICS, _FEEDS)
