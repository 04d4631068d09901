"""records — prints JSON for programs: one object a line for a list, one object for one thing

Owns: the form of every value in JSON, and that a list is JSON lines.
Guarantees: a line is one JSON object in ASCII, so that it is safe on a terminal and in any locale. Times are ISO 8601
    with their offset, durations as in the configuration, ids of messages text.
See: docs/reference/json.md; operate/shapes/.
"""

from __future__ import annotations

import json
import sys
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from shared.config.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def one(value: Mapping[str, Any]) -> None:
    """Print one thing."""
    print(line(value))


def tell(words: str, value: Mapping[str, Any], *, as_json: bool) -> int:
    """Print what was done, in words or as one object; the exit status 0."""
    print(line(value) if as_json else words)
    return 0


def lines(values: Iterable[Mapping[str, Any]]) -> None:
    """Print a list, one thing a line."""
    sys.stdout.writelines(f"{line(value)}\n" for value in values)


def line(value: Mapping[str, Any]) -> str:
    """One object as its line."""
    return json.dumps(value, default=_written)


def fields(row: Any) -> dict[str, Any]:
    """A row of the database as an object."""
    return {name: plain(value) for name, value in row._asdict().items()}


def plain(value: object) -> object:
    """A value as JSON has it."""
    return value if value is None or isinstance(value, bool | int | float | str | dict | list) else _written(value)


def _written(value: object) -> str:
    if isinstance(value, timedelta):
        return format_duration(value)
    return value.isoformat() if isinstance(value, date) else str(value)
