"""plan — the ordered steps from the present leaves to the wanted ones

Owns: Step and Round; the SQL of every step, from sql/queries/operation/partitions.sql. Pure.
Guarantees: leaves that change together, because an id or a name passes between them, make one round; the queue has a
    whole and valid layout before and after each round, in whatever order, and the wanted one after the last. Leaves
    that stay as they are appear in no round; a leaf that only gets another name keeps its rows where they are.
See: sql/README.md, "Repartitioning", for the reasons of the steps, and the remains of a crash at each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from operate.partitions.layout import DEFAULT, PREFIX, owner_of
from shared.postgres.queries import query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from operate.partitions.layout import Layout

#: Rows copied, or changes caught up with, in one transaction: some tens of milliseconds.
BATCH: Final = 5000
#: Few enough changes to take the lock with.
CLOSE: Final = BATCH // 5
#: Milliseconds a statement may wait for a lock while others wait behind it.
LOCK_TIMEOUT: Final = 200
#: Milliseconds to wait for a vacuum to end; no session waits behind that.
SETTLE_TIMEOUT: Final = 5000

_KEY: Final = "(metadata->>'_partid')"
# The condition of queue_def's own bound on every row below it (sql/schema/03_queue.sql).
_NOT_HELD: Final = "NOT (status IS NOT NULL AND status = 'HOLD')"


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction: its statements, and a sentence why.

    `repeat`: run until it returns less than this. `first`: what to repeat before every try, so that little is left to
    do under the lock. `alone`: the statements must not be in a transaction. `tables`: the tables to lock.
    """

    why: str
    sql: tuple[str, ...]
    repeat: int = 0
    first: str = ""
    alone: bool = False
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """Leaves that change together: suffixes of those copied from and to, and of those only renamed."""

    before: Layout
    after: Layout
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The remains of an interrupted run."""

    captured: tuple[str, ...] = ()  # leaves
    shield: bool = False
    schema: bool = False

    def __bool__(self) -> bool:
        return bool(self.captured or self.shield or self.schema)


@dataclass(slots=True)
class _Together:
    """The old and new leaves of one component."""

    old: set[str] = field(default_factory=set)
    new: set[str] = field(default_factory=set)


def rounds(existing: Layout, wanted: Layout) -> list[Round]:
    """The rounds that lead from one layout to the other, by name."""
    found = []
    layout = dict(existing)
    for together in _components(existing, wanted):
        old = {name: existing[name] for name in together.old - {DEFAULT}}
        new = {name: wanted[name] for name in together.new - {DEFAULT}}
        if old == new:
            continue
        default = {DEFAULT} if _values(old) != _values(new) else set()
        names = {ids: name for name, ids in new.items()}
        kept = {name: names[ids] for name, ids in sorted(old.items()) if ids in names}
        after = {name: ids for name, ids in layout.items() if name not in old} | new
        found.append(
            Round(
                before=layout,
                after=after,
                sources=tuple(sorted(old.keys() - kept.keys() | default)),
                targets=tuple(sorted(new.keys() - set(kept.values()) | default)),
                renames=tuple((name, other) for name, other in kept.items() if name != other),
            )
        )
        layout = after
    return found


def _values(leaves: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*leaves.values())


def _components(existing: Layout, wanted: Layout) -> list[_Together]:
    """Leaves joined by an id that passes between them or by a name, the default leaf among them."""
    leader: dict[str, str] = {}

    def find(node: str) -> str:
        while leader.setdefault(node, node) != node:
            node = leader[node]
        return node

    for name in (*existing, *wanted, DEFAULT):
        find(name)  # an old and a new leaf of one name are one node: the name passes between them
    for id_ in sorted(_values(existing) | _values(wanted)):
        leader[find(owner_of(existing, id_))] = find(owner_of(wanted, id_))
    found: dict[str, _Together] = {}
    for name in sorted(leader):
        together = found.setdefault(find(name), _Together())
        if name in existing or name == DEFAULT:
            together.old.add(name)
        if name in wanted or name == DEFAULT:
            together.new.add(name)
    return list(found.values())


def steps(change: Round, order: Sequence[str]) -> list[Step]:
    """The steps of one round; `order` is every id there is, as the database sorts text."""
    found = []
    if change.targets:
        found = [*_staging(change, order), *_copying(change)]
    return [*found, _switch(change, order)]


def _staging(change: Round, order: Sequence[str]) -> Iterator[Step]:
    yield Step("create a hidden schema for the copy", (fill("partitions_prepare"),))
    for name in change.targets:
        why = f"make the new {PREFIX}{name} there, empty and guarded"
        text = fill(
            "partitions_stage", leaf=PREFIX + name, bound=_bound(change, name, order), check=_check(change, name, order)
        )
        yield Step(why, (text,))
    if DEFAULT not in change.targets:
        leaf = PREFIX + DEFAULT
        check = " AND ".join(f"NOT ({_inside(change.after[name], order)})" for name in change.targets)
        yield Step(
            "add a CHECK that the default leaf has none of these ids",
            (fill("partitions_shield", check=check),),
            tables=(leaf,),
        )
        yield Step("prove it while mail flows", (fill("partitions_shield_validate"),), tables=(leaf,))
    for name in change.sources:
        leaf = PREFIX + name
        yield Step(f"note every change in {leaf} from now on", (fill("partitions_capture", leaf=leaf),), tables=(leaf,))


def _copying(change: Round) -> Iterator[Step]:
    for name in change.sources:
        leaf = PREFIX + name
        yield Step(
            f"copy the rows of {leaf}, {BATCH} at a time",
            (fill("partitions_copy", leaf=leaf, batch=str(BATCH)),),
            repeat=1,
        )
    yield Step("catch up with what changed meanwhile", (_catch_up(),), repeat=BATCH)
    for name in change.targets:
        yield Step(
            f"give the planner figures about the new {PREFIX}{name}", (fill("partitions_analyze", leaf=PREFIX + name),)
        )


def _switch(change: Round, order: Sequence[str]) -> Step:
    """Everything that happens under the exclusive lock, whose length does not depend on the number of rows."""
    shield = bool(change.targets) and DEFAULT not in change.targets
    names = [*change.sources, *(old for old, _ in change.renames), *([DEFAULT] if shield else [])]
    leaves = tuple(PREFIX + name for name in sorted(names))
    texts = [
        lock_timeout(SETTLE_TIMEOUT),
        fill("partitions_settle", leaves=_only(leaves)),
        lock_timeout(LOCK_TIMEOUT),
        fill("partitions_exclude", leaves=_only(("queue_def", *leaves))),
    ]
    if change.targets:
        texts.append(fill("partitions_finish", batch=str(BATCH)))
    texts += [fill("partitions_detach", leaf=PREFIX + name) for name in change.sources]
    # By way of other names, for two leaves may exchange theirs.
    for number, (old, _) in enumerate(change.renames):
        texts += _renaming(PREFIX + old, f"repartition_{number}")
    # The default leaf comes last: its bound then is what its CHECK says, all ids of all leaves.
    for name in sorted(change.targets, key=lambda name: (name == DEFAULT, name)):
        texts.append(fill("partitions_attach", leaf=PREFIX + name, bound=_bound(change, name, order)))
        texts.append(fill("partitions_name_indexes", leaf=PREFIX + name))
    for number, (_, new) in enumerate(change.renames):
        texts += _renaming(f"repartition_{number}", PREFIX + new)
    if shield:
        texts.append(fill("partitions_shield_drop"))
    if change.targets:
        texts.append(fill("partitions_clear"))
    why = "put the new leaves in place of the old ones" if change.targets else "give leaves their new names"
    return Step(why, tuple(texts), first=_catch_up() if change.targets else "", tables=("queue_def", *leaves))


def _renaming(leaf: str, name: str) -> tuple[str, str]:
    """A leaf's indexes go by its name too: under the old one they would be in the way of the next leaf of that name."""
    return fill("partitions_rename", leaf=leaf, name=name), fill("partitions_name_indexes", leaf=name)


