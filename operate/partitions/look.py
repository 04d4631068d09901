"""look — shows the leaves of the queue and their faults, the plan to the configured leaves, and a proposal of even ones

Guarantees: reads only; every row is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.partitions import layout
from operate.partitions.audit import read_faults
from operate.partitions.balance import balance, weigh
from operate.partitions.layout import PREFIX, natural, suffix_of
from operate.partitions.run import planned, read_state
from operate.shapes.checks import (
    Balance,
    Leaf,
    LeafFault,
    Leaves,
    RepartitionPlan,
    RepartitionRound,
    RepartitionStep,
)
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from operate.partitions.audit import Fault
    from operate.partitions.layout import Layout
    from operate.partitions.plan import Round, Step
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


async def plan(connection: database.Connection, configured: Mapping[str, Sequence[str]]) -> RepartitionPlan:
    """The steps to the leaves that smtpd.yaml names; none is taken."""
    state = await read_state(connection)
    found, acts = await planned(connection, state, layout.wanted(configured))
    return plan_shape(found, acts, state)


def plan_shape(found: Sequence[Round], acts: Sequence[Sequence[Step]], state: State) -> RepartitionPlan:
    """Steps as one form."""
    rounds = [
        RepartitionRound(
            copies=[PREFIX + name for name in change.sources],
            makes={PREFIX + name: sorted(change.after.get(name, ()), key=natural) for name in change.targets},
            renames={PREFIX + old: PREFIX + new for old, new in change.renames},
            estimate=estimate(change, state),
        )
        for change in found
    ]
    every = [RepartitionStep(why=step.why, sql=list(step.sql)) for act in acts for step in act]
    return RepartitionPlan(rounds=rounds, steps=every)


def estimate(change: Round, state: State) -> int:
    """Recipients to copy, by PostgreSQL's own estimate."""
    copied = {PREFIX + name for name in change.sources}
    return sum(leaf.estimate for leaf in state.leaves if leaf.name in copied)


async def proposal(connection: database.Connection, number: int | None) -> Balance:
    """So many leaves (None: as many as there are) that share what waits now evenly; Refused where that cannot be."""
    state = await read_state(connection)
    weights = waiting(await counts(connection))
    return balance_shape(balance(state.layout, weights, number), state.layout, weights)


def waiting(counted: Counts) -> dict[str, float]:
    """The recipients of each id that has a leaf of its own: what it weighs."""
    return {
        id_: float(number)
        for leaf, ids in counted.items()
        if leaf != PREFIX + layout.DEFAULT
        for id_, number in ids.items()
    }


def balance_shape(proposed: Layout, current: Layout, weights: Mapping[str, float]) -> Balance:
    """A proposal as one form."""
    return Balance(
        leaves={name: sorted(ids, key=natural) for name, ids in proposed.items()},
        weights={name: weigh(ids, weights) for name, ids in proposed.items()},
        changed=proposed != current,
    )
