"""stream — `pillarbox analytics stream`: counts attempts by minute, seconds after they were recorded

Owns: the streaming query: each attempt once, counted by minute and outcome, written when a count changes.
Guarantees: a minute's figure is written as a whole, so a batch repeated after a crash changes nothing. The query begins
    at a whole minute, so no minute is incomplete. A minute is final LATE after it ends; later attempts are not counted.
    Ctrl-C ends the query at once; with --checkpoint the next start continues there.
Raises: PillarboxError.
See: docs/how-to/report.md; scripts/analytics/source/stream_source.py, on late commits.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from scripts.analytics import terminal
from scripts.output import records
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    type Sink = Callable[[list[dict[str, Any]]], None]

LATE: Final = "10 minutes"
_BACK: Final = timedelta(minutes=10)
#: Folder below --checkpoint: its content depends on the columns that identify attempts; Spark cannot read another form.
_KEPT: Final = "id-token"


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
    terminal.add_spark(verb)
    terminal.add_common(verb, run)


def run(options: argparse.Namespace) -> int:
    """Run until Ctrl-C, or once."""
    from scripts.analytics import session  # noqa: PLC0415 - it loads Spark
    from scripts.analytics.spark_errors import understood  # noqa: PLC0415

    conninfo = terminal.conninfo(options)
    sink = _printed if options.console or options.json else stored(conninfo)
    since = (datetime.now(UTC) - _BACK).replace(second=0, microsecond=0)
    with TemporaryDirectory(prefix="pillarbox-stream-") as scratch:
        checkpoint = options.checkpoint or Path(scratch)
        with session.started(options.master, options.memory) as spark, understood():
            query = start(spark, conninfo, since, sink, checkpoint, every=options.every)
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
    since: datetime,
    sink: Sink,
    checkpoint: Path,
    *,
    every: float = 5,
    reread: float = 10,
) -> StreamingQuery:
    """The running query: it counts attempts since a whole minute and passes changed figures to `sink`."""
    from scripts.analytics.source.stream_source import NAME, AttemptsStream  # noqa: PLC0415 - it loads Spark

    spark.dataSource.register(AttemptsStream)
    options = {"database": conninfo, "since": since.isoformat(), "reread": str(reread)}
    attempts = spark.readStream.format(NAME).options(**options).load()

    def write(batch: DataFrame, _number: int) -> None:
        rows = [row.asDict() for row in batch.collect()]
        if rows:
            sink([row | {"minute": row["minute"].astimezone(UTC).isoformat()} for row in rows])

    writer = minutes(attempts).writeStream.outputMode("update").foreachBatch(write)
    return (
        writer.option("checkpointLocation", str(checkpoint / _KEPT))
        .trigger(processingTime=how_many(every, "second"))
        .start()
    )


def minutes(attempts: DataFrame) -> DataFrame:
    """Rows: minute, outcome, attempts, seconds; an attempt that is read again counts once."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - it loads Spark

    once = attempts.withWatermark("ts", LATE).dropDuplicatesWithinWatermark(["id", "token"])
    counted = once.groupBy(f.window("ts", "1 minute").alias("span"), "outcome").agg(
        f.count("*").alias("attempts"),
        f.coalesce(f.sum(f.greatest("seconds", f.lit(0.0))), f.lit(0.0)).alias("seconds"),
    )
    return counted.select(f.col("span.start").alias("minute"), "outcome", "attempts", "seconds")


def stored(conninfo: str) -> Sink:
    """A sink that writes the table report_minutes."""

    def write(figures: list[dict[str, Any]]) -> None:
        from scripts.analytics.source import copying  # noqa: PLC0415 - it loads Arrow

        with copying.session(conninfo, read_only=False) as session:
            copying.rows(session, "report_minutes_store", figures=json.dumps(figures))

    return write


def _printed(figures: list[dict[str, Any]]) -> None:
    for figure in sorted(figures, key=lambda figure: (figure["minute"], figure["outcome"])):
        records.one(figure)
