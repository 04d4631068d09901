"""figures — every analysis over one period, in as few passes over history as they need

Owns: which analysis reads what; the rollups kept in memory meanwhile; the order in which they run; errors in our
    words.
Called by: scripts.analytics.report; its benchmark; tests.
Guarantees: `attempts` is read four times (tries, senders, hours, wordings), each time only the columns that are
    needed; `archive` three times, twice of them filtered. What was kept in memory is let go at the end, whatever
    happens. Progress is told after each section.
Raises: PillarboxError for Parquet that is damaged, missing or without our columns, naming the file where Spark does.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from scripts.analytics.analyses import rollup
from scripts.analytics.analyses.deliverability import deliverability
from scripts.analytics.analyses.encryption import encryption, in_the_clear
from scripts.analytics.analyses.quarantine import quarantine
from scripts.analytics.analyses.soundness import soundness
from scripts.analytics.analyses.steps import steps
from scripts.analytics.analyses.suppression import suppression
from scripts.analytics.analyses.throttling import throttling
from scripts.analytics.analyses.volume import forecast, usual
from scripts.analytics.analyses.waiting import waiting
from scripts.analytics.analyses.weights import weights
from scripts.analytics.analyses.wordings import wordings
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

#: Rows of one section, each a mapping from column to value.
type Rows = list[dict[str, Any]]

#: The columns that all analyses together need; nothing else is read.
ATTEMPTS_COLUMNS: Final = (
    "ts", "retry_count", "partid", "transportid", "senderdomain", "recipientdomain", "outcome", "reply_code",
    "reply_enhanced", "reply_text", "duration", "tls", "source",
)  # fmt: skip
ARCHIVE_COLUMNS: Final = (
    "finished", "result", "ts", "recipientlocalpart", "recipientdomain", "metadata", "transportid", "last_error",
)  # fmt: skip

#: Sections that are whole, however many rows they have: a chart with gaps says something else.
WHOLE: Final = frozenset({"volume", "forecast", "steps", "weights", "soundness"})
#: Questions asked of Spark at the same time: one plans while another computes.
_AT_ONCE: Final = 3
_FILE: Final = re.compile(r"(?:file:(?://)?)?(/[^\s,'\"\]]+\.parquet)")
_UNREADABLE: Final = ("is not a Parquet file", "CANNOT_READ", "FAILED_READ_FILE", "Could not read footer")


@dataclass(frozen=True, slots=True)
class History:
    """The rows of one period: `attempts` by ts, `archive` by finished."""

    attempts: DataFrame
    archive: DataFrame


@contextmanager
def prepared(history: History) -> Iterator[dict[str, DataFrame]]:
    """Each section's frame by its key, lazily; the rollups are in memory as long as the block."""
    kept = [
        frame.persist()
        for frame in (rollup.tries(history.attempts), rollup.hours(history.attempts), rollup.waits(history.archive))
    ]
    tries, hours, waits = kept
    senders = rollup.senders(history.attempts)
    volume = usual(hours).persist()
    said = wordings(history.attempts).persist()
    try:
        yield {
            "destinations": deliverability(tries, "recipientdomain"),
            "senders": deliverability(senders, "senderdomain"),
            "transports": deliverability(tries, "transportid"),
            "sources": deliverability(tries, "source"),
            "queue_time": waiting(waits),
            "delivery_time": waiting(waits, "recipientdomain", "success"),
            "transport_time": waiting(waits, "transportid", "success"),
            "steps": steps(tries),
            "wordings": said,
            "throttling": throttling(hours),
            "suppression": suppression(history.archive),
            "encryption": encryption(tries),
            "in_the_clear": in_the_clear(tries),
            "weights": weights(tries),
            "quarantine": quarantine(history.archive),
            "volume": volume,
            "unusual": volume.where(f.col("unusual")).orderBy(f.desc(f.abs("score"))),
            "forecast": forecast(volume),
            "soundness": soundness(tries, waits, volume, said),
        }
    finally:
        for frame in (*kept, volume, said):
            frame.unpersist()


def compute(history: History, top: int, told: Callable[[str], object] = lambda _: None) -> dict[str, Rows]:
    """The rows of every section; of those not in WHOLE the first `top` and one more, if there are more.

    told: is called with each section's key when its rows are there.
    """

    def collect(entry: tuple[str, DataFrame]) -> tuple[str, Rows]:
        key, frame = entry
        rows = (frame if key in WHOLE else frame.limit(top + 1)).collect()
        told(key)
        return key, [row.asDict() for row in rows]

    with understood(), prepared(history) as frames, ThreadPoolExecutor(_AT_ONCE) as asking:
        return dict(asking.map(collect, frames.items()))


@contextmanager
def understood() -> Iterator[None]:
    """Errors of Spark about what it read, in one line."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise PillarboxError(explained(str(error))) from None


def explained(said: str) -> str:
    """One line for what Spark said about a file or a column; its first line for everything else."""
    found = _FILE.search(said)
    name = found[1] if found else "the history"
    if any(word in said for word in _UNREADABLE):
        if "FILE_NOT_EXIST" in said or "does not exist" in said:
            return f"{name} went away while it was read; nothing was reported; run it again"
        return f"{name} is damaged and cannot be read; nothing was reported; export its day again"
    if "PATH_NOT_FOUND" in said:
        return f"{name}: not there; allowed: a lake written by `pillarbox analytics export`"
    if "UNRESOLVED_COLUMN" in said:
        return f"history lacks a column: {_first(said)}"
    return f"Spark: {_first(said)}"


def _first(said: str) -> str:
    return " ".join(said.strip().split("\n", 1)[0].split())[:300]
