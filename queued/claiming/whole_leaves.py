"""whole_leaves — warns at the start where a worker's WHERE does not match whole leaves

Guarantees: one warning, which names the file, the key, the leaves and the remedy; the worker works all the same. A leaf
    of which a worker takes a part makes its claims walk over mail of others, and one that PostgreSQL cannot leave out
    is opened and locked by each claim in vain. Exact for conditions on the partition id; where one names other columns
    too, every leaf that it may select counts as in part.
See: docs/how-to/deliver/run-more-workers.md; `pillarbox doctor`, worker.pruning.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from shared.how_many import how_many
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from queued.claiming.leaves import Partid

_DEFAULT: Final = "queue_def_def"
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")
_NAMED: Final = 5  # leaves in the warning


async def warn(pool: database.Pool, worker: str, where: str, source: str) -> None:
    """Look at the leaves there are, and say which are selected in part or opened for nothing."""
    try:
        async with pool.connection() as connection, connection.transaction():
            await database.fetch(connection, "coverage_begin")
            leaves = {row.name: row.bound for row in await database.fetch(connection, "leaf_bounds")}
            [settings] = await database.fetch(connection, "doctor_settings")
            ids = leaf_ids(leaves, [*(str(n) for n in range(1, settings.partitions + 1)), None])
            asked = [*dict.fromkeys(partid for of_leaf in ids.values() for partid in of_leaf)]
            rows = await database.fetch(connection, "coverage_serves", where=where, partids=asked)
            [plan] = await database.fetch(connection, "doctor_pruning", where=where)
    except database.REFUSAL:
        return  # whether the condition can be used at all was asked before
    answers = {row.partid: row.serves for row in rows}
    if found := split(ids, answers, opened(plan[0])):
        named = ", ".join(f"{leaf} ({why})" for leaf, why in list(found.items())[:_NAMED])
        more = len(found) - _NAMED
        events.emit(
            "claim.leaf_in_part",
            worker=worker,
            source=source,
            leaves=named + (f" and {more} more" if more > 0 else ""),
            remedy="select whole leaves by metadata->>'_partid' IN (…), or repartition: pillarbox partitions",
        )


def leaf_ids(leaves: Mapping[str, str], configured: Sequence[Partid]) -> dict[str, list[Partid]]:
    """The partition ids of each leaf, by its bound; the default leaf has what mail can get and no other leaf takes."""
    ids: dict[str, list[Partid]] = {}
    for name, bound in leaves.items():
        if name != _DEFAULT:
            ids[name] = [text.replace("''", "'") for text in _TEXT.findall(bound)]
            ids[name] += [None] * bool(re.search(r"\bNULL\b", _TEXT.sub("", bound)))
    elsewhere = {partid for of_leaf in ids.values() for partid in of_leaf}
    if _DEFAULT in leaves:
        ids[_DEFAULT] = [partid for partid in configured if partid not in elsewhere]
    return ids


def split(
    ids: Mapping[str, Sequence[Partid]], answers: Mapping[Partid, bool | None], reads: set[str]
) -> dict[str, str]:
    """Leaves that are not served as a whole or not at all, and why; `answers` by id, None where it depends."""
    found = {}
    for leaf, of_leaf in ids.items():
        # Of mail without an id a condition about ids is NULL: it is not selected.
        said = {bool(answers[partid]) if partid is None else answers[partid] for partid in of_leaf}
        if None in said:
            found[leaf] = "it depends on more than the partition"
        elif said == {True, False}:
            mine = ", ".join(str(partid) for partid in of_leaf if answers[partid])
            found[leaf] = f"only {mine} of {how_many(len(of_leaf), 'id')}"
        elif said == {False} and leaf in reads:
            found[leaf] = "opened without any of its mail"
    return found


def opened(plan: Any) -> set[str]:
    """The tables that a plan of EXPLAIN (FORMAT JSON) reads."""
    return {node["Relation Name"] for node in _nodes(plan[0]["Plan"]) if "Relation Name" in node}


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)
