"""leaf_rows — how many rows each leaf of the queue has, as workers and smtpd export it

Guarantees: an estimate that costs the same however long the queue is; no leaf is read or locked.
Raises: what PostgreSQL's trouble raises.
See: sql/queries/operation/metrics.sql, metrics_leaves; shared/observe/queued_table.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.observe.metrics_totals import Reading
from shared.observe.queued_table import LEAF_ROWS
from shared.postgres import database

if TYPE_CHECKING:
    from shared.postgres.database import Connection


async def leaf_rows(connection: Connection) -> list[Reading]:
    """A reading for each leaf."""
    rows = await database.fetch(connection, "metrics_leaves")
    return [Reading(LEAF_ROWS, row.recipients, (row.leaf,)) for row in rows]
