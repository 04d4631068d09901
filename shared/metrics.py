"""metrics — what is counted, under which names, and how Prometheus reads it

Owns: the table of metrics; which events feed which of them; the counts of this process; the text a scrape gets.
Called by: queued.observe; shared.events tells of each event that is fed; scripts.reference writes the page.
Guarantees: labels are bounded: a transport that the configuration does not name counts as `other`, and nothing is
    labelled by domain, host or message. A series that can occur is there from the start, at 0, so that its first
    increase is seen. Counting an event takes less than 2 µs, allocates nothing that stays, and raises nothing.
    Everything happens in the event loop's thread, so a scrape sees one moment.
See: docs/reference/metrics.md, generated from METRICS and FEEDS; docs/how-to/watch-with-prometheus.md;
    https://prometheus.io/docs/instrumenting/exposition_formats/ for the text.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from shared.events import EVENTS, WARNING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric as Family

    from shared.events import Watcher

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
#: What every transport counts as that the configuration does not name.
OTHER: Final = "other"
_TRANSPORT = "transport"


class Metric(NamedTuple):
    """One name: its kind, what it says, its labels (`transport` last), a histogram's upper bounds in seconds."""

    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


# From a peer on the same host to RFC 5321's ten minutes for the final dot (section 4.5.3.2.6).
_ATTEMPT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
# From the first try at once to the last before mail expires.
_DELIVERY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 432000.0)

METRICS: Final[dict[str, Metric]] = {
    "pillarbox_attempts_total": Metric(
        "counter",
        "Tries that have their result, one for each recipient; a try that lost its claim is not among them. "
        "`outcome` is delivered, deferred or failed.",
        ("outcome", _TRANSPORT),
    ),
    "pillarbox_attempt_seconds": Metric(
        "histogram",
        "How long tries took, once for each recipient, so that a transaction with many weighs as many.",
        (_TRANSPORT,),
        _ATTEMPT,
    ),
    "pillarbox_delivery_seconds": Metric(
        "histogram",
        "From receipt to the recorded delivery, for recipients that were delivered.",
        (_TRANSPORT,),
        _DELIVERY,
    ),
    "pillarbox_claims_total": Metric("counter", "Claims that took something."),
    "pillarbox_claimed_recipients_total": Metric("counter", "Recipients that claims took."),
    "pillarbox_released_recipients_total": Metric("counter", "Claimed recipients that were given back untried."),
    "pillarbox_claims_lost_total": Metric(
        "counter", "Results that came when another claim held the row: possible duplicates."
    ),
    "pillarbox_leases_returned_total": Metric(
        "counter", "Recipients taken over from a claim whose lease had run out: possible duplicates."
    ),
    "pillarbox_wakeups_heard_total": Metric("counter", "Times that notifications of mail for this worker were heard."),
    "pillarbox_wakeups_lost_total": Metric(
        "counter", "Times that listening ended. `why` is lost, deaf or swallowed, as the events are called.", ("why",)
    ),
    "pillarbox_events_total": Metric(
        "counter", "Events of level warning and above; see the table of events for each.", ("event", "level")
    ),
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
        "due apart, and 1000 on hold. A sum at a bound means at least so many.",
        ("state", "partition"),
    ),
    "pillarbox_queue_oldest_seconds": Metric(
        "gauge", "Age since receipt of the oldest among those that were counted.", ("state", "partition")
    ),
    "pillarbox_queue_overdue_seconds": Metric(
        "gauge", "How long the mail that waits for a claim longest has been due, by partition.", ("partition",)
    ),
    "pillarbox_queue_leaf_rows": Metric(
        "gauge",
        "Rows of each leaf of the queue as PostgreSQL's statistics estimate them; every worker reports every leaf.",
        ("leaf",),
    ),
}


class Feed(NamedTuple):
    """What one event adds to one metric: 1, or the value of the field `amount`; the labels before `transport`."""

    metric: str
    labels: tuple[str, ...] = ()
    amount: str | None = None


def _result(outcome: str) -> tuple[Feed, ...]:
    return Feed("pillarbox_attempts_total", (outcome,)), Feed("pillarbox_attempt_seconds", amount="seconds")


#: event → what it feeds, besides pillarbox_events_total
FEEDS: Final[dict[str, tuple[Feed, ...]]] = {
    "result.delivered": (*_result("delivered"), Feed("pillarbox_delivery_seconds", amount="delay")),
    "result.deferred": _result("deferred"),
    "result.failed": _result("failed"),
    "claim.taken": (Feed("pillarbox_claims_total"), Feed("pillarbox_claimed_recipients_total", amount="recipients")),
    "claim.released": (Feed("pillarbox_released_recipients_total", amount="recipients"),),
    "claim.lost": (Feed("pillarbox_claims_lost_total"),),
    "claim.expired": (Feed("pillarbox_leases_returned_total"),),
    "wakeup.heard": (Feed("pillarbox_wakeups_heard_total"),),
    "wakeup.lost": (Feed("pillarbox_wakeups_lost_total", ("lost",)),),
    "wakeup.deaf": (Feed("pillarbox_wakeups_lost_total", ("deaf",)),),
    "wakeup.swallowed": (Feed("pillarbox_wakeups_lost_total", ("swallowed",)),),
}


