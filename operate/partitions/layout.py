"""layout — the partition ids of each leaf, and the layouts that split, merge and move make

Owns: Layout, the parsing of a leaf's bound as PostgreSQL prints it, and the valid names and ids. Pure.
Guarantees: a layout that is returned names no id twice, no empty leaf, and never the default leaf `def`, which holds
    every other id and rows without one. Each verb asked for again on its own result changes nothing.
Raises: PillarboxError in one line that names the given and the allowed values.
See: shared/config/environment.py for the same rules in smtpd.yaml; sql/README.md, "Repartitioning".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from shared.errors import PillarboxError
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Suffix of the leaf (queue_def_SUFFIX) → its partition ids; every other id belongs to DEFAULT.
type Layout = dict[str, frozenset[str]]

DEFAULT: Final = "def"
PREFIX: Final = "queue_def_"

# A leaf and an index cannot have the same name; those of a leaf x are x_id_key, x_queue_due, x_idx1 …
_NAME = re.compile(r"(?!def$)(?![a-z0-9_]*(?:_idx[0-9]*|_key|_queue_[a-z_]+)$)[a-z0-9_]{1,32}")
_ALLOWED = "1 to 32 of a-z, 0-9 and underscore, other than def, not ending like an index (_idx, _key, _queue_due)"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VALUES = re.compile(r"FOR VALUES IN \((.*)\)", re.DOTALL)
_LITERAL = re.compile(r"(E?)'((?:[^']|'')*)'(?:, |$)")


def parse_bound(leaf: str, bound: str) -> frozenset[str]:
    """The ids of a leaf from pg_get_expr of its bound; `FOR VALUES IN (NULL)` is refused."""
    values = _VALUES.fullmatch(bound)
    text = values[1] if values else ""
    found, end = [], 0
    for literal in _LITERAL.finditer(text):
        if literal.start() != end:
            break
        end = literal.end()
        value = literal[2].replace("''", "'")
        found.append(value.replace("\\\\", "\\") if literal[1] else value)
    if end != len(text) or not found:
        raise PillarboxError(
            f"{leaf}: its bound {bound} is not a list of partition ids; rows without one belong in def"
        )
    return frozenset(found)


def suffix_of(leaf: str) -> str:
    """`123` for `queue_def_123`; a leaf of another name is not ours to touch."""
    suffix = leaf.removeprefix(PREFIX)
    if not leaf.startswith(PREFIX) or not (_NAME.fullmatch(suffix) or suffix == DEFAULT):
        raise PillarboxError(f"{leaf}: not a leaf of ours; allowed: {PREFIX} and {_ALLOWED}")
    return suffix


def wanted(leaves: Mapping[str, Iterable[str]]) -> Layout:
    """A layout from written names and ids; each name usable, each id in one leaf."""
    owner: dict[str, str] = {}
    layout: Layout = {}
    for name, ids in leaves.items():
        _check(_NAME, name, "leaf", _ALLOWED)
        layout[name] = frozenset(ids)
        if not layout[name]:
            raise PillarboxError(f"leaf {name}: no partition ids; allowed: at least one")
        for id_ in sorted(layout[name]):
            if owner.setdefault(id_, name) != name:
                raise PillarboxError(f"id {id_}: in leaf {owner[id_]} and in leaf {name}; allowed: each id in one leaf")
    return layout


def owner_of(layout: Layout, id_: str) -> str:
    """The leaf of this id."""
    return next((name for name, ids in layout.items() if id_ in ids), DEFAULT)


def read_parts(words: Sequence[str]) -> Layout:
    """`NAME=id,id …` as written on the command line."""
    parts: dict[str, list[str]] = {}
    for word in words:
        name, equals, ids = word.partition("=")
        if not equals or name in parts:
            raise PillarboxError(f"{show(word)}: not usable; allowed: NAME=ID,ID… with each NAME once")
        parts[name] = [id_.strip() for id_ in ids.split(",") if id_.strip()]
        for id_ in parts[name]:
            check_id(id_)
    return wanted(parts)


def check_id(id_: str) -> None:
    """Refuse what smtpd.yaml would refuse as a partition id."""
    _check(_ID, id_, "id", "1 to 64 letters, digits, dots, underscores and hyphens")


def split(layout: Layout, leaf: str, parts: Layout) -> Layout:
    """Ids of `leaf` (DEFAULT allowed) in leaves of their own; ids not named stay where they are."""
    name = _plain(leaf)
    if not parts:
        raise PillarboxError("split needs at least one NAME=ID,ID…")
    if all(layout.get(part) == ids for part, ids in parts.items()):
        return layout
    if name != DEFAULT:
        _known(layout, name)
    for part, ids in parts.items():
        if part in layout and part != name:
            raise PillarboxError(f"leaf {part}: is there already; allowed: a new name, or {name} itself")
        for id_ in sorted(ids):
            if owner_of(layout, id_) != name:
                raise PillarboxError(f"id {id_}: is in leaf {owner_of(layout, id_)}, not in {name}")
    left = layout.get(name, frozenset()) - frozenset[str]().union(*parts.values())
    if left and name in parts:
        raise PillarboxError(f"leaf {name}: ids {', '.join(sorted(left))} would stay in it; name them in {name}=… too")
    rest = {other: ids for other, ids in layout.items() if other != name}
    return wanted(rest | ({name: left} if left else {}) | parts)


def merge(layout: Layout, leaves: Sequence[str], into: str) -> Layout:
    """The ids of these leaves in one leaf; the others go."""
    names, target = {_plain(leaf) for leaf in leaves}, _plain(into)
    if DEFAULT in names | {target}:
        raise PillarboxError("leaf def: cannot be merged; allowed: `move ID def` for each id that is to go there")
    if target in layout and not (names - {target}) & layout.keys():
        return layout
    for name in sorted(names):
        _known(layout, name)
    if target in layout and target not in names:
        raise PillarboxError(f"leaf {target}: is there already; name it among the leaves to merge, or another NAME")
    together = frozenset[str]().union(*(layout[name] for name in names))
    return wanted({name: ids for name, ids in layout.items() if name not in names} | {target: together})


def absent(layout: Layout, leaves: Sequence[str]) -> list[str]:
    """The named leaves that do not exist: merged before, or misspelt."""
    return sorted({_plain(leaf) for leaf in leaves} - layout.keys())


def move(layout: Layout, id_: str, leaf: str) -> Layout:
    """One id in another leaf, or in DEFAULT; a leaf that loses its last id goes."""
    check_id(id_)
    target = _plain(leaf)
    if target != DEFAULT:
        _known(layout, target)
    moved = {name: ids - {id_} | ({id_} if name == target else frozenset()) for name, ids in layout.items()}
    return wanted({name: ids for name, ids in moved.items() if ids})


def yaml(layout: Layout) -> str:
    """The lines for environment.database.partitions of smtpd.yaml."""
    lines = [
        f'  "{name}": [{", ".join(quoted)}]'
        for name, ids in sorted(layout.items(), key=lambda leaf: natural(min(leaf[1], key=natural)))
        for quoted in [[f'"{id_}"' for id_ in sorted(ids, key=natural)]]
    ]
    return "\n".join(["leaves:", *lines]) if lines else "leaves: {}"


def natural(id_: str) -> tuple[tuple[int, str], ...]:
    """A key that puts 2 before 10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", id_) if part)


def _plain(leaf: str) -> str:
    return leaf.removeprefix(PREFIX)


def _known(layout: Layout, name: str) -> None:
    if name not in layout:
        raise PillarboxError(f"leaf {name}: not there; there are {', '.join(sorted(layout)) or 'none'} and def")


def _check(pattern: re.Pattern[str], given: str, what: str, allowed: str) -> None:
    if not pattern.fullmatch(given):
        raise PillarboxError(f"{what} {show(given)}: not usable; allowed: {allowed}")
