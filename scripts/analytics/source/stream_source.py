"""stream_source — new attempts as they are recorded, for Structured Streaming: format("pillarbox_attempts")

Owns: offsets, the ranges that are read again, and the columns of the stream.
Guarantees: every attempt whose transaction commits within OVERLAP ids, or a `reread`, of the newest comes at least
    once; most come several times, so the reader must drop duplicates (by id and token). One short read a
    batch, by an index.
Raises: DatabaseUnavailable, which Spark wraps: the query ends, and goes on at its offset when it is started again.
Bugs: an attempt that commits later than that is not in the stream; the next report has it.
See: PostgreSQL manual, CREATE SEQUENCE, "Notes": ids are given before the commit, so a lower one may become visible
    later.
"""

from __future__ import annotations

from datetime import datetime
from time import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource

from scripts.analytics.source import copying
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

NAME: Final = "pillarbox_attempts"
SCHEMA: Final = "id bigint, token bigint, ts timestamp, outcome string, seconds double"
#: Ids below the newest that are read again: the results that all workers together record in some seconds.
OVERLAP: Final = 20_000

type Offset = dict[str, int | str]


class Portion(datasource.InputPartition):
    """Ids above the first and up to the second number."""

    def __init__(self, after: int, upto: int) -> None:
        super().__init__((after, upto))


class AttemptsStream(datasource.DataSource):
    """Options: database (libpq URI), since (an instant in ISO 8601), reread (seconds, 10), overlap (ids)."""

    @classmethod
    def name(cls) -> str:
        """The name after `format`."""
        return NAME

    def schema(self) -> str:
        """id, token, ts, outcome and seconds."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> AttemptsReader:  # noqa: N802, ARG002 - Spark's own
        """A reader of what is new."""
        options = dict(self.options)
        for key in ("database", "since"):
            if key not in options:
                raise PillarboxError(f"option {key}: is missing")
        return AttemptsReader(
            options["database"],
            datetime.fromisoformat(options["since"]),
            int(options.get("overlap", OVERLAP)),
            float(options.get("reread", "10")),
        )


class AttemptsReader(datasource.DataSourceStreamReader):
    """Reads by id, from a little below where it was.

    An offset is the newest id seen, the timeline of the server that gave it, and the number of the current stretch of
    `reread` seconds: with each stretch there is a batch, though nothing new may be there, and in it comes what was
    committed late. On another timeline ids are given again, so everything is read from the first one.
    """

    def __init__(self, conninfo: str, since: datetime, overlap: int, reread: float) -> None:
        self._conninfo = conninfo
        self._since = since
        self._overlap = overlap
        self._reread = reread

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Before everything."""
        return {"after": 0, "stretch": 0, "timeline": ""}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802, ARG002
        """The newest attempt there is."""
        with copying.session(self._conninfo) as session:
            [server] = copying.rows(session, "server_timeline")
            known = str(start.get("timeline") or "") if start else ""
            timeline = server.timeline or known
            after = int(start["after"]) if start and known in {"", timeline} else 0
            [row] = copying.rows(session, "stream_newest", since=self._since, after=after)
        return {"after": max(after, row.seen), "stretch": int(time() // self._reread), "timeline": timeline}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Portion]:
        """One portion; the first one has nothing below it, nor has the first of another timeline."""
        same = start.get("timeline") in {None, "", end.get("timeline")}
        return [Portion(max(0, int(start["after"]) - self._overlap) if same else 0, int(end["after"]))]

    def read(self, partition: datasource.InputPartition) -> Iterator[tuple[Any, ...]]:
        """The attempts of a portion; the transaction is over before the first is handed on."""
        after, upto = partition.value
        with copying.session(self._conninfo) as session:
            found = copying.rows(session, "stream_attempts", since=self._since, after=after, upto=upto)
        return iter([tuple(row) for row in found])

    def commit(self, end: Offset) -> None:
        """Nothing is kept here."""

    def stop(self) -> None:
        """Nothing is open between batches."""
