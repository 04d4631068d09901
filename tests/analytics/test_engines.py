"""test-engines — an engine that is not ours reads the lake as Iceberg tables and gets PostgreSQL's sums"""

from __future__ import annotations

import importlib.util
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import psycopg
import pytest

from scripts.analytics.lake import catalog
from tests.fixtures.analytics.lake import exported, late

if TYPE_CHECKING:
    from scripts.analytics.lake.catalog import Lake

pytestmark = [pytest.mark.slow, pytest.mark.counts_pages]

_PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "observe" / "export-history.md"
_SUMS = {
    "attempts": "count(*), sum(id), sum(size), sum(octet_length({})), count(DISTINCT recipientdomain)",
    "archive": "count(*), sum(id), sum(size), sum(octet_length({})), count(DISTINCT recipientdomain)",
}
_TEXT = {"attempts": "reply_text", "archive": "last_error"}


def test_duckdb_gets_the_sums_of_postgresql(
    history_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two exports and a compaction later, so that files of earlier snapshots lie beside those of the last.

    The code of the how-to page runs as it is written.
    """
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

    _with_extensions(duckdb.default_connection())
    [page] = re.findall(r"```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(page.replace("/srv/lake", str(tmp_path)), {})  # noqa: S102 - our own page
    assert "delivered" in capsys.readouterr().out


def _engine() -> duckdb.DuckDBPyConnection:
    return _with_extensions(duckdb.connect())


def _with_extensions(engine: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """DuckDB with its own signed extensions, as their wheels carry them."""
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
