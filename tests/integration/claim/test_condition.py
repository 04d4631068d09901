"""test_condition — a worker's condition is read by PostgreSQL before anything is claimed with it

Owns: proofs that a condition PostgreSQL cannot use is refused at start, in one line that names the key.
See: tests/unit/shared/test_queries.py for conditions refused without PostgreSQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queued import daemon
from shared.errors import ConfigError
from shared.postgres import database as db

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.database.factory import Factory

GOOD = [
    "true",
    "metadata->>'_partid' IN ('4','5','6') OR metadata->>'_partid' IS NULL",
    "recipientdomain LIKE '%.example' AND id % 2 = 0",
    "priority > 3 AND recipientlocalpart = 'it''s; (odd'",
]
BAD = [
    ("no_such_column = 1", "no_such_column"),
    ("metadata->>'_partid' = ", "syntax error"),
    ("priority = 'high'", "smallint"),
    ("1", "boolean"),
    ("x = 'never closed", "unterminated"),
    ('priority = "never closed', "unterminated"),
    ("recipientdomain = 'a''", "unterminated"),
    ("count(*) > 1", "aggregate"),
    ("no_such_function(id)", "no_such_function"),
    ("true AND", "syntax error"),
    ("true) OR (true", "do not balance"),
]


@pytest.fixture
async def pool(database: str) -> AsyncIterator[db.Pool]:
    opened = await db.open_pool(database, "worker", 1)
    yield opened
    await opened.close()


@pytest.mark.parametrize("where", GOOD)
async def test_a_usable_condition_passes(pool: db.Pool, where: str) -> None:
    await daemon._check_where(pool, where, "queued.yaml: environment.database.where")


@pytest.mark.parametrize(("where", "why"), BAD)
async def test_an_unusable_condition_is_refused_in_one_line(
    factory: Factory, pool: db.Pool, where: str, why: str
) -> None:
    factory.row()
    with pytest.raises(ConfigError, match=why) as refusal:
        await daemon._check_where(pool, where, "queued.yaml: environment.database.where")
    assert str(refusal.value).startswith("queued.yaml: environment.database.where: ")
    assert "\n" not in str(refusal.value)
    assert [row.token for row in factory.queue()] == [None]
