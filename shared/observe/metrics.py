"""metrics — counts the events of this process

Owns: what each watcher adds to which series, and the allowed values of labels that vary.
Guarantees: labels are bounded: a transport that the configuration does not name counts as `other`, and nothing is
    labelled by domain, host or message. Every possible series exists from the start, at 0, so that its first
    increase is seen. Counting an event takes 1 to 2 µs, allocates nothing that stays, and raises nothing.
    Everything happens in the event loop's thread, so a scrape sees one moment.
See: shared/observe/queued_table.py and shared/observe/smtpd_table.py (the metrics);
    shared/observe/metrics_totals.py (the counts); docs/how-to/observe/watch-with-prometheus.md.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.observe.events_table import EVENTS, WARNING
from shared.observe.metrics_totals import Totals
from shared.observe.queued_table import CODE, DESTINATION, EVENTS_TOTAL, LIMIT, QUEUED, REASON, TRANSPORT, VARYING, Feed
from shared.observe.smtpd_table import CODES, LIMITS, REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from shared.observe.events import Watcher
    from shared.observe.metrics_totals import Reading
    from shared.observe.queued_table import Table

    type Fields = Mapping[str, object]

#: The label of everything that the configuration does not name.
OTHER: Final = "other"


class Label(NamedTuple):
    """A label that varies: the values it may have besides OTHER, and which of them an event has."""

    values: tuple[str, ...]
    of: Callable[[Fields], object]


def by_transport(transports: Collection[str]) -> dict[str, Label]:
    """The label `transport`, an id of the configuration."""
    return {TRANSPORT: Label(tuple(sorted(transports)), lambda fields: fields.get("transport"))}


def by_destination(classes: Mapping[str, Collection[str]]) -> dict[str, Label]:
    """The label `destination`: the class that has the recipient's domain, or `.domain` for one above it."""
    known = {domain.lower(): name for name, domains in classes.items() for domain in domains}

    def of(fields: Fields) -> object:
        domain = getattr(fields.get("to"), "domain", "").lower()
        found = known.get(domain)
        while known and found is None and (dot := domain.find(".", 1)) >= 0:
            domain = domain[dot:]
            found = known.get(domain)
        return found

    return {DESTINATION: Label(tuple(classes), of)}


def by_reply() -> dict[str, Label]:
    """The labels of smtpd: `code`, of a reply; `reason`, why a client was turned away; `limit`, which one it met."""
    return {
        CODE: Label(CODES, lambda fields: str(fields.get("reply"))[:3]),
        REASON: Label(REASONS, lambda fields: fields.get("reason")),
        LIMIT: Label(LIMITS, lambda fields: fields.get("limit")),
    }


class ProcessCounts:
    """The counts of this process since its start."""

    def __init__(self, labels: Mapping[str, Label], table: Table = QUEUED) -> None:
        """`labels`: those that vary, where the table has them."""
        self.totals = Totals(table)
        self._table = table
        self._labels = labels
        self._more: dict[str, list[Callable[[str], None]]] = {name: [] for name in VARYING}
        self._watchers: dict[str, list[Watcher]] = {}
        for event, feeds in table.feeds.items():
            self._watchers[event] = [self._fed(feed) for feed in feeds]
        for event, (level, _) in EVENTS.items():
            if level >= WARNING:
                severity = (event, logging.getLevelName(level).lower())
                self._watchers.setdefault(event, []).append(self._fed(Feed(EVENTS_TOTAL, severity)))

    def watchers(self) -> Mapping[str, list[Watcher]]:
        """The watchers by event."""
        return self._watchers

    def know(self, label: str, values: Iterable[str]) -> None:
        """From now on the label may have these values too; those it had stay."""
        for value in values:
            for add in self._more[label]:
                add(value)

    def exposition(self, readings: Iterable[Reading] = ()) -> bytes:
        """The text for a scrape."""
        return self.totals.exposition(readings)

    def _fed(self, feed: Feed) -> Watcher:
        """A counter of one event, with its series at 0."""
        metric = self._table.metrics[feed.metric]
        name = metric.labels[-1] if metric.labels and metric.labels[-1] in VARYING else None
        if metric.kind == "histogram":
            return self._histogram(feed, name)
        counts = self.totals.counters.setdefault(feed.metric, {})
        if name is None:
            return _counter(counts, feed.labels, feed.amount)
        keys: dict[object, tuple[str, ...]] = {}

        def add(value: str) -> None:
            keys[value] = (*feed.labels, value)
            counts.setdefault(keys[value], 0)

        self._known(name, add)
        return _counter_by(counts, keys, self._labels[name].of)

    def _histogram(self, feed: Feed, name: str | None) -> Watcher:
        amount = feed.amount or "seconds"
        if name is None:
            return _histogram(self.totals.spread(feed.metric, feed.labels).add, amount)
        adders: dict[object, Callable[[float], None]] = {}

        def add(value: str) -> None:
            adders[value] = self.totals.spread(feed.metric, (*feed.labels, value)).add

        self._known(name, add)
        return _histogram_by(adders, self._labels[name].of, amount)

    def _known(self, name: str, add: Callable[[str], None]) -> None:
        for value in (*self._labels[name].values, OTHER):
            add(value)
        self._more[name].append(add)


def _counter(counts: dict[tuple[str, ...], float], key: tuple[str, ...], amount: str | None) -> Watcher:
    counts.setdefault(key, 0)

    def count(fields: Fields) -> None:
        counts[key] += 1 if amount is None else _number(fields.get(amount))

    return count


def _counter_by(
    counts: dict[tuple[str, ...], float], keys: Mapping[object, tuple[str, ...]], of: Callable[[Fields], object]
) -> Watcher:
    other = keys[OTHER]

    def count(fields: Fields) -> None:
        counts[keys.get(of(fields), other)] += 1

    return count


def _histogram(add: Callable[[float], None], amount: str) -> Watcher:
    def count(fields: Fields) -> None:
        add(_number(fields.get(amount)))

    return count


def _histogram_by(
    adders: Mapping[object, Callable[[float], None]], of: Callable[[Fields], object], amount: str
) -> Watcher:
    other = adders[OTHER]

    def count(fields: Fields) -> None:
        adders.get(of(fields), other)(_number(fields.get(amount)))

    return count


def _number(value: object) -> float:
    """A field's value, never less than nothing: clocks differ, and a counter that falls is a restart to Prometheus."""
    return max(value, 0.0) if isinstance(value, float | int) else 0.0
