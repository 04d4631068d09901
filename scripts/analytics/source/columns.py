"""columns — the columns of attempts, archive and audit in Arrow, Spark and COPY

Owns: one table of names and kinds, the source of every schema and list of columns here.
Guarantees: an interval is a double, in seconds; a uuid and jsonb are text; instants are microseconds in UTC. A column
    missing in a database or an older file reads as NULL (`optional`). Every type exists in Iceberg.
See: sql/schema/05_history.sql, 17_audit.sql.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Increase it when a column is added; a lake may hold files of several versions.
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Kind:
    """A column's expression in PostgreSQL, and its type in Arrow and in Spark."""

    select: str
    arrow: pa.DataType
    spark: str


_BIG = Kind("{0}", pa.int64(), "bigint")
_INT = Kind("{0}", pa.int32(), "int")
_TRUTH = Kind("{0}", pa.bool_(), "boolean")
_TEXT = Kind("{0}", pa.string(), "string")
_INSTANT = Kind("{0}", pa.timestamp("us", "UTC"), "timestamp")
_SPAN = Kind("date_part('epoch', {0})", pa.float64(), "double")  # float8: numeric arithmetic costs four times as much


@dataclass(frozen=True, slots=True)
class History:
    """One of the tables: its name, the column that tells a row's day, and its columns in order.

    sizes: numbers that are summed to compare a day; marks: columns of which it is summed whether they are set.
    mutable: its rows may still change, or be deleted by retention, after their day.
    """

    name: str
    instant: str
    kinds: dict[str, Kind]
    optional: frozenset[str] = frozenset()
    sizes: tuple[str, ...] = ("size",)
    marks: tuple[str, ...] = ()
    mutable: bool = False

    def arrow(self, names: Sequence[str] | None = None) -> pa.Schema:
        """The Arrow schema of these columns, or of all."""
        return pa.schema([(name, self.kinds[name].arrow) for name in names or self.kinds])

    def spark(self, names: Sequence[str] | None = None) -> str:
        """The Spark schema of these columns, or of all, as DDL."""
        return ", ".join(f"{name} {self.kinds[name].spark}" for name in names or self.kinds)


ATTEMPTS: Final = History(
    "attempts",
    "ts",
    {
        "id": _BIG,
        "ts": _INSTANT,
        "queue__id": _BIG,
        "messages__id": _TEXT,
        "retry_count": _INT,
        "token": _BIG,
        "worker": _TEXT,
        "partid": _TEXT,
        "transportid": _TEXT,
        "jobid": _TEXT,
        "senderdomain": _TEXT,
        "recipientdomain": _TEXT,
        "size": _INT,
        "remote": _TEXT,
        "outcome": _TEXT,
        "scope": _TEXT,
        "uncertain": _TRUTH,
        "reply_code": _INT,
        "reply_enhanced": _TEXT,
        "reply_text": _TEXT,
        "duration": _SPAN,
        "tls": _TEXT,
        "source": _TEXT,
        "conversation": _TEXT,
        "xact": _BIG,
    },
    optional=frozenset({"tls", "source", "conversation", "xact"}),
)

ARCHIVE: Final = History(
    "archive",
    "finished",
    {
        "id": _BIG,
        "messages__id": _TEXT,
        "actionid": _INT,
        "finished": _INSTANT,
        "result": _TEXT,
        "ts": _INSTANT,
        "senderip": _TEXT,
        "serverid": _TEXT,
        "saslusername": _TEXT,
        "senderlocalpart": _TEXT,
        "senderdomain": _TEXT,
        "recipientlocalpart": _TEXT,
        "recipientdomain": _TEXT,
        "size": _INT,
        "metadata": _TEXT,
        "transportid": _TEXT,
        "jobid": _TEXT,
        "priority": _INT,
        "retry_count": _INT,
        "last_error": _TEXT,
        "worker": _TEXT,
        "msgid": _TEXT,
        "subject": _TEXT,
        "xact": _BIG,
    },
    optional=frozenset({"msgid", "subject", "xact"}),
)

AUDIT: Final = History(
    "audit",
    "ts",
    {
        "id": _BIG,
        "ts": _INSTANT,
        "who": _TEXT,
        "operator": _TEXT,
        "verb": _TEXT,
        "condition": _TEXT,
        "argument": _TEXT,
        "reason": _TEXT,
        "undoes": _BIG,
        "wanted": _BIG,
        "done": _BIG,
        "skipped": _BIG,
        "finished": _INSTANT,
        "undone": _INSTANT,
        "login": _TEXT,
    },
    sizes=("wanted", "done", "skipped"),
    marks=("finished", "undone"),
    mutable=True,
)

HISTORIES: Final = {history.name: history for history in (ATTEMPTS, ARCHIVE, AUDIT)}
