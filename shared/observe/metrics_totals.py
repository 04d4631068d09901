"""metrics_totals — the counts of one process or of several together, at one moment

Owns: counters and histograms as plain values, their sum over processes, and the text for a scrape.
Guarantees: a snapshot is plain JSON, and adding it elsewhere counts the same. The text has the table's order.
See: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric as Family

    from shared.observe.queued_table import Metric, Table

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class Reading(NamedTuple):
    """A gauge's value at this moment; the labels in the table's order."""

    metric: str
    value: float
    labels: tuple[str, ...] = ()


class Spread:
    """One series of a histogram: how many values fell below each bound and not below the one before."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it), as the exposition has it."""
        total, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class Totals:
    """Counters and histograms by metric and labels."""

    def __init__(self, table: Table) -> None:
        self.counters: dict[str, dict[tuple[str, ...], float]] = {}
        self.spreads: dict[str, dict[tuple[str, ...], Spread]] = {}
        self._table = table

    def spread(self, metric: str, labels: tuple[str, ...]) -> Spread:
        """The series of a histogram, made when it is not there."""
        return self.spreads.setdefault(metric, {}).setdefault(labels, Spread(self._table.metrics[metric].buckets))

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "counters": [[name, *each] for name, counts in self.counters.items() for each in counts.items()],
            "spreads": [
                [name, labels, spread.counts, spread.sum]
                for name, spreads in self.spreads.items()
                for labels, spread in spreads.items()
            ],
        }

    def add(self, snapshot: Mapping[str, Any]) -> None:
        """The counts of another process."""
        for name, labels, value in snapshot["counters"]:
            counts = self.counters.setdefault(name, {})
            counts[tuple(labels)] = counts.get(tuple(labels), 0) + value
        for name, labels, counted, total in snapshot["spreads"]:
            spread = self.spread(name, tuple(labels))
            spread.counts = [mine + more for mine, more in zip(spread.counts, counted, strict=True)]
            spread.sum += total

    def exposition(self, readings: Iterable[Reading] = ()) -> bytes:
        """The text for a scrape: these counts and readings, in Prometheus's text format 0.0.4."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Scrape(self, self._table.metrics, readings))
        return generate_latest(registry)


class _Scrape(Collector):
    """The counts of one moment, in the classes of prometheus_client."""

    def __init__(self, totals: Totals, metrics: Mapping[str, Metric], readings: Iterable[Reading]) -> None:
        self._totals = totals
        self._metrics = metrics
        self._gauges: dict[str, dict[tuple[str, ...], float]] = {}
        for name, value, labels in readings:
            self._gauges.setdefault(name, {})[labels] = value

    def collect(self) -> Iterator[Family]:
        """Each metric of the table that has a value, in the table's order."""
        for name, metric in self._metrics.items():
            if counts := self._totals.counters.get(name):
                counter = CounterMetricFamily(name, metric.meaning, labels=metric.labels)
                for labels, value in counts.items():
                    counter.add_metric(labels, value)
                yield counter
            elif spreads := self._totals.spreads.get(name):
                histogram = HistogramMetricFamily(name, metric.meaning, labels=metric.labels)
                for labels, spread in spreads.items():
                    histogram.add_metric(labels, spread.buckets(), spread.sum)
                yield histogram
            elif values := self._gauges.get(name):
                gauge = GaugeMetricFamily(name, metric.meaning, labels=metric.labels)
                for labels, value in values.items():
                    gauge.add_metric(labels, value)
                yield gauge
