"""test_replica — the benchmark of analytics gets a replica to export from, also by a relative path"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from scripts.bench.analytics.replica import following
from shared.postgres.embedded import embedded
from tests.fixtures.servers.postgres import temporary_var
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    import pytest


async def test_a_replica_follows_its_server_until_the_end_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    with temporary_var() as var:
        uri = embedded.ensure_running(var)
        monkeypatch.chdir(var)
        with following(uri, Path("replica")) as replica, psycopg.connect(replica, autocommit=True) as reading:
            with psycopg.connect(uri) as writing:
                writing.execute("CREATE TABLE rows AS SELECT 1 AS number")

            def followed() -> bool:
                return reading.execute("SELECT to_regclass('rows') IS NOT NULL").fetchone() == (True,)

            await eventually(followed, "the replica has the table")
            assert reading.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
        assert not (var / "replica").exists()