class Reading(NamedTuple):
    """A gauge's value at this moment; the labels in the table's order."""

    metric: str
    value: float
    labels: tuple[str, ...] = ()


class _Spread:
    """One series of a histogram: how many values fell below each bound and not below the one before."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it), as the exposition has it."""
        total, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class Counts:
    """What this process has counted since it started."""

    def __init__(self, transports: Collection[str]) -> None:
        """`transports`: the ids that may stand in a label."""
        self._transports = frozenset(transports)
        self._counters: dict[str, dict[tuple[str, ...], float]] = {}
        self._spreads: dict[str, dict[tuple[str, ...], _Spread]] = {}
        self._watchers: dict[str, list[Watcher]] = {}
        for event, feeds in FEEDS.items():
            self._watchers[event] = [self._fed(feed) for feed in feeds]
        for event, (level, _) in EVENTS.items():
            if level >= WARNING:
                labels = (event, logging.getLevelName(level).lower())
                self._watchers.setdefault(event, []).append(self._fed(Feed("pillarbox_events_total", labels)))

    def watchers(self) -> Mapping[str, list[Watcher]]:
        """Whom to tell of which event."""
        return self._watchers

    def _fed(self, feed: Feed) -> Watcher:
        """What counts one event, with its series at 0."""
        metric = METRICS[feed.metric]
        if _TRANSPORT not in metric.labels:
            counts = self._counters.setdefault(feed.metric, {})
            return _counter(counts, feed.labels, feed.amount)
        keys = {transport: (*feed.labels, transport) for transport in (*sorted(self._transports), OTHER)}
        if metric.kind == "histogram":
            known = self._spreads.setdefault(feed.metric, {})
            spreads = {each: known.setdefault(key, _Spread(metric.buckets)) for each, key in keys.items()}
            return _histogram(spreads, feed.amount or "seconds")
        return _counter_by_transport(self._counters.setdefault(feed.metric, {}), keys)

    def exposition(self, readings: Iterable[Reading] = ()) -> bytes:
        """What a scrape gets: these counts and readings, in Prometheus's text format 0.0.4."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(self._counters, self._spreads, readings))
        return generate_latest(registry)


def _counter(counts: dict[tuple[str, ...], float], key: tuple[str, ...], amount: str | None) -> Watcher:
    counts.setdefault(key, 0)

    def count(fields: Mapping[str, object]) -> None:
        counts[key] += 1 if amount is None else _number(fields.get(amount))

    return count


def _counter_by_transport(counts: dict[tuple[str, ...], float], keys: Mapping[str, tuple[str, ...]]) -> Watcher:
    counts.update((key, counts.get(key, 0)) for key in keys.values())
    other = keys[OTHER]

    def count(fields: Mapping[str, object]) -> None:
        counts[keys.get(fields.get(_TRANSPORT), other)] += 1  # type: ignore[call-overload]  # any value may be asked for

    return count


def _histogram(spreads: Mapping[str, _Spread], amount: str) -> Watcher:
    other = spreads[OTHER]

    def count(fields: Mapping[str, object]) -> None:
        spreads.get(fields.get(_TRANSPORT), other).add(_number(fields.get(amount)))  # type: ignore[call-overload]  # as above

    return count


def _number(value: object) -> float:
    """A field's value, never less than nothing: clocks differ, and a counter that falls is a restart to Prometheus."""
    return max(value, 0.0) if isinstance(value, float | int) else 0.0


class _Scrape(Collector):
    """The counts of one moment, in the classes of prometheus_client."""

    def __init__(
        self,
        counters: Mapping[str, Mapping[tuple[str, ...], float]],
        spreads: Mapping[str, Mapping[tuple[str, ...], _Spread]],
        readings: Iterable[Reading],
    ) -> None:
        self._counters = counters
        self._spreads = spreads
        self._gauges: dict[str, dict[tuple[str, ...], float]] = {}
        for name, value, labels in readings:
            self._gauges.setdefault(name, {})[labels] = value

    def collect(self) -> Iterator[Family]:
        """Each metric of the table that has a value, in the table's order."""
        for name, metric in METRICS.items():
            if counts := self._counters.get(name):
                counter = CounterMetricFamily(name, metric.meaning, labels=metric.labels)
                for labels, value in counts.items():
                    counter.add_metric(labels, value)
                yield counter
            elif spreads := self._spreads.get(name):
                histogram = HistogramMetricFamily(name, metric.meaning, labels=metric.labels)
                for labels, spread in spreads.items():
                    histogram.add_metric(labels, spread.buckets(), spread.sum)
                yield histogram
            elif values := self._gauges.get(name):
                gauge = GaugeMetricFamily(name, metric.meaning, labels=metric.labels)
                for labels, value in values.items():
                    gauge.add_metric(labels, value)
                yield gauge
