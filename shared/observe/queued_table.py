"""queued_table — the metrics of a worker and their names

Owns: the shape of a table of metrics, the table of queued, and which events feed which metric of it.
Guarantees: constants; renaming one breaks users.
See: docs/reference/metrics.md, generated from both tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The labels whose values are not in the table: an id of a transport, a class of destinations, a reply's code, why a
#: client was turned away, which limit it met.
TRANSPORT: Final = "transport"
DESTINATION: Final = "destination"
CODE: Final = "code"
REASON: Final = "reason"
LIMIT: Final = "limit"
VARYING: Final = frozenset({TRANSPORT, DESTINATION, CODE, REASON, LIMIT})


class Metric(NamedTuple):
    """One name: its kind, what it says, its labels (one that varies is last), a histogram's upper bounds."""

    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Feed(NamedTuple):
    """The share of one event in one metric: 1, or the value of the field `amount`; the labels before a varying one."""

    metric: str
    labels: tuple[str, ...] = ()
    amount: str | None = None


class Table(NamedTuple):
    """A daemon's metrics by name, and the metrics that each event feeds besides pillarbox_events_total."""

    metrics: Mapping[str, Metric]
    feeds: Mapping[str, tuple[Feed, ...]]


#: Of both daemons.
LEAF_ROWS: Final = "pillarbox_queue_leaf_rows"
LEAF_ROWS_METRIC: Final = Metric(
    "gauge",
    "Rows of each leaf of the queue as PostgreSQL's statistics estimate them; workers and smtpd report every leaf.",
    ("leaf",),
)
EVENTS_TOTAL: Final = "pillarbox_events_total"
EVENTS_METRIC: Final = Metric(
    "counter", "Events of level warning and above; see the table of events for each.", ("event", "level")
)

# From a peer on the same host to RFC 5321's ten minutes for the final dot (section 4.5.3.2.6).
_ATTEMPT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
# A commit, from a fast disk to its time limit; and how many share one.
COMMIT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
# From the first try at once to the last before mail expires.
_SHORT: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0)
_DELIVERY: Final = (*_SHORT, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 432000.0)

METRICS: Final[dict[str, Metric]] = {
    "pillarbox_attempts_total": Metric(
        "counter",
        "Tries that have their result, one for each recipient; a try that lost its claim is not among them. "
        "`outcome` is delivered, deferred, failed or held.",
        ("outcome", TRANSPORT),
    ),
    "pillarbox_destination_attempts_total": Metric(
        "counter",
        "The same tries by the class that `metrics.destinations` puts the recipient's domain in.",
        ("outcome", DESTINATION),
    ),
    "pillarbox_attempt_seconds": Metric(
        "histogram",
        "How long tries took, once for each recipient, so that a transaction with many weighs as many.",
        (TRANSPORT,),
        _ATTEMPT,
    ),
    "pillarbox_delivery_seconds": Metric(
        "histogram",
        "From receipt to the recorded delivery, for recipients that were delivered.",
        (TRANSPORT,),
        _DELIVERY,
    ),
    "pillarbox_claims_total": Metric("counter", "Claims that took something."),
    "pillarbox_claimed_recipients_total": Metric("counter", "Recipients that claims took."),
    "pillarbox_released_recipients_total": Metric("counter", "Claimed recipients that were given back untried."),
    "pillarbox_parked_recipients_total": Metric(
        "counter", "Claimed recipients that went back untried, to come again later: pacing, or a full destination."
    ),
    "pillarbox_claims_lost_total": Metric(
        "counter", "Results that came when another claim held the row: possible duplicates."
    ),
    "pillarbox_leases_returned_total": Metric(
        "counter", "Recipients taken over from a claim whose lease or process had ended: possible duplicates."
    ),
    "pillarbox_record_results": Metric("histogram", "How many results were recorded in one go.", (), SIZES),
    "pillarbox_record_seconds": Metric("histogram", "How long that took PostgreSQL.", (), COMMIT),
    "pillarbox_logins_refused_total": Metric(
        "counter",
        "Times that a next hop refused our login or required one; its mail waits until the login is repaired.",
        (TRANSPORT,),
    ),
    "pillarbox_notices_total": Metric("counter", "Notifications to senders that were queued."),
    "pillarbox_webhook_events_total": Metric("counter", "Events that webhooks took."),
    "pillarbox_webhook_failures_total": Metric("counter", "Requests to webhooks that were not taken."),
    "pillarbox_wakeups_heard_total": Metric("counter", "Times that notifications of mail for this worker were heard."),
    "pillarbox_wakeups_lost_total": Metric(
        "counter", "Times that listening ended. `why` is lost, deaf or swallowed, as the events are called.", ("why",)
    ),
    "pillarbox_hints_unsent_total": Metric(
        "counter", "Notifications of dead letters or of mail that could not be sent; listeners find them by polling."
    ),
    EVENTS_TOTAL: EVENTS_METRIC,
    "pillarbox_worker": Metric("gauge", "Always 1; `worker` is the name this process was started by.", ("worker",)),
    "pillarbox_listening": Metric("gauge", "1 while notifications are listened for; 0 means that it only polls."),
    "pillarbox_recipients_in_hand": Metric("gauge", "Recipients claimed, and neither recorded nor given back."),
    "pillarbox_results_unrecorded": Metric("gauge", "Results that PostgreSQL does not have yet."),
    "pillarbox_pool_connections": Metric(
        "gauge", "Connections to PostgreSQL. `state` is open, free (part of open) or allowed.", ("state",)
    ),
    "pillarbox_pool_waiting": Metric("gauge", "Parts of the daemon that wait for a connection of the pool."),
    "pillarbox_queue_known": Metric(
        "gauge", "1 when PostgreSQL answered the last time it was asked what is queued, else 0 and no such figures."
    ),
    "pillarbox_queue_recipients": Metric(
        "gauge",
        "Recipients the worker's condition selects, counted to a bound: 1000 for each class of priority, due and not "
        "due apart, and ordinary mail that has waited before apart; and 1000 on hold. A sum at a bound means at least "
        "so many.",
        ("state", "partition"),
    ),
    "pillarbox_queue_oldest_seconds": Metric(
        "gauge", "Age since receipt of the oldest among those that were counted.", ("state", "partition")
    ),
    "pillarbox_queue_overdue_seconds": Metric(
        "gauge", "How long the mail that waits for a claim longest has been due, by partition.", ("partition",)
    ),
    "pillarbox_unserved_overdue_seconds": Metric(
        "gauge",
        "How long mail has been due that no living worker's condition selects, the longest by leaf and partition; "
        "every worker reports every partition. No such series: all mail that is due is served.",
        ("leaf", "partition"),
    ),
    "pillarbox_unserved_recipients": Metric(
        "gauge",
        "How many recipients of that mail were noted, 10 of each leaf and partition at most.",
        ("leaf", "partition"),
    ),
    LEAF_ROWS: LEAF_ROWS_METRIC,
}


