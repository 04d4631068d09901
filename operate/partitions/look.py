"""look — the leaves of the queue: their ids, recipients and bytes, and what is wrong with them

Guarantees: reads only; every row is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.partitions import layout
from operate.partitions.audit import read_faults
from operate.partitions.layout import natural, suffix_of
from operate.partitions.run import read_state
from operate.shapes.checks import Leaf, LeafFault, Leaves
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from operate.partitions.audit import Fault
    from operate.partitions.layout import Layout
    from operate.partitions.run import State

type Counts = dict[str, dict[str, int]]  # recipients by leaf and id; "" is no id


async def leaves(connection: database.Connection, configured: Mapping[str, Sequence[str]]) -> Leaves:
    """All of it, compared with the leaves that smtpd.yaml names."""
    state, faults = await read_state(connection), await read_faults(connection)
    return leaves_shape(state, await counts(connection), faults, layout.wanted(configured))


async def counts(connection: database.Connection) -> Counts:
    """Recipients by leaf and partition id."""
    found: Counts = {}
    for row in await database.fetch(connection, "partitions_rows"):
        found.setdefault(row.leaf, {})[row.partid or ""] = row.recipients
    return found


def leaves_shape(state: State, counted: Counts, faults: Sequence[Fault], wanted: Layout) -> Leaves:
    """The same as one form."""
    return Leaves(
        leaves=[
            Leaf(
                leaf=leaf.name,
                ids=sorted(state.layout.get(suffix_of(leaf.name), ()), key=natural),
                recipients=sum(counted.get(leaf.name, {}).values()),
                by_id=counted.get(leaf.name, {}),
                bytes=leaf.bytes,
            )
            for leaf in state.leaves
        ],
        faults=[LeafFault(leaf=each.leaf, fault=each.fault, object=each.object) for each in faults],
        interrupted=bool(state.leftovers),
        as_configured=state.layout == wanted,
    )
