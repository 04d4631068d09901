"""stream — `pillarbox analytics stream`: counts attempts by minute, seconds after they were recorded

Owns: the streaming query: each attempt once, counted by minute and outcome, written when a count changes; its place
    below --checkpoint; and the sink that writes the table report_minutes.
Guarantees: each attempt is counted exactly once, however often the driver is killed and started again with the same
    --checkpoint: a batch has the attempts between two snapshots of PostgreSQL, a figure is written as a whole, and a
    batch is written in one transaction that says which batch it is. The query begins at a whole minute, so no minute is
    incomplete. A minute is final LATE after it ends; later attempts are not counted. Ctrl-C ends the query at once.
Raises: PillarboxError.
See: docs/how-to/observe/report.md; sql/README.md, "Figures by the minute", the crash table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from scripts import one_connection
from scripts.analytics import terminal
from scripts.output import records
from scripts.replace_file import replace
from shared.errors import PillarboxError, cause
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    type Sink = Callable[["Batch"], None]

LATE: Final = "10 minutes"
#: A minute's attempts are few, and they are counted beside mail.
_MASTER: Final = "local[1]"
#: Files of a stream in its folder: the instant it began with, and Spark's own.
_BEGAN, _SPARK = "since", "spark"


@dataclass(frozen=True, slots=True)
class Batch:
    """Figures that changed: minute (ISO 8601), outcome, attempts, seconds; and the place of the batch in its stream."""

    stream: str
    number: int
    since: datetime
    figures: list[dict[str, Any]]


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `stream`."""
    verb = verbs.add_parser("stream", help="count attempts by minute as they happen, in the table report_minutes")
    verb.add_argument("--console", action="store_true", help="print the counts instead of writing the table")
    verb.add_argument("--once", action="store_true", help="process the present attempts, then end")
    verb.add_argument(
        "--every", type=terminal.count, default=5, metavar="N", help="seconds between batches (default 5)"
    )
    verb.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="folder that keeps the position for the next start"
    )
    terminal.add_spark(verb, _MASTER)
    terminal.add_common(verb, run)


def run(options: argparse.Namespace) -> int:
    """Run until Ctrl-C, or once."""
    from scripts.analytics import session  # noqa: PLC0415 - it loads Spark
    from scripts.analytics.spark_errors import understood  # noqa: PLC0415

    conninfo = one_connection.chosen(options)
    sink = _printed if options.console or options.json else stored(conninfo)
    with TemporaryDirectory(prefix="pillarbox-stream-") as scratch:
        checkpoint = options.checkpoint or Path(scratch)
        with session.started(options.master, options.memory, awaited=True) as spark, understood():
            query = start(spark, conninfo, sink, checkpoint, every=options.every)
            try:
                if options.once:
                    query.processAllAvailable()
                else:
                    query.awaitTermination()
            finally:
                query.stop()
    return 0


def start(
    spark: SparkSession,
    conninfo: str,
    sink: Sink,
    checkpoint: Path,
    *,
    every: float = 5,
    at: Callable[[str], None] = lambda _: None,
) -> StreamingQuery:
    """The running query, which passes changed figures to `sink`. `at` is called with each step's name before the step.

    It goes on where the folder `checkpoint` says, if the server is still the same; else it begins at a whole minute,
    ten minutes before the newest one that is counted.
    """
    from scripts.analytics.source import copying  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.source.stream_source import NAME, AttemptsStream  # noqa: PLC0415 - it loads Spark

    with copying.session(conninfo) as session:
        [server] = copying.rows(session, "server_timeline")
        [begin] = copying.rows(session, "stream_since")
    timeline = server.timeline or ""
    folder = checkpoint / (timeline.replace("/", "-") or "replica")
    since = _began(folder, begin.since)
    place = folder / _SPARK
    spark.dataSource.register(AttemptsStream)
    options = {"database": conninfo, "since": since.isoformat(), "timeline": timeline}
    attempts = spark.readStream.format(NAME).options(**options).load()

    def write(changed: DataFrame, number: int) -> None:
        at("count")
        figures = [row.asDict() for row in changed.collect()]
        figures = [row | {"minute": row["minute"].astimezone(UTC).isoformat()} for row in figures]
        at("store")
        if figures or not number:
            stream = json.loads((place / "metadata").read_text(encoding="utf-8"))["id"]
            sink(Batch(stream, number, since, figures))
        at("stored")

    writer = minutes(attempts).writeStream.outputMode("update").foreachBatch(write)
    return writer.option("checkpointLocation", str(place)).trigger(processingTime=how_many(every, "second")).start()


def minutes(attempts: DataFrame) -> DataFrame:
    """Rows: minute, outcome, attempts, seconds."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - it loads Spark

    counted = (
        attempts.withWatermark("ts", LATE)
        .groupBy(f.window("ts", "1 minute").alias("span"), "outcome")
        .agg(
            f.count("*").alias("attempts"),
            f.coalesce(f.sum(f.greatest("duration", f.lit(0.0))), f.lit(0.0)).alias("seconds"),
        )
    )
    return counted.select(f.col("span.start").alias("minute"), "outcome", "attempts", "seconds")


def stored(conninfo: str, at: Callable[[str], None] = lambda _: None) -> Sink:
    """A sink that writes the table report_minutes. A batch that comes again changes nothing.

    It raises PillarboxError for a batch before the last one: another driver has gone on since, or the checkpoint is an
    old copy.
    """

    def write(batch: Batch) -> None:
        from scripts.analytics.source import copying  # noqa: PLC0415 - it loads Arrow

        with copying.session(conninfo, read_only=False) as session, session.transaction():
            turn = copying.rows(session, "report_minutes_batch", stream=batch.stream, batch=batch.number)
            if not turn:
                raise PillarboxError(
                    f"batch {batch.number} comes after later ones: another stream has the same checkpoint, or this is "
                    "an old copy of it; end the other stream, or begin with a new folder"
                )
            if not turn[0].stored:
                if not batch.number:
                    copying.execute(session, "report_minutes_begin", since=batch.since)
                copying.rows(session, "report_minutes_store", figures=json.dumps(batch.figures))
            at("commit")

    return write


def _began(folder: Path, since: datetime) -> datetime:
    """The instant that this stream began with, kept in its folder; `since` if it is new."""
    kept = folder / _BEGAN
    try:
        return datetime.fromisoformat(kept.read_text(encoding="ascii")).astimezone(UTC)  # also where edited by hand
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise PillarboxError(f"--checkpoint: {kept} cannot be read: {cause(error)}") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace(kept, since.isoformat())
    except OSError as error:
        raise PillarboxError(f"--checkpoint: {folder} cannot be written: {error.strerror}") from None
    return since


def _printed(batch: Batch) -> None:
    for figure in sorted(batch.figures, key=lambda figure: (figure["minute"], figure["outcome"])):
        records.one(figure)
