"""show — the display of leaves, plans and proposals, for people and programs

Owns: the tables, the JSON and the prose of `pillarbox partitions`.
Guarantees: JSON goes to standard output whole and alone; tables and sentences are for terminals and may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.partitions.balance import weigh
from operate.partitions.layout import DEFAULT, PREFIX, natural, suffix_of, yaml
from operate.partitions.look import balance_shape, estimate, leaves_shape, plan_shape
from operate.partitions.plan import script
from scripts.output import records
from scripts.output.table import Column, Table
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from operate.partitions.audit import Fault
    from operate.partitions.layout import Layout
    from operate.partitions.look import Counts
    from operate.partitions.plan import Round, Step
    from operate.partitions.run import State

_AS_WANTED: Final = "the leaves are as wanted"


def leaves(state: State, counts: Counts, faults: Sequence[Fault], wanted: Layout, *, as_json: bool) -> None:
    """The leaves with their ids, recipients and bytes; what is wrong with them; whether smtpd.yaml agrees."""
    if as_json:
        records.one(leaves_shape(state, counts, faults, wanted).model_dump())
        return
    rows = []
    for leaf in state.leaves:
        name = suffix_of(leaf.name)
        ids = sorted(state.layout.get(name, ()), key=natural)
        here = counts.get(leaf.name, {})
        shown = ", ".join(f"{id_} ({here.get(id_, 0)})" for id_ in ids) if name != DEFAULT else _others(here)
        rows.append((leaf.name, sum(here.values()), f"{leaf.bytes / 2**20:.1f}", shown))
    Table(
        (
            Column("leaf", whole=True),
            Column("recipients", right=True),
            Column("MiB", right=True),
            Column("partition ids (recipients)", wraps=True),
        )
    ).print(rows)
    for fault in faults:
        print(f"fault: {fault}")
    if faults:
        print("`pillarbox partitions apply --repair` repairs these faults while mail flows")
    if state.leftovers:
        print("a repartitioning was interrupted and slows these leaves; start it again, or `partitions apply`")
    if state.layout != wanted:
        print("smtpd.yaml names other leaves: see `pillarbox partitions plan`")


def plan(
    found: Sequence[Round], acts: Sequence[Sequence[Step]], state: State, form: str, idle: str = _AS_WANTED
) -> None:
    """The steps: as a table, as JSON, or as SQL; `form` is table, json or sql. `idle`: why there are none."""
    every = [step for act in acts for step in act]
    if form == "sql":
        print(script(every), end="")
    elif form == "json":
        records.one(plan_shape(found, acts, state).model_dump())
    elif not every:
        print(f"nothing to do: {idle}")
    else:
        columns = (Column("", right=True), Column("statements", right=True), Column("step", wraps=True))
        Table(columns).print((number, len(step.sql), step.why) for number, step in enumerate(every, 1))
        for change in found:
            before, after = ", ".join(change.sources), ", ".join(change.targets)
            if change.sources:
                recipients = how_many(estimate(change, state), "recipient")
                print(f"copies about {recipients} from {before} to {after}, while mail flows")


def done(acts: Sequence[Sequence[Step]], leaves_now: Layout, configured: Layout) -> None:
    """What was done, as JSON."""
    named = {PREFIX + name: sorted(ids, key=natural) for name, ids in leaves_now.items()}
    records.one({"steps": sum(map(len, acts)), "leaves": named, "as_configured": leaves_now == configured})


def merged(layout: Layout, missing: Sequence[str], into: str) -> str:
    """Why a merge of leaves that are not there changes nothing: it may have been done before, or a name be misspelt."""
    if not missing:
        return _AS_WANTED
    ids = ", ".join(sorted(layout[into.removeprefix(PREFIX)], key=natural))
    there = ", ".join(sorted(layout))
    return f"leaf {' or '.join(missing)} does not exist (any more); there are {there} and def, and {into} holds {ids}"


def proposal(proposed: Layout, current: Layout, weights: Mapping[str, float], *, as_json: bool) -> None:
    """The proposal of balance: lines to paste, or JSON."""
    if as_json:
        records.one(balance_shape(proposed, current, weights).model_dump())
        return
    Table((Column("leaf", whole=True), Column("weight", right=True), Column("partition ids", wraps=True))).print(
        (name, f"{weigh(ids, weights):g}", sorted(ids, key=natural)) for name, ids in proposed.items()
    )
    if proposed == current:
        print("nothing to do: the leaves are balanced")
    else:
        paste(proposed)


def paste(layout: Layout) -> None:
    """The lines for smtpd.yaml."""
    print("for environment.database.partitions in smtpd.yaml:\n")
    print(yaml(layout))


def _others(here: Mapping[str, int]) -> str:
    """The ids in the default leaf that have mail, most first, as far as they fit."""
    most = sorted(here.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = ", ".join(f"{id_ or 'none'} ({number})" for id_, number in most[:8])
    return f"all others: {shown}{', …' if len(most) > 8 else ''}" if most else "all others"  # noqa: PLR2004 - a line's worth
