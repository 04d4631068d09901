"""portion — reads one portion of history as an Arrow table

Owns: reading CSV from COPY into typed columns, columns missing in this database, text that is not UTF-8, and retries
    after a replica cancelled the read.
Guarantees: the transaction ends before the first row is returned, so a slow consumer holds no snapshot. Columns with
    text that is not UTF-8 (a database in SQL_ASCII may hold it) are binary; the other columns are not affected.
Raises: PartitionDropped, DatabaseUnavailable; BadRows if a portion is not CSV of these columns.
See: scripts/analytics/source/copying.py.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import csv

from scripts.analytics.source import copying
from shared.errors import DatabaseUnavailable, PillarboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scripts.analytics.source.columns import History
    from scripts.analytics.source.portions import Portion

#: Octets parsed at once: a block that fits into the processor's cache is parsed three times as fast. The second size
#: is for portions with a longer row.
_BLOCKS: Final = (1 << 20, 1 << 28)
_PAUSES: Final = (0.2, 1.0, 5.0)  # seconds before a cancelled read is tried again


class BadRows(PillarboxError):
    """The data of COPY cannot be read as rows of this table."""


def read(conninfo: str, history: History, portion: Portion, names: Sequence[str]) -> pa.Table:
    """The rows of one portion, with the columns `names`; columns missing in the database are NULL."""
    for pause in (*_PAUSES, None):
        try:
            with copying.session(conninfo) as session:
                there = columns_there(session, history)
                asked = [name for name in names if name in there] or ["id"]
                text = copying.copy_out(session, history, portion, asked)
            return complete(parse(text, history, asked), history, names)
        except DatabaseUnavailable:
            # A replica cancels reads that conflict with replay; a server may be restarting.
            if pause is None:
                raise
            sleep(pause)
    raise AssertionError


def columns_there(session: copying.Session, history: History) -> frozenset[str]:
    """The columns that this database has; PillarboxError if a required one is missing."""
    there = {row.name for row in copying.rows(session, "analytics_columns", table=history.name)}
    missing = set(history.kinds) - there - history.optional
    if missing:
        raise PillarboxError(f"{history.name}: column {', '.join(sorted(missing))} is missing; run `pillarbox migrate`")
    return frozenset(there)


def parse(text: memoryview | bytes, history: History, names: Sequence[str]) -> pa.Table:
    """COPY's CSV as a table; text columns that are not UTF-8 are binary."""
    schema = history.arrow(names)
    if not len(text):
        return schema.empty_table()
    try:
        return _parse(text, schema)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise BadRows(f"{history.name}: rows that cannot be read: {error}") from None
    binary = pa.schema([field.with_type(pa.binary()) if pa.types.is_string(field.type) else field for field in schema])
    table = _parse(text, binary)
    for index, field in enumerate(schema):
        if pa.types.is_string(field.type):
            try:
                table = table.set_column(index, field, table.column(index).cast(pa.string()))
            except pa.ArrowInvalid:
                continue  # stays binary; the quarantine checks it
    return table


def complete(table: pa.Table, history: History, names: Sequence[str]) -> pa.Table:
    """The table with exactly `names`, in that order; missing columns are NULL."""
    for name in names:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, history.kinds[name].arrow))
    return table.select(list(names))


def _parse(text: memoryview | bytes, schema: pa.Schema) -> pa.Table:
    for block in _BLOCKS:
        try:
            return _parsed(text, schema, block)
        except pa.ArrowInvalid as error:
            if "block size" not in str(error) or block == _BLOCKS[-1]:
                raise
    raise AssertionError


def _parsed(text: memoryview | bytes, schema: pa.Schema, block: int) -> pa.Table:
    return csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=schema.names, use_threads=False, block_size=block),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )


def printable(table: pa.Table, history: History) -> pa.Table:
    """The table with every text column as text, for display; octets that are not UTF-8 become U+FFFD."""
    for index, field in enumerate(table.schema):
        if pa.types.is_binary(field.type):
            texts = [None if raw is None else raw.decode("utf-8", "replace") for raw in table.column(index).to_pylist()]
            table = table.set_column(index, field.name, pa.array(texts, history.kinds[field.name].arrow))
    return table
