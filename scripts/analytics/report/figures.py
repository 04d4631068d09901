"""figures — runs every analysis of one period on the small tables counted from history

Owns: the input table of each analysis; the order of the analyses.
Guarantees: no row of history is read here, so the time does not depend on the number of rows. The memory is always
    released at the end. Progress is reported after each section.
Raises: PillarboxError with the first line of Spark's error.
See: scripts/analytics/report/counting.py, the tables.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from scripts.analytics.analyses.alarms import alarms
from scripts.analytics.analyses.capacity import capacity
from scripts.analytics.analyses.deliverability import deliverability
from scripts.analytics.analyses.encryption import encryption, in_the_clear
from scripts.analytics.analyses.quarantine import quarantine
from scripts.analytics.analyses.soundness import soundness
from scripts.analytics.analyses.steps import steps
from scripts.analytics.analyses.suppression import suppression
from scripts.analytics.analyses.throttling import throttling
from scripts.analytics.analyses.trends import reputation, warmup
from scripts.analytics.analyses.volume import forecast, usual
from scripts.analytics.analyses.waiting import waiting
from scripts.analytics.analyses.weights import weights
from scripts.analytics.analyses.wordings import wordings
from scripts.analytics.session import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

#: Rows of one section, each a mapping from column to value.
type Rows = list[dict[str, Any]]

#: Sections that are never cut, because a chart with gaps would mislead.
WHOLE: Final = frozenset({"volume", "forecast", "steps", "weights", "alarms", "capacity", "soundness"})
#: Sections that others begin with.
_SHARED: Final = ("volume", "wordings")
#: Concurrent queries: Spark plans one while it computes another.
_AT_ONCE: Final = 3


def planned(given: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Each section's lazy frame by its key; nothing is read."""
    volume, said = usual(given["hours"]), wordings(given["replies"])
    return {
        "destinations": deliverability(given["destinations"], "recipientdomain"),
        "senders": deliverability(given["senders"], "senderdomain"),
        "transports": deliverability(given["tries"], "transportid"),
        "sources": deliverability(given["tries"], "source"),
        "campaigns": deliverability(given["campaigns"], "jobid"),
        "providers": deliverability(given["days"], "provider"),
        "queue_time": waiting(given["waits"]),
        "delivery_time": waiting(given["delivered"], "recipientdomain"),
        "transport_time": waiting(given["waits"], "transportid", "success"),
        "steps": steps(given["tries"]),
        "wordings": said,
        "throttling": throttling(given["paces"]),
        "suppression": suppression(given["refusals"]),
        "encryption": encryption(given["destinations"]),
        "in_the_clear": in_the_clear(given["destinations"]),
        "weights": weights(given["tries"]),
        "quarantine": quarantine(given["held"]),
        "volume": volume,
        "unusual": volume.where(f.col("unusual")).orderBy(f.desc(f.abs("score"))),
        "forecast": forecast(volume),
        "reputation": reputation(given["days"]),
        "warmup": warmup(given["days"]),
        "alarms": alarms(given["days"], volume),
        "capacity": capacity(given["sizes"]),
        "soundness": soundness(given["tries"], given["destinations"], given["waits"], volume, said),
    }


def compute(
    spark: SparkSession, frames: Mapping[str, DataFrame], top: int, on_section: Callable[[str], object] = lambda _: None
) -> dict[str, Rows]:
    """The rows of every section; outside WHOLE at most `top` + 1, so that the caller sees whether there are more.

    on_section: is called with each section's key when its rows are ready.
    """

    def collect(entry: tuple[str, DataFrame]) -> tuple[str, Rows]:
        key, frame = entry
        rows = (frame if key in WHOLE else frame.limit(top + 1)).collect()
        on_section(key)
        return key, [row.asDict() for row in rows]

    with _set(spark, SMALL), _held([frames[key] for key in _SHARED]), ThreadPoolExecutor(_AT_ONCE) as asking:
        return dict(asking.map(collect, frames.items()))


@contextmanager
def _held(frames: Sequence[DataFrame]) -> Iterator[None]:
    """Keep these in memory for the block."""
    try:
        for frame in frames:
            frame.persist()
        yield
    finally:
        for frame in frames:
            frame.unpersist()


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply these settings for the block."""
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is not None:
                spark.conf.set(key, old)