def clearing(leftovers: Leftovers) -> list[Step]:
    """The steps that remove what an interrupted run left: leaf by leaf, so that no two are locked at once."""
    found = [
        Step(
            f"stop noting changes in {leaf}, left by an interrupted run",
            (fill("partitions_uncapture", leaf=leaf),),
            tables=(leaf,),
        )
        for leaf in leftovers.captured
    ]
    if leftovers.shield:
        found.append(Step("take an old promise back", (fill("partitions_shield_drop"),), tables=(PREFIX + DEFAULT,)))
    if leftovers.schema:
        found.append(Step("remove the workplace of an interrupted run", (fill("partitions_clear"),)))
    return found


def script(every: Iterable[Step]) -> str:
    """The steps as SQL one could run by hand."""
    parts = []
    for number, step in enumerate(every, 1):
        lines = [f"-- {number}. {step.why}"]
        if step.first:
            lines += [f"-- first, and before every further try, until it returns less than {CLOSE}:", f"{step.first};"]
        if step.repeat:
            lines.append(f"-- until it returns less than {step.repeat}:")
        body = [f"{text};" for text in step.sql]
        if not (step.repeat or step.alone):
            body = ["BEGIN;", f"{lock_timeout(LOCK_TIMEOUT)};", *body, "COMMIT;"]
        parts.append("\n".join([*lines, *body, ""]))
    return "\n".join(parts)


def lock_timeout(milliseconds: int) -> str:
    """The statement that bounds every wait for a lock in this transaction."""
    return fill("lock_timeout", milliseconds=str(milliseconds))


def _catch_up() -> str:
    return fill("partitions_catch_up", batch=str(BATCH))


def _only(leaves: Iterable[str]) -> str:
    return ", ".join(f"ONLY pillarbox.{leaf}" for leaf in leaves)


def _bound(change: Round, name: str, order: Sequence[str]) -> str:
    return "DEFAULT" if name == DEFAULT else f"FOR VALUES IN ({_values_list(change.after[name], order)})"


def _check(change: Round, name: str, order: Sequence[str]) -> str:
    if name != DEFAULT:
        return f"{_NOT_HELD} AND {_inside(change.after[name], order)}"
    everywhere = _values(change.after)
    return f"{_NOT_HELD} AND NOT ({_inside(everywhere, order)})" if everywhere else _NOT_HELD


def _inside(ids: frozenset[str], order: Sequence[str]) -> str:
    return f"{_KEY} IS NOT NULL AND {_KEY} = ANY (ARRAY[{_values_list(ids, order)}])"


def _values_list(ids: frozenset[str], order: Sequence[str]) -> str:
    return ", ".join("'" + id_.replace("'", "''") + "'" for id_ in order if id_ in ids)


def fill(name: str, /, **words: str) -> str:
    """The text of the query `name` with words in place of {word}: names and ids of ours, quoted where need be."""
    text: str = query(name)
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text
