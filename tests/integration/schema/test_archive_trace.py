"""test_archive_trace — a finished recipient is found by its id without scanning the archive

Owns: proofs about the index archive_id: that every day has it, that it is used, and that stragglers do not blunt it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

ROWS = 100_000
_FILL = """
INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart, recipientdomain,
                               size, transportid, priority, retry_count)
SELECT CASE WHEN n %% 997 = 0 THEN n - 90000 ELSE n END, gen_random_uuid(), 1, now(), 'success', now(), 'r', 'd', 1,
       'default', 0, 1
  FROM generate_series(100001, 100000 + %(rows)s) AS n
"""


def test_every_day_partition_has_the_index(factory: Factory) -> None:
    factory.sql("SELECT pillarbox.history_create(now(), 20)")
    days = factory.one("SELECT count(*) FROM pg_partition_tree('pillarbox.archive') WHERE isleaf")
    assert factory.one("SELECT count(*) FROM pg_partition_tree('pillarbox.archive_id') WHERE isleaf") == days


def test_a_recipient_in_a_long_day_is_found_by_the_index(factory: Factory) -> None:
    factory.sql(_FILL, rows=ROWS)
    factory.sql("VACUUM ANALYZE pillarbox.archive")  # summarizes, as autovacuum does
    pages = factory.one("SELECT sum(relpages) FROM pg_class WHERE relname ~ '^archive_[0-9]{8}$'")
    for id_ in (100001, 150000, 199999):
        [[[plan]]] = factory.sql(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM pillarbox.archive WHERE id = %(id)s", id=id_
        )
        whole = plan["Plan"]
        assert whole["Actual Rows"] == 1
        assert (whole["Shared Hit Blocks"] + whole["Shared Read Blocks"]) * 10 < pages
