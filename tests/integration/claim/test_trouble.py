"""test_trouble — a claim succeeds although a partition is missing or was just dropped

Owns: proofs about queued.claiming.claim.Claimer and PostgreSQL's refusals.
See: tests/integration/result/test_trouble.py for results.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from queued.claiming.claim import Claimer
from shared.config.queued.settings import Claim
from shared.postgres import database as db

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

PAST = timedelta(seconds=-1)
# The first `times` lost attempts are refused; a sequence is not rolled back with the refusal.
_REFUSE = """
CREATE SEQUENCE pillarbox.refusals;
CREATE FUNCTION pillarbox.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('pillarbox.refusals') <= {times} THEN RAISE EXCEPTION 'gone' USING ERRCODE = '{sqlstate}'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON pillarbox.attempts FOR EACH ROW EXECUTE FUNCTION pillarbox.refuse()
"""


def claimer() -> Claimer:
    return Claimer("true", "worker", Claim())


async def test_a_missing_day_partition_for_a_lost_try_is_created(factory: Factory, logins: Logins) -> None:
    """With a worker's own rights."""
    lost, fresh = factory.row(), factory.row()
    factory.lease([lost], ends=PAST)
    for row in factory.sql(
        "SELECT relid::regclass::text AS day FROM pg_partition_tree('pillarbox.attempts') WHERE isleaf"
    ):
        factory.on(row.day.removeprefix("pillarbox."), "DROP TABLE {table}")
    least = await db.connect(logins.uri("queued"), "claimer")
    try:
        assert [c.id for c in await claimer().take(least, 10)] == [lost, fresh]
    finally:
        await least.close()
    assert [(row.queue__id, row.outcome) for row in factory.attempts()] == [(lost, "lease_expired")]
    assert [row.retry_count for row in factory.queue(lost, fresh)] == [2, 1], "the try was counted twice"


@pytest.mark.parametrize("sqlstate", ["42P01", "XX000"])
async def test_a_claim_is_repeated_after_a_leaf_was_dropped(
    factory: Factory, connection: db.Connection, sqlstate: str
) -> None:
    lost = factory.row()
    factory.lease([lost], ends=PAST)
    factory.sql(_REFUSE.format(times=1, sqlstate=sqlstate))
    assert [c.id for c in await claimer().take(connection, 10)] == [lost]
    assert [row.outcome for row in factory.attempts()] == ["lease_expired"]


async def test_a_permanently_missing_table_is_an_error(factory: Factory, connection: db.Connection) -> None:
    lost = factory.row()
    factory.lease([lost], ends=PAST)
    factory.sql(_REFUSE.format(times=9, sqlstate="42P01"))
    with pytest.raises(psycopg.errors.UndefinedTable):
        await claimer().take(connection, 10)
    assert [row.retry_count for row in factory.queue()] == [1], "nothing is claimed by a claim that failed"


@pytest.mark.parametrize(
    "value",
    ["1e5000", "-1e131071", "1.5e400", "[" * 12_000 + "]" * 12_000],
    ids=["long", "longest", "fraction", "deep"],
)
async def test_metadata_that_python_cannot_read_stops_no_claim(
    factory: Factory, connection: db.Connection, value: str
) -> None:
    """One such row ended the worker, and each one that claimed it next."""
    first, second = factory.rows(2)
    factory.sql(
        "UPDATE pillarbox.queue SET metadata = metadata || %(m)s::jsonb WHERE id = %(id)s",
        m=f'{{"a": {value}}}',
        id=first,
    )
    assert [c.id for c in await claimer().take(connection, 10)] == [first, second]


@pytest.mark.parametrize("value", ['"x"', "1", "null", "true", '["_partid"]', "[]"])
async def test_metadata_that_is_no_object_stops_no_claim(
    factory: Factory, connection: db.Connection, value: str
) -> None:
    """A login that inserts mail may write any, and PostgreSQL refused every claim of the partition for such a row."""
    first, second = factory.rows(2, partid=None)
    factory.sql("UPDATE pillarbox.queue SET metadata = %(m)s::jsonb WHERE id = %(id)s", m=value, id=first)
    claimed = await claimer().take(connection, 10)
    assert [(c.id, dict(c.metadata)) for c in claimed] == [(first, {}), (second, {})]
