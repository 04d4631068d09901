"""test_notices_at_size — what a look at the outbox of notices costs does not grow with the outbox

Owns: proofs about how much of the outbox each statement of queued.dsn.send reads and changes, also by statistics of the
    time when the outbox was empty.
See: sql/queries/delivery/notice.sql.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from shared.postgres.queries import query
from tests.fixtures.database.plans import nodes, rows_read

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

MANY: Final = 30_000
BATCH: Final = 100
NEXT_HOUR: Final = datetime.now(UTC) + timedelta(hours=1)
#: Of a message each.
_FILL = """
INSERT INTO pillarbox.notices (due, kind, messages__id, queue__id, senderlocalpart, senderdomain,
                               recipientlocalpart, recipientdomain, arrived)
SELECT now() - interval '1 hour' + n * interval '1 ms', 'failed', gen_random_uuid(), n, 'news',
       'sender.example', 'r', 'example.com', now()
  FROM generate_series(1, %(count)s) AS n
"""
#: A statement, its values but for `batch`, and how many notices it is about.
_STATEMENTS: Final[dict[str, tuple[dict[str, Any], int]]] = {
    "notice_next": ({"now": None, "floor": None, "gather": timedelta(seconds=1)}, 1),
    "notice_hold_back": ({"floor": None, "due": NEXT_HOUR}, BATCH),
    "notice_discard": ({}, BATCH),
}


@pytest.mark.parametrize("emptied", [False, True], ids=["", "emptied before"])
@pytest.mark.parametrize("statement", _STATEMENTS)
def test_a_look_reads_only_what_it_is_about(factory: Factory, statement: str, *, emptied: bool) -> None:
    factory.sql("ALTER TABLE pillarbox.notices SET (autovacuum_enabled = off)")
    if emptied:
        factory.sql(_FILL, count=MANY)
        factory.sql("DELETE FROM pillarbox.notices")
        factory.sql("ANALYZE pillarbox.notices")
    factory.sql(_FILL, count=MANY)
    values, about = _STATEMENTS[statement]
    with factory.another() as session:
        session.execute("SET statement_timeout = '30s'")
        session.execute(query("connection_walk_in_order"))  # as a worker's sessions are
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {query(statement)}"
        [[[plan]]] = session.execute(explain.encode(), values | {"batch": BATCH}).fetchall()
    read = [rows_read(node) for node in nodes(plan["Plan"]) if node.get("Relation Name") == "notices"]
    assert sum(read) <= 3 * about
