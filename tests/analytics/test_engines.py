"""test-engines — an engine that is not ours reads the lake as Iceberg tables and gets PostgreSQL's sums"""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
import pytest

from scripts.analytics.lake import catalog
from tests.fixtures.database.lake import exported, late

if TYPE_CHECKING:
    from scripts.analytics.lake.catalog import Lake

pytestmark = pytest.mark.slow

_SUMS = {
    "attempts": "count(*), sum(id), sum(size), sum(octet_length({})), count(DISTINCT recipientdomain)",
    "archive": "count(*), sum(id), sum(size), sum(octet_length({})), count(DISTINCT recipientdomain)",
}
_TEXT = {"attempts": "reply_text", "archive": "last_error"}


def test_duckdb_gets_the_sums_of_postgresql(history_database: str, tmp_path: Path) -> None:
    """Two exports and a compaction later, so that files of earlier snapshots lie beside those of the last."""
    exported(history_database, tmp_path)
    late(history_database)
    exported(history_database, tmp_path, compact=True)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    with _engine() as engine, psycopg.connect(history_database) as database:
        for table, sums in _SUMS.items():
            instant = "ts" if table == "attempts" else "finished"
            asked = f"SELECT {sums.format(_TEXT[table])} FROM pillarbox.{table} WHERE {instant} < %s"  # noqa: S608
            there = database.execute(asked.encode(), (midnight,)).fetchone()
            octets = f"encode({_TEXT[table]})"
            here = _rows(engine, catalog.opened(str(tmp_path)), table, sums.format(octets))
            assert [int(value) for value in here] == [int(value) for value in there or ()]


def _engine() -> duckdb.DuckDBPyConnection:
    """DuckDB with its own signed extensions, as their wheels carry them."""
    engine = duckdb.connect()
    for name in ("avro", "iceberg"):
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert found is not None
        assert found.origin is not None
        [file] = Path(found.origin).parent.rglob("*.duckdb_extension")
        engine.load_extension(str(file))
    return engine


def _rows(engine: duckdb.DuckDBPyConnection, lake: Lake, table: str, asked: str) -> Any:
    """One row of DuckDB's, from the table's metadata alone."""
    location = lake.needed(table).metadata_location.removeprefix("file://")
    return engine.execute(f"SELECT {asked} FROM iceberg_scan('{location}')").fetchone()  # noqa: S608 - ours