def _result(outcome: str) -> tuple[Feed, ...]:
    return (
        Feed("pillarbox_attempts_total", (outcome,)),
        Feed("pillarbox_destination_attempts_total", (outcome,)),
        Feed("pillarbox_attempt_seconds", amount="seconds"),
    )


#: event → what it feeds, besides pillarbox_events_total
FEEDS: Final[dict[str, tuple[Feed, ...]]] = {
    "result.delivered": (*_result("delivered"), Feed("pillarbox_delivery_seconds", amount="delay")),
    "result.deferred": _result("deferred"),
    "result.failed": _result("failed"),
    "result.held": _result("held"),
    "result.group": (
        Feed("pillarbox_record_results", amount="results"),
        Feed("pillarbox_record_seconds", amount="seconds"),
    ),
    "claim.taken": (Feed("pillarbox_claims_total"), Feed("pillarbox_claimed_recipients_total", amount="recipients")),
    "claim.released": (Feed("pillarbox_released_recipients_total", amount="recipients"),),
    "claim.parked": (Feed("pillarbox_parked_recipients_total", amount="recipients"),),
    "claim.lost": (Feed("pillarbox_claims_lost_total"),),
    "claim.expired": (Feed("pillarbox_leases_returned_total"),),
    "auth.refused": (Feed("pillarbox_logins_refused_total"),),
    "notice.sent": (Feed("pillarbox_notices_total"),),
    "webhook.sent": (Feed("pillarbox_webhook_events_total", amount="events"),),
    "webhook.failed": (Feed("pillarbox_webhook_failures_total"),),
    "wakeup.heard": (Feed("pillarbox_wakeups_heard_total"),),
    "wakeup.unsent": (Feed("pillarbox_hints_unsent_total", amount="hints"),),
    "wakeup.lost": (Feed("pillarbox_wakeups_lost_total", ("lost",)),),
    "wakeup.deaf": (Feed("pillarbox_wakeups_lost_total", ("deaf",)),),
    "wakeup.swallowed": (Feed("pillarbox_wakeups_lost_total", ("swallowed",)),),
}


QUEUED: Final = Table(METRICS, FEEDS)
