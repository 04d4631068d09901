"""portion — one portion of a day, read from PostgreSQL and written as one Parquet file

Owns: the work of one export worker: read, compute the sums, quarantine bad rows, write Parquet.
Guarantees: a file is complete and on disk when its name is returned, and belongs to the lake only once a commit names
    it. Its name is new in each run. Rows are in the order of their instants; columns carry Iceberg's field ids.
Raises: PartitionDropped, DatabaseUnavailable; LakeFault when the lake cannot be written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet

from scripts.analytics.lake.faults import LakeFault
from scripts.analytics.source import fingerprint, portion, quarantine
from scripts.analytics.source.columns import HISTORIES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from scripts.analytics.source.fingerprint import Fingerprint
    from scripts.analytics.source.portions import Portion

#: Columns with few distinct values, for Parquet's dictionary encoding; trying it on the others only costs time.
_DICTIONARY: Final = [
    *("worker", "partid", "transportid", "jobid", "senderdomain", "recipientdomain", "remote", "outcome", "scope"),
    *("reply_enhanced", "tls", "source", "result", "senderip", "serverid", "saslusername", "senderlocalpart"),
    *("metadata", "who", "operator", "verb", "login", "reason", "history"),
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how files of a table are written: everything that a worker needs to know of the table."""

    location: str  # of the day's folder
    schema: pa.Schema  # with field ids
    io: FileIO

    @classmethod
    def of(cls, table: Table, day: date) -> Place:
        """The place of a day's files."""
        plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}  # no portion needs 64-bit offsets
        fields = [
            pa.field(
                arrow.name,
                plain.get(arrow.type, arrow.type),
                metadata={b"PARQUET:field_id": str(field.field_id).encode()},
            )
            for field, arrow in zip(table.schema().fields, table.schema().as_arrow(), strict=True)
        ]
        return cls(f"{table.location()}/data/day={day}", pa.schema(fields), table.io)


@dataclass(frozen=True, slots=True)
class Piece:
    """The task of one worker: a portion, and the places of its rows and of those for the quarantine."""

    conninfo: str
    table: str
    portion: Portion
    place: Place


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a piece: the file, None without rows; the sums; the quarantined rows."""

    file: str | None
    fingerprint: Fingerprint
    quarantined: dict[str, int]
    aside: pa.Table | None


def write_portion(piece: Piece) -> Written:
    """Export one piece."""
    history = HISTORIES[piece.table]
    table = portion.read(piece.conninfo, history, piece.portion, list(history.kinds))
    sums = fingerprint.of_table(table, history, piece.portion.since)
    kept, bad = quarantine.divide(table, history)
    file = write(piece.place, [kept.sort_by(history.instant)]) if kept.num_rows else None
    aside = quarantine.rows(bad, history) if bad.num_rows else None
    return Written(file, sums, quarantine.counts(bad), aside)


def write(place: Place, tables: Iterable[pa.Table]) -> str:
    """Write one Parquet file; its location."""
    location = f"{place.location}/{uuid4()}.parquet"
    options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
    options["use_dictionary"] = [name for name in _DICTIONARY if name in place.schema.names] or False
    try:
        with (
            place.io.new_output(location).create() as out,
            parquet.ParquetWriter(out, place.schema, **options) as writer,
        ):
            for table in tables:
                writer.write_table(_fitted(table, place.schema))
    except OSError as error:
        raise LakeFault(f"{location}: cannot be written: {error.strerror or error}") from None
    return location


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly these columns; those it lacks are NULL."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field.name, pa.nulls(table.num_rows, field.type))
    return table.select(schema.names).cast(schema)
