"""stream_source — streams new attempts for Structured Streaming: format("pillarbox_attempts")

Owns: offsets, the ranges that are read again, and the columns of the stream.
Guarantees: every attempt whose transaction commits within OVERLAP ids, or a `reread`, of the newest arrives at least
    once; most arrive several times, so the reader must drop duplicates (by id and token). Each batch is one short index
    scan.
Raises: DatabaseUnavailable, which Spark wraps: the query ends, and continues at its offset when it is restarted.
Bugs: an attempt that commits later is not in the stream; the next report has it.
See: PostgreSQL manual, CREATE SEQUENCE, "Notes": ids are assigned before the commit, so a lower one may become visible
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
#: Ids below the newest that are read again: the results that all workers record in a few seconds.
OVERLAP: Final = 20_000

type Offset = dict[str, int | str]


class Portion(datasource.InputPartition):
    """Ids above `after` up to `upto`."""

    def __init__(self, after: int, upto: int) -> None:
        super().__init__((after, upto))


class AttemptsStream(datasource.DataSource):
    """Options: database (libpq URI), since (an instant in ISO 8601), reread (seconds, 10), overlap (ids)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> str:
        """id, token, ts, outcome and seconds."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> AttemptsReader:  # noqa: N802, ARG002 - Spark's own
        """A reader of new attempts."""
        options = dict(self.options)
        for key in ("database", "since"):
            if key not in options:
                raise PillarboxError(f"option {key} is missing")
        return AttemptsReader(
            options["database"],
            datetime.fromisoformat(options["since"]),
            int(options.get("overlap", OVERLAP)),
            float(options.get("reread", "10")),
        )


class AttemptsReader(datasource.DataSourceStreamReader):
    """Reads by id, from a little below the last offset.

    An offset is the newest id seen, the timeline of the server that assigned it, and the number of the current stretch
    of `reread` seconds. Each stretch has a batch, even without new attempts, which picks up late commits. On another
    timeline ids are assigned again, so everything is read from the first one.
    """

    def __init__(self, conninfo: str, since: datetime, overlap: int, reread: float) -> None:
        self._conninfo = conninfo
        self._since = since
        self._overlap = overlap
        self._reread = reread

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The offset before the first attempt."""
        return {"after": 0, "stretch": 0, "timeline": ""}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802, ARG002
        """The offset of the newest attempt."""
        with copying.session(self._conninfo) as session:
            [server] = copying.rows(session, "server_timeline")
            known = str(start.get("timeline") or "") if start else ""
            timeline = server.timeline or known
            after = int(start["after"]) if start and known in {"", timeline} else 0
            [row] = copying.rows(session, "stream_newest", since=self._since, after=after)
        return {"after": max(after, row.seen), "stretch": int(time() // self._reread), "timeline": timeline}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Portion]:
        """One portion, with the overlap; the first of a stream or of another timeline starts at 0."""
        same = start.get("timeline") in {None, "", end.get("timeline")}
        return [Portion(max(0, int(start["after"]) - self._overlap) if same else 0, int(end["after"]))]

    def read(self, partition: datasource.InputPartition) -> Iterator[tuple[Any, ...]]:
        """The attempts of a portion; the transaction ends before the first is returned."""
        after, upto = partition.value
        with copying.session(self._conninfo) as session:
            found = copying.rows(session, "stream_attempts", since=self._since, after=after, upto=upto)
        return iter([tuple(row) for row in found])

    def commit(self, end: Offset) -> None:
        """Do nothing: no state is kept here."""

    def stop(self) -> None:
        """Do nothing: no connection is open between batches."""
