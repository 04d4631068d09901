"""where_condition — reads a worker's WHERE by PostgreSQL's own grammar

Owns: the door to pglast, which is PostgreSQL's parser as a library, and what follows from a condition's form alone:
    which columns, functions and texts it names, what a WHERE may not contain, and how far its answer for one partition
    id can be trusted.
Guarantees: pure; nothing is executed. A condition without faults is one expression, without a subquery, a parameter or
    a name from a schema other than PostgreSQL's and ours, so it is safe to let PostgreSQL look closer.
Raises: nothing; what is wrong is said in Condition.faults.
See: PostgreSQL manual, "Value Expressions"; pglast's ast module for the names of nodes.
Bugs: the grammar is that of PostgreSQL 18, whatever the server's version. Whether a function is an aggregate or
    immutable is not to be seen here: the catalog knows (sql/queries/doctor.sql, doctor_condition_immutable).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from shared.errors import ConfigError, PillarboxError
from shared.postgres.queries import check_condition

try:
    from pglast import parse_sql
    from pglast.parser import ParseError
except ImportError:
    how = "pip install 'pillarbox[doctor]'"
    raise PillarboxError(f"the doctor reads conditions by PostgreSQL's own grammar: {how}") from None

type Node = dict[str, Any]

#: Schemas that only PostgreSQL and the owner of our tables can put something into.
SCHEMAS: Final = ("pg_catalog", "pillarbox")
# What every row a worker claims has, or what the question is about; all other columns are unknown to it.
_STATUS, _METADATA, _PARTID = "status", "metadata", "_partid"

_TRANSPARENT: Final = {"BoolExpr", "TypeCast", "A_ArrayExpr"}  # unknown in, unknown out, known if nothing is unknown
_OPAQUE: Final = {
    *("NullTest", "BooleanTest", "CoalesceExpr", "MinMaxExpr", "CaseExpr", "CaseWhen", "FuncCall", "RowExpr"),
    *("A_Indirection", "A_Indices", "CollateClause"),
}
_LEAVES: Final = {"A_Const", "String", "Integer", "Float", "Boolean", "BitString", "TypeName"}
# Operators that can answer though one side is unknown.
_LENIENT: Final = {"AEXPR_DISTINCT", "AEXPR_NOT_DISTINCT", "AEXPR_NULLIF"}
_REFUSED: Final = {
    "SubLink": "a subquery",
    "ParamRef": "a parameter",
    "SetToDefault": "DEFAULT",
    "SQLValueFunction": "the time or the user of the moment",
    "GroupingFunc": "an aggregate",
    "CurrentOfExpr": "a cursor",
    "A_Star": "a whole row",
}
_CALL_EXTRAS: Final = {
    "agg_star": "an aggregate",
    "agg_distinct": "an aggregate",
    "agg_order": "an aggregate",
    "agg_filter": "an aggregate",
    "agg_within_group": "an aggregate",
    "over": "a window function",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """What the form of one WHERE tells.

    `exact`: it asks for nothing but the partition id (and the status, which is DELIVER), so its answer for an id holds
    for every row. `sound`: where it answers though other columns are unknown, the answer holds for every row.
    """

    text: str
    faults: tuple[str, ...]
    columns: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    exact: bool = False
    sound: bool = False


@dataclass(slots=True)
class _Seen:
    """What a walk through an expression has come across."""

    faults: list[str] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    unknown: bool = False  # another column than the partition id was asked
    hidden: bool = False  # and where its being unknown may not show in the answer


@cache
def read(text: str) -> Condition:
    """The condition's form."""
    try:
        check_condition(text)
        statements = parse_sql(f"SELECT FROM pillarbox.queue WHERE {text}")
    except ConfigError as error:
        return Condition(text, (str(error),))
    except ParseError as error:
        return Condition(text, (str(error.args[0]),))
    if len(statements) != 1:
        return Condition(text, ("it is more than one condition",))
    tree: Any = statements[0].stmt
    statement: Node = tree()
    seen = _Seen()
    # Standing alone it may go on after the condition; in the parentheses of a query it may not.
    if any(value for name, value in statement.items() if name.endswith("Clause") and name not in _OWN) or any(
        statement[name] for name in ("limitCount", "limitOffset", "larg")
    ):
        seen.faults.append("unexpected text after the condition")
    _walk(statement["whereClause"], seen, plain=True)
    return Condition(
        text,
        tuple(dict.fromkeys(seen.faults)),
        frozenset(seen.columns),
        frozenset(seen.functions),
        frozenset(seen.texts),
        exact=not seen.unknown,
        sound=not seen.hidden,
    )


