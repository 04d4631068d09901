"""queries — SQL by name, from the sections `-- name: x` of sql/queries/*/*.sql

Owns: reading them once, and filling in the variable parts of a query: an operator's WHERE for {where}, a compiled
    condition for {condition}.
Guarantees: values are always bound parameters. The only text ever inserted is the worker's own WHERE, which its
    operator wrote and PostgreSQL checked at start (sql/queries/delivery/claim.sql, claim_probe), and words from a fixed
    list, of which operate.condition.compile makes conditions.
Raises: KeyError for a query that does not exist; ConfigError for a condition that could end the enclosing one.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, LiteralString

from shared.config.where_condition import check_condition

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"%(?:%|\((\w+)\)s)")


def query(name: str) -> LiteralString:
    """The query of this name without its comments.

    A LiteralString because the text comes from our own package, never from input.
    """
    return _queries()[name]


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The name and the text, comments included, of each section of a file."""
    _, *found = _NAME.split(text)
    yield from zip(found[::2], found[1::2], strict=True)


@cache
def _queries() -> dict[str, LiteralString]:
    """Every query by its name."""
    rooms = [each for each in (files("sql") / "queries").iterdir() if each.is_dir()]
    texts = (
        each.read_text(encoding="utf-8") for room in rooms for each in room.iterdir() if each.name.endswith(".sql")
    )
    return {name: _COMMENT.sub("", body).strip() for text in texts for name, body in sections(text)}


@lru_cache(maxsize=64)
def where_query(name: str, where: str, **parts: str) -> LiteralString:
    """The query with the worker's own condition in place of {where}, and the other parts as in `filled_query`.

    The condition is the operator's SQL, checked as one parenthesised expression. Percent signs are doubled, because the
    driver reads a single one as a parameter.
    """
    check_condition(where)
    return filled_query(name, **parts, where=where.replace("%", "%%"))


@lru_cache(maxsize=64)
def numbered(text: LiteralString) -> tuple[bytes, tuple[str, ...]]:
    """The query with $1, $2 … in place of its %(name)s, and their names in this order."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${numbers.setdefault(found[1], len(numbers) + 1)}" if found[1] else "%"

    return _PLACEHOLDER.sub(number, text).encode(), tuple(numbers)


def filled_query(name: str, **parts: str) -> LiteralString:
    """The query with each {name} replaced by its part: SQL that our own code put together, with its values bound."""
    text = query(name)
    for placeholder, part in parts.items():
        text = text.replace(f"{{{placeholder}}}", part)
    return text
