"""source — attempts and archive as a Spark data source: spark.read.format("pillarbox")

Owns: the options, the portions Spark reads in parallel, filters that PostgreSQL answers instead of Spark.
Guarantees: reads only, as any role that may SELECT (pillarbox_analyst). Columns are pruned by the schema that is asked
    for; a filter on the table's instant leaves out whole days. Each portion is one short transaction. A day that is
    dropped in between is an error; with `dropped` = `skip` it is left out, and a line on standard error says so.
Raises: PillarboxError, which Spark wraps; DatabaseUnavailable.
See: pyspark.sql.datasource; docs/explanation/analytics.md.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyspark.sql import datasource

from scripts.analytics.source import copying, portions
from scripts.analytics.source import portion as source_read
from scripts.analytics.source.columns import HISTORIES
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Spark's filters that PostgreSQL can answer, as SQL; text is only compared for equality, whatever the collation.
OPERATORS: Final[dict[type[datasource.Filter], str]] = {
    datasource.EqualTo: "=",
    datasource.GreaterThan: ">",
    datasource.GreaterThanOrEqual: ">=",
    datasource.LessThan: "<",
    datasource.LessThanOrEqual: "<=",
}
_TEXT: Final = "string"
_INSTANT: Final = "timestamp"
#: Read as something else than they are, so a value of ours means nothing to PostgreSQL.
_NOT_PUSHED: Final = frozenset({"metadata", "duration"})

type Condition = tuple[str, str, Any]


def register(spark: SparkSession) -> None:
    """Let this session read the format `pillarbox`, filters pushed down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(HistorySource)


def frame(
    spark: SparkSession,
    conninfo: str,
    table: str,
    columns: Sequence[str] | None = None,
    since: date | None = None,
    until: date | None = None,
) -> DataFrame:
    """The rows of `attempts` or `archive`, of the days from `since` to `until` (both included), with these columns."""
    register(spark)
    reader = spark.read.format("pillarbox").schema(HISTORIES[table].spark(columns))
    options = {"database": conninfo, "table": table, "since": since, "until": until}
    return reader.options(**{key: str(value) for key, value in options.items() if value is not None}).load()


class _Portion(datasource.InputPartition):
    """One portion, as Spark hands it to a Python worker."""


class HistorySource(datasource.DataSource):
    """Options: database (libpq URI), table (attempts, archive), since, until (days), pages, dropped (error, skip)."""

    @classmethod
    def name(cls) -> str:
        """The name after `format`."""
        return "pillarbox"

    def schema(self) -> str:
        """All columns, for who names none."""
        return str(self._history().spark())

    def reader(self, schema: StructType) -> HistoryReader:
        """A reader of the columns of `schema`."""
        history = self._history()
        unknown = [name for name in schema.names if name not in history.kinds]
        if unknown:
            raise PillarboxError(
                f"{history.name} has no column {', '.join(unknown)}; allowed: {', '.join(history.kinds)}"
            )
        return HistoryReader(dict(self.options), schema.names)

    def _history(self) -> Any:
        table = self.options.get("table", "")
        if table not in HISTORIES:
            raise PillarboxError(f'option table: "{table}" is unknown; allowed: {", ".join(HISTORIES)}')
        if "database" not in self.options:
            raise PillarboxError("option database: is missing; allowed: a libpq URI")
        return HISTORIES[table]


class HistoryReader(datasource.DataSourceReader):
    """Plans portions on the driver's side, and reads them in workers."""

    def __init__(self, options: dict[str, str], names: Sequence[str]) -> None:
        self._history = HISTORIES[options["table"]]
        self._conninfo = options["database"]
        self._names = tuple(names)
        self._skip = options.get("dropped", "error") == "skip"
        self._pages = int(options.get("pages", portions.PAGES))
        self._since = _midnight(options.get("since"))
        self._until = _midnight(options.get("until"))
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802 - Spark's name
        """Keep the filters that PostgreSQL answers; give the others back to Spark."""
        with copying.session(self._conninfo) as session:
            there = source_read.columns_there(session, self._history)
        for asked in filters:
            condition = self._condition(asked, there)
            if condition is None:
                yield asked
            else:
                self._conditions.append(condition)

    def partitions(self) -> Sequence[datasource.InputPartition]:
        """The portions of the days that can hold what is asked for."""
        since, until = self._bounds()
        with copying.session(self._conninfo) as session:
            leaves = [portions.Leaf(*row) for row in copying.rows(session, "analytics_days", table=self._history.name)]
        cut = [portion for leaf in portions.within(leaves, since, until) for portion in portions.cut(leaf, self._pages)]
        return [_Portion(replace(portion, conditions=tuple(self._conditions))) for portion in cut]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one portion."""
        if partition.value is None:  # Spark's own stand-in where there is no portion at all
            return
        try:
            table = source_read.read(self._conninfo, self._history, partition.value, self._names)
        except copying.PartitionDropped as gone:
            if not self._skip:
                raise
            sys.stderr.write(f"pillarbox: {gone}; skipped\n")
            return
        yield from source_read.printable(table, self._history).to_batches(max_chunksize=50_000)

    def _bounds(self) -> tuple[datetime | None, datetime | None]:
        instants = [
            (operator, value) for column, operator, value in self._conditions if column == self._history.instant
        ]
        lows = [value for operator, value in instants if operator in {">", ">=", "="}]
        highs = [value for operator, value in instants if operator in {"<", "<=", "="}]
        lows += [self._since] if self._since else []
        highs += [self._until] if self._until else []
        return max(lows, default=None), min(highs, default=None)

    def _condition(self, asked: datasource.Filter, there: frozenset[str]) -> Condition | None:
        """The same condition as SQL; None when Spark has to look itself."""
        path: tuple[str, ...] = getattr(asked, "attribute", ())
        column = ".".join(path)
        if column not in there or column in _NOT_PUSHED:
            return None
        for nothing, operator in ((datasource.IsNull, "IS"), (datasource.IsNotNull, "IS NOT")):
            if isinstance(asked, nothing):
                return column, operator, None
        compared = OPERATORS.get(type(asked))
        value = getattr(asked, "value", None)
        kind = self._history.kinds[column].spark
        wrong = column == "messages__id" and not _is_uuid(value)
        if compared is None or value is None or wrong or (kind == _TEXT and compared != "="):
            return None
        # Spark gives local time without a zone.
        return column, compared, value.astimezone(UTC) if kind == _INSTANT else value


def _is_uuid(value: object) -> bool:
    try:
        return str(UUID(str(value))) == value
    except ValueError:
        return False


def _midnight(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise PillarboxError(f'options since and until: "{text}" is not a day; allowed: YYYY-MM-DD') from None