_OWN: Final = {"fromClause", "whereClause"}


def _walk(node: Any, seen: _Seen, *, plain: bool) -> None:
    """Look at a node and all below; `plain` while an unknown column makes the whole answer unknown, if it matters."""
    if isinstance(node, tuple | list):
        for each in node:
            _walk(each, seen, plain=plain)
    if not isinstance(node, dict) or "@" not in node:
        return
    kind = node["@"]
    if kind == "ColumnRef":
        _column(node, seen, plain=plain)
    elif kind == "A_Expr":
        _operator(node, seen, plain=plain)
    elif kind in _TRANSPARENT or kind in _OPAQUE or kind in _LEAVES:
        _names(node, seen)
        for name, child in node.items():
            if name not in {"names", "funcname", "collname", "over"}:
                _walk(child, seen, plain=plain and kind not in _OPAQUE)
        if kind == "A_Const" and isinstance(node.get("val"), dict) and node["val"]["@"] == "String":
            seen.texts.add(node["val"]["sval"])
    else:
        seen.faults.append(f"{_REFUSED.get(kind, kind)} is not allowed")


def _operator(node: Node, seen: _Seen, *, plain: bool) -> None:
    names = [part["sval"] for part in node["name"]]
    kind = node["kind"]["name"]
    if len(names) > 1 and names[0] not in SCHEMAS:
        seen.faults.append(f"operator {'.'.join(names)} is not of PostgreSQL's own or ours")
    if key := _metadata_key(node):
        seen.columns.add(_METADATA)
        if key != _PARTID:
            seen.unknown = True
            seen.hidden |= not plain
        return
    strict = kind not in _LENIENT and names[-1] != "||"
    _walk(node["lexpr"], seen, plain=plain and strict)
    _walk(node["rexpr"], seen, plain=plain and strict)


def _metadata_key(node: Node) -> str | None:
    """`key` where the node is metadata->>'key'."""
    left, right = node["lexpr"], node["rexpr"]
    if (
        [part["sval"] for part in node["name"]] == ["->>"]
        and isinstance(left, dict)
        and left["@"] == "ColumnRef"
        and [part.get("sval") for part in left["fields"]] == [_METADATA]
        and isinstance(right, dict)
        and right["@"] == "A_Const"
        and isinstance(right.get("val"), dict)
        and right["val"]["@"] == "String"
    ):
        return str(right["val"]["sval"])
    return None


def _column(node: Node, seen: _Seen, *, plain: bool) -> None:
    names = [part.get("sval", "*") for part in node["fields"]]
    if len(names) != 1 or names == ["*"]:
        seen.faults.append(f"{'.'.join(names)} is not allowed: name a column of queue and nothing before it")
        return
    seen.columns.add(names[0])
    if names[0] == _METADATA:
        # Asked in another way than by ->>: a key that is not there is then an answer, not an unknown.
        seen.unknown = seen.hidden = True
    elif names[0] != _STATUS:
        seen.unknown = True
        seen.hidden |= not plain


def _names(node: Node, seen: _Seen) -> None:
    """Names of functions, types and collations, which may not come from where anybody can make one."""
    for attribute, what in (("funcname", "function"), ("names", "type"), ("collname", "collation")):
        names = [part["sval"] for part in node.get(attribute) or ()]
        if len(names) > 1 and names[0] not in SCHEMAS:
            seen.faults.append(f"{what} {'.'.join(names)} is not of PostgreSQL's own or ours")
        if names and attribute == "funcname":
            seen.functions.add(names[-1])
    if node["@"] == "FuncCall":
        seen.faults += [f"{what} is not allowed" for extra, what in _CALL_EXTRAS.items() if node.get(extra)]
