"""table — prints rows as a table: one line a row, as wide as the terminal, and whole where there is none

Owns: the only table printer of the commands; which columns give way on a narrow terminal, and the form of each value.
Guarantees: what is written to a pipe or a file is never cut: each value is whole, on one line, and without spaces in
    times. On a terminal a row is one line, save in tables whose last column wraps. An address is whole everywhere. No
    value can act on a terminal (scripts/terminal.py).
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size

from scripts.terminal import printable
from shared.config.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GAP: Final = "  "
_EMPTY: Final = "-"
_ELLIPSIS: Final = "…"
_RECENT: Final = timedelta(days=300)
_NARROWEST: Final = 24  # characters of a last column that wraps
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    gives: the order in which columns are left out on a narrow terminal, 1 first; 0 is never left out.
    least: characters that the column may be cut to; None: it is never cut.
    whole: a longer value is not cut either, but moves the rest of its row; what then does not fit is left out there.
    right: aligned to the right, for numbers. wraps: for the last column: a long value goes on in the next line, but no
    word is broken, so that an address, an id or a URL can be copied.
    """

    name: str
    gives: int = 0
    least: int | None = None
    whole: bool = False
    right: bool = False
    wraps: bool = False


class Table:
    """A table that is printed a portion at a time; its heading is printed once, before the first row."""

    def __init__(self, columns: Sequence[Column], *, head: bool = True, width: int | None = None) -> None:
        """`width`: characters in a line; by default the terminal's, and no limit where there is none."""
        self._columns = columns
        self._head = head
        self._limit = terminal_width() if width is None else width
        self._widths = [0] * len(columns)

    def print(self, rows: Iterable[Sequence[object]]) -> None:
        """Print these rows."""
        for line in self.lines(rows):
            print(line)

    def lines(self, rows: Iterable[Sequence[object]]) -> list[str]:
        """These rows as lines, without the spaces at their ends."""
        brief = self._limit is not None
        cells = [[shown(value, brief=brief) for value in row] for row in rows]
        if not cells:
            return []
        names = [[column.name for column in self._columns]] if self._head else []
        for index in range(len(self._columns)):
            longest = max(cell_len(row[index]) for row in (*names, *cells))
            self._widths[index] = max(self._widths[index], longest)
        widths = fitted(self._columns, self._widths, self._limit)
        lines = [line for row in cells for line in self._row(row, widths)]
        if self._head:
            [head] = self._row(names[0], widths)[:1]
            lines.insert(0, f"{_BOLD}{head}{_PLAIN}" if brief and "NO_COLOR" not in os.environ else head)
        self._head = False
        return lines

    def _row(self, cells: Sequence[str], widths: Sequence[int | None]) -> list[str]:
        """One row: one line, or more where its last column wraps."""
        line, late = "", 0  # late: characters that this row is behind its columns, after a value longer than its column
        has_whole = False  # a value that is never cut: it is the one to keep
        *first, last = [index for index, width in enumerate(widths) if width is not None]
        for index in first:
            column, cell, width = self._columns[index], cells[index], widths[index] or 0
            cell = cell if column.whole else _cut(cell, width)
            spare = width - cell_len(cell) - late
            late = max(-spare, 0)
            may_go = has_whole or not column.whole
            if late and may_go and self._limit is not None and cell_len(line + cell) > self._limit:
                return [line.rstrip()]
            has_whole = has_whole or column.whole
            line += (" " * spare + cell if column.right else cell + " " * spare) + _GAP
        column, cell, width = self._columns[last], cells[last], widths[last] or 0
        if column.wraps:
            return _wrapped(line, cell, self._limit)
        if late and self._limit is not None and cell_len(line + cell) > self._limit and column.least is None:
            return [line.rstrip()]
        if column.least is not None and not column.whole:
            cell = _cut(cell, width - late)
        return [(line + (" " * (width - cell_len(cell)) if column.right else "") + cell).rstrip()]


def terminal_width() -> int | None:
    """Characters in a line of standard output; None where it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(columns: Sequence[Column], widths: Sequence[int], limit: int | None) -> list[int | None]:
    """The width of each column in a line of `limit` characters; None: left out. `widths`: what each would need."""
    if limit is None:
        return list(widths)
    least = [_least(column, width) for column, width in zip(columns, widths, strict=True)]
    kept = set(range(len(columns)))
    for index in sorted((i for i in kept if columns[i].gives), key=lambda i: columns[i].gives):
        if _total(least[i] for i in kept) <= limit:
            break
        kept.discard(index)
    found: list[int | None] = [least[i] if i in kept else None for i in range(len(columns))]
    room = limit - _total(least[i] for i in kept)
    # What stays longest gets the room first.
    for index in sorted(kept, key=lambda i: -(columns[i].gives or sys.maxsize)):
        more = max(min(room, widths[index] - least[index]), 0)
        found[index] = least[index] + more
        room -= more
    return found


def _least(column: Column, width: int) -> int:
    if column.wraps:
        return min(width, _NARROWEST)
    return width if column.least is None else min(width, column.least)


def _total(widths: Iterable[int]) -> int:
    each = list(widths)
    return sum(each) + len(_GAP) * max(len(each) - 1, 0)


def pairs(values: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one a line, times to the second; long values go on below themselves."""
    rows = ((name, shown(value, brief=False)) for name, value in values)
    Table([Column("", whole=True), Column("", wraps=True)], head=False).print(rows)


def shown(value: object, *, brief: bool) -> str:
    """A value as one line of text. brief: times to the minute, for a terminal; else to the second."""
    match value:
        case None | "":
            return _EMPTY
        case bool():
            return "yes" if value else "no"
        case datetime():
            return time(value, brief=brief)
        case timedelta():
            return format_duration(value)
        case list() | tuple() | set() | frozenset():
            return ", ".join(map(printable, value)) or _EMPTY
        case _:
            return printable(value)


def time(at: datetime, *, brief: bool, now: datetime | None = None) -> str:
    """A time in UTC: 2026-11-23T14:05:09Z; brief: 11-23 14:05Z, or the day alone where it is long ago or far off."""
    utc = at.astimezone(UTC)
    if not brief:
        return f"{utc:%Y-%m-%dT%H:%M:%SZ}"
    return f"{utc:%m-%d %H:%MZ}" if abs((now or datetime.now(UTC)) - utc) < _RECENT else f"{utc:%Y-%m-%d}"


def _cut(cell: str, width: int) -> str:
    if cell_len(cell) <= width:
        return cell
    return set_cell_size(cell, width - 1).rstrip() + _ELLIPSIS if width > 0 else ""


def _wrapped(line: str, cell: str, limit: int | None) -> list[str]:
    """The row with its last column, which goes on under itself."""
    if limit is None:
        return [(line + cell).rstrip()]
    indent = min(cell_len(line), max(limit - _NARROWEST, 0))
    room = max(limit - cell_len(line), 1)
    if cell_len(cell) <= room:
        return [(line + cell).rstrip()]
    words = textwrap.wrap(cell, max(limit - indent, 1), break_on_hyphens=False, break_long_words=False) or [""]
    if room < _NARROWEST:
        return [line.rstrip(), *(" " * indent + each for each in words)]
    return [line + words[0], *(" " * indent + each for each in words[1:])]
