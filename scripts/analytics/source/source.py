"""source — attempts and archive as a Spark data source: spark.read.format("pillarbox")

Owns: the options, the portions that Spark reads in parallel, and the filters pushed down to PostgreSQL.
Guarantees: read-only; any role that may SELECT suffices (pillarbox_analyst). Only the columns of the schema are read; a
    filter on the table's instant skips whole days. Each portion is one short transaction. A day dropped meanwhile is an
    error; with `dropped` = `skip` it is skipped, with a line on standard error.
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

from scripts.analytics.source import copying, portion, portions, quarantine
from scripts.analytics.source.columns import HISTORIES
from shared.errors import PillarboxError
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Spark's filters that PostgreSQL can apply, as SQL; text is only compared for equality, because collations differ.
OPERATORS: Final[dict[type[datasource.Filter], str]] = {
    datasource.EqualTo: "=",
    datasource.GreaterThan: ">",
    datasource.GreaterThanOrEqual: ">=",
    datasource.LessThan: "<",
    datasource.LessThanOrEqual: "<=",
}
_TEXT: Final = "string"
_INSTANT: Final = "timestamp"
#: Columns with another type in Spark than in PostgreSQL, so Spark's values cannot be compared there.
_NOT_PUSHED: Final = frozenset({"metadata", "duration"})

type Condition = tuple[str, str, Any]


def register(spark: SparkSession) -> None:
    """Register the format `pillarbox` with this session, with filters pushed down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(HistorySource)


def frame(
    spark: SparkSession,
    conninfo: str,
    table: str,
    columns: Sequence[str] | None = None,
    since: date | None = None,
    until: date | None = None,
    *,
    kept: bool = False,
) -> DataFrame:
    """The rows of `attempts` or `archive`, of the days from `since` to `until` (both included), with these columns.

    kept: only those that an export does not put into quarantine.
    """
    register(spark)
    reader = spark.read.format("pillarbox").schema(HISTORIES[table].spark(columns))
    options = {"database": conninfo, "table": table, "since": since, "until": until}
    options["rows"] = "kept" if kept else "all"
    return reader.options(**{key: str(value) for key, value in options.items() if value is not None}).load()


class _Portion(datasource.InputPartition):
    """One portion, in the form that Spark sends to a Python worker."""


class HistorySource(datasource.DataSource):
    """Options: database (libpq URI), table, since, until (days), pages, dropped (error, skip), rows (all, kept).

    rows: kept are those that an export does not put into quarantine.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "pillarbox"

    def schema(self) -> str:
        """All columns, the default."""
        return str(self._history().spark())

    def reader(self, schema: StructType) -> HistoryReader:
        """A reader of the columns of `schema`."""
        history = self._history()
        unknown = [name for name in schema.names if name not in history.kinds]
        if unknown:
            raise PillarboxError(
                f"{history.name}: column {', '.join(unknown)} does not exist; allowed: {', '.join(history.kinds)}"
            )
        return HistoryReader(dict(self.options), schema.names)

    def _history(self) -> Any:
        table = self.options.get("table", "")
        if table not in HISTORIES:
            raise PillarboxError(f"option table: {show(table)} is unknown; allowed: {', '.join(HISTORIES)}")
        if "database" not in self.options:
            raise PillarboxError("option database is missing; allowed: a libpq URI")
        return HISTORIES[table]


class HistoryReader(datasource.DataSourceReader):
    """Plans portions in the driver, and reads them in workers."""

    def __init__(self, options: dict[str, str], names: Sequence[str]) -> None:
        self._history = HISTORIES[options["table"]]
        self._conninfo = options["database"]
        self._names = tuple(names)
        self._skip = options.get("dropped", "error") == "skip"
        self._kept = options.get("rows") == "kept"
        self._pages = int(options.get("pages", portions.PAGES))
        self._since = _midnight(options.get("since"))
        self._until = _midnight(options.get("until"))
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802 - Spark's name
        """Keep the filters that PostgreSQL can apply; return the others to Spark."""
        with copying.session(self._conninfo) as session:
            there = portion.columns_there(session, self._history)
        for asked in filters:
            condition = self._condition(asked, there)
            if condition is None:
                yield asked
            else:
                self._conditions.append(condition)

    def partitions(self) -> Sequence[datasource.InputPartition]:
        """The portions of the days that can match the filters."""
        since, until = self._bounds()
        with copying.session(self._conninfo) as session:
            leaves = [portions.Leaf(*row) for row in copying.rows(session, "analytics_days", table=self._history.name)]
        cut = [each for leaf in portions.within(leaves, since, until) for each in portions.cut(leaf, self._pages)]
        return [_Portion(replace(each, conditions=tuple(self._conditions))) for each in cut]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one portion."""
        if partition.value is None:  # Spark's placeholder if there is no portion
            return
        try:
            table = portion.read(self._conninfo, self._history, partition.value, self._names)
        except copying.PartitionDropped as gone:
            if not self._skip:
                raise
            sys.stderr.write(f"pillarbox: {gone}; skipped\n")
            return
        if self._kept:
            table, _ = quarantine.divide(table, self._history)
        yield from portion.printable(table, self._history).to_batches(max_chunksize=50_000)

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
        """The filter as SQL; None if Spark must apply it."""
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
        # Spark passes local time without a zone.
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
        raise PillarboxError(f"options since and until: {show(text)} is not a day; allowed: YYYY-MM-DD") from None
