"""stream_source — streams new attempts for Structured Streaming: format("pillarbox_attempts")

Owns: offsets, which are snapshots of PostgreSQL, and the columns of the stream.
Guarantees: each attempt is in exactly one batch, however late its transaction commits: in the first whose snapshot sees
    it. A batch that is read again has the same attempts. A batch is one short transaction, over at most _SPAN
    transactions of history. Only new attempts make a batch.
Raises: DatabaseUnavailable, PillarboxError for another server or timeline, where snapshots mean something else; Spark
    wraps both: the query ends, and continues at its offset when it is restarted.
Bugs: a transaction that was open for more than _OPEN when it committed is not looked for.
See: sql/README.md, "Figures by the minute"; sql/schema/22_webhook.sql, webhook_next.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource

from scripts.analytics.source import copying, portion
from scripts.analytics.source.columns import ATTEMPTS
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME: Final = "pillarbox_attempts"
COLUMNS: Final = ("ts", "outcome", "duration")
#: A snapshot that sees nothing: the first transaction of a server is 3.
_NOTHING: Final = "3:3:"
_OPEN: Final = timedelta(days=1)
_SPAN: Final = 20_000

type Offset = dict[str, str]


class Portion(datasource.InputPartition):
    """What the snapshot `upto`, taken `at`, sees and `after` does not, from the instant `since` on."""

    def __init__(self, since: str, after: str, upto: str, at: str) -> None:
        super().__init__((since, after, upto, at))


class AttemptsStream(datasource.DataSource):
    """Options: database (libpq URI), since (an instant in ISO 8601), timeline (of the server; empty: any)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> str:
        """The columns ts, outcome and duration, in seconds."""
        return ATTEMPTS.spark(COLUMNS)

    def streamReader(self, schema: StructType) -> AttemptsReader:  # noqa: N802, ARG002 - Spark's own
        """A reader of new attempts."""
        options = dict(self.options)
        for key in ("database", "since"):
            if key not in options:
                raise PillarboxError(f"option {key} is missing")
        since = datetime.fromisoformat(options["since"])
        return AttemptsReader(options["database"], since, options.get("timeline", ""))


class AttemptsReader(datasource.DataSourceStreamReader):
    """Reads what is new between two snapshots. An offset is a snapshot and the time when it was taken."""

    def __init__(self, conninfo: str, since: datetime, timeline: str = "") -> None:
        self._conninfo = conninfo
        self._since = since
        self._timeline = timeline
        #: The offset that was asked about last, and a later one without attempts in between: looked through already.
        self._quiet: tuple[Offset, Offset] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The offset before the first attempt."""
        return {"snapshot": _NOTHING, "at": self._since.isoformat()}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802, ARG002
        """The next offset; `start` if no attempt is new."""
        start = start or self.initialOffset()
        found = self._quiet[1] if self._quiet and self._quiet[0] == start else start
        with copying.session(self._conninfo) as session:
            self._same_server(session)
            while True:
                after, first = found["snapshot"], found["snapshot"] == _NOTHING
                values = {"since": self._from(found), "after": after, "span": None if first else _SPAN}
                [row] = copying.rows(session, "stream_next", **values)
                found = {"snapshot": row.upto, "at": row.at.isoformat()}
                if row.news or first:
                    return found
                if row.last:
                    self._quiet = start, found
                    return start

    def partitions(self, start: Offset, end: Offset) -> Sequence[Portion]:
        """One portion."""
        return [Portion(self._from(start).isoformat(), start["snapshot"], end["snapshot"], end["at"])]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """The attempts of a portion; the transaction ends before the first is returned."""
        since, after, upto, at = partition.value
        with copying.session(self._conninfo) as session:
            self._same_server(session)
            text = copying.copy_new(session, since=since, after=after, upto=upto, at=at)
        return iter(portion.parse(text, ATTEMPTS, COLUMNS).to_batches())

    def commit(self, end: Offset) -> None:
        """Do nothing: no state is kept here."""

    def stop(self) -> None:
        """Do nothing: no connection is open between batches."""

    def _from(self, offset: Offset) -> datetime:
        """The instant from which attempts may be new after an offset, so that PostgreSQL opens few days."""
        return max(self._since, datetime.fromisoformat(offset["at"]) - _OPEN)

    def _same_server(self, session: copying.Session) -> None:
        [server] = copying.rows(session, "server_timeline")
        if self._timeline and server.timeline and server.timeline != self._timeline:
            raise PillarboxError(
                f"the server is another, or a standby that was promoted: its timeline is {server.timeline}, the stream "
                f"follows {self._timeline}; start the stream again, and it counts from its last minutes"
            )
