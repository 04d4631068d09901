"""test_whole_leaves — a worker with a WHERE that does not match whole leaves logs one warning at start

Owns: proofs about queued/claiming/whole_leaves.py on the shipped leaves, and that a worker says it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queued.claiming import whole_leaves
from shared.postgres import database

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

PARTID = "metadata->>'_partid'"
SOURCE = "config/queued.yaml: workers[0].where"


async def warned(factory: Factory, heard: Heard, where: str) -> str | None:
    """The leaves of the one warning; None without one."""
    pool = await database.open_pool(factory.uri, "start", 1)
    try:
        await whole_leaves.warn(pool, "w", where, SOURCE)
    finally:
        await pool.close()
    said = heard.all("claim.leaf_in_part")
    assert len(said) <= 1
    assert all((each["worker"], each["source"]) == ("w", SOURCE) for each in said)
    return said[0]["leaves"] if said else None


@pytest.mark.parametrize(
    "where",
    ["true", f"{PARTID} IN ('1', '2', '3')", f"{PARTID} IN ('3', '2', '1') OR {PARTID} IS NULL", f"{PARTID} IS NULL"],
)
async def test_a_condition_on_whole_leaves_causes_no_warning(factory: Factory, heard: Heard, where: str) -> None:
    assert await warned(factory, heard, where) is None


@pytest.mark.parametrize(
    ("where", "leaves"),
    [
        (f"{PARTID} IN ('1', '4', '5', '6')", "queue_def_123 (only 1 of 3 ids)"),
        (
            f"({PARTID})::int < 4",
            ", ".join(f"queue_def_{leaf} (opened without any of its mail)" for leaf in ("456", "def")),
        ),
        (f"{PARTID} IN ('4', '5', '6') AND id % 2 = 0", "queue_def_456 (it depends on more than the partition)"),
    ],
)
async def test_a_condition_on_part_of_a_leaf_is_named_with_the_reason(
    factory: Factory, heard: Heard, where: str, leaves: str
) -> None:
    assert await warned(factory, heard, where) == leaves


async def test_a_worker_logs_the_warning_and_starts(system: System) -> None:
    worker = await system.worker(1, "w", f"{PARTID} = '2'")
    [said] = await worker.until_said("claim.leaf_in_part")
    assert said["leaves"] == "queue_def_123 (only 2 of 3 ids)"
    assert said["source"] == f"{system.folder / 'w.yaml'}: workers[0].where"
