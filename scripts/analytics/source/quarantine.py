"""quarantine — finds and counts rows that would harm readers of the lake

Owns: the rules: text that is not UTF-8, and overlong domains, addresses and replies; the table of what they find.
Guarantees: every row is either kept or quarantined, with the first rule it breaks. A quarantined row is kept octet for
    octet: as a list of its columns, each a name and its value as PostgreSQL's text.
See: RFC 5321 section 4.5.3.1 (local part 64, domain 255, reply line 512 octets); most limits here are far higher on
    purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from scripts.analytics.source import portion

if TYPE_CHECKING:
    from scripts.analytics.source.columns import History

#: Limits in octets, by column; other columns have none.
LONGEST: Final = {
    "recipientdomain": 255,
    "senderdomain": 255,
    "recipientlocalpart": 1024,
    "senderlocalpart": 1024,
    "reply_text": 65_536,
    "last_error": 65_536,
}
NOT_UTF8: Final = "not UTF-8"
#: The lake's table of quarantined rows; `history` is the table that they are from, `instant` tells the day.
TABLE: Final = "quarantine"
INSTANT: Final = "instant"
SCHEMA: Final = pa.schema(
    [
        ("history", pa.string()),
        (INSTANT, pa.timestamp("us", "UTC")),
        ("id", pa.int64()),
        ("reason", pa.string()),
        ("row", pa.map_(pa.string(), pa.binary())),
    ]
)


def divide(table: pa.Table, history: History) -> tuple[pa.Table, pa.Table]:
    """The rows to keep, as text, and the rows to quarantine, with their `reason`."""
    reasons = pa.nulls(table.num_rows, pa.string())
    for name, most in LONGEST.items():
        if name in table.column_names:
            long = pc.fill_null(pc.greater(pc.binary_length(table[name]), most), fill_value=False)
            reasons = _mark(reasons, long, f"{name} of more than {most} octets")
    for field in table.schema:
        if pa.types.is_binary(field.type):
            raw = table[field.name].to_pylist()
            reasons = _mark(reasons, pa.array([_undecodable(each) for each in raw]), f"{field.name}: {NOT_UTF8}")
    good = pc.is_null(reasons)
    if pc.all(good).as_py() is not False:
        return table, table.slice(0, 0)
    kept = portion.printable(table.filter(good), history).cast(history.arrow(table.column_names))
    bad = table.append_column("reason", reasons).filter(pc.invert(good))
    return kept, bad.cast(pa.schema([_binary(field) for field in bad.schema]))


def rows(bad: pa.Table, history: History) -> pa.Table:
    """The quarantined rows as rows of the lake's table `quarantine`."""
    found = [
        {
            "history": history.name,
            INSTANT: row[history.instant],
            "id": row["id"],
            "reason": row["reason"].decode(),
            "row": [(name, _octets(row[name])) for name in history.kinds if row[name] is not None],
        }
        for row in bad.to_pylist()
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def counts(bad: pa.Table) -> dict[str, int]:
    """The numbers of quarantined rows, by reason."""
    if not bad.num_rows:
        return {}
    found: dict[str, Any] = {
        str(row["values"]): row["counts"] for row in pc.value_counts(_text(bad["reason"])).to_pylist()
    }
    return found


def _mark(reasons: pa.Array, wrong: pa.Array, reason: str) -> pa.Array:
    """`reasons`, with this one for wrong rows that had none."""
    fresh = pc.and_(pc.is_null(reasons), wrong)
    return pc.if_else(fresh, pa.scalar(reason), reasons)


def _undecodable(raw: bytes | None) -> bool:
    try:
        (raw or b"").decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _octets(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _binary(field: pa.Field) -> pa.Field:
    return field.with_type(pa.binary()) if pa.types.is_string(field.type) else field


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())
