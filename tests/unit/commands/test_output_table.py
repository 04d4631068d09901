"""test_output_table — tables fit a terminal, and nothing is cut where there is none

Owns: proofs about scripts/output/table.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from scripts.commands.schedule import _COLUMNS as SCHEDULES
from scripts.output.table import Column, Table, fitted, shown, time
from scripts.queue.show import _COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime.now(UTC)
LONG = "anna.katharina.mustermann@correspondence.example.org"
ERROR = "connect to mx1.correspondence.example.org[192.0.2.7]:25: Connection refused"
MESSAGE = "01a20b5e-aa76-73b0-adbb-b33440252fac"
ROWS = [
    (1, "ACTIVE", LONG, NOW, "bounces@shop.example", 43, 3, NOW, MESSAGE, ERROR),
    (4711, "SCHEDULED", "bob@example.net", NOW, "", 43, 0, NOW, MESSAGE, None),
]


def lines(width: int | None, rows: Sequence[Sequence[object]] = ROWS) -> list[str]:
    table = Table(_COLUMNS)
    table._limit = width
    return table.lines(rows)


def test_without_a_terminal_no_cell_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    Table(_COLUMNS).print(ROWS)
    head, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[:5] == ["1", "ACTIVE", LONG, f"{NOW:%Y-%m-%dT%H:%M:%SZ}", "bounces@shop.example"]
    assert first.endswith(ERROR)
    assert MESSAGE in first, "by which the log and the 250 name it"
    assert len(head.split()) == len(second.split()) == len(_COLUMNS), "every cell is a word, also an empty one"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132, 200])
def test_a_row_is_one_line_with_the_whole_address(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    found = lines(width)
    assert len(found) == 1 + len(ROWS)
    assert LONG in found[1]
    assert "bob@example.net" in found[2]
    # Only an address that does not fit beside id and state makes a line longer than the terminal.
    assert all(len(line) <= max(width, len(LONG) + 17) for line in found)


def test_a_second_address_that_does_not_fit_is_left_out() -> None:
    columns = (Column("recipient", whole=True), Column("sender", least=8, whole=True), Column("reason", least=6))
    found = Table(columns, width=80).lines([(LONG, LONG, "why"), ("bob@example.net", LONG, "why"), ("a@b", "c@d", "e")])
    assert found[1:3] == [LONG, "bob@example.net"]
    assert found[3].split() == ["a@b", "c@d", "e"]


def test_narrow_terminals_drop_columns_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [(1, "DEFER", "r1@example.com", NOW, "s@shop.example", 43, 3, NOW, MESSAGE, ERROR)]
    names = [set(lines(width, rows)[0].split()) for width in (240, 100, 80, 60, 40)]
    assert names[0] == {column.name for column in _COLUMNS}
    for wide, narrow in pairwise(names):
        assert narrow <= wide
    assert {"id", "state", "recipient", "last_error"} <= names[2]
    assert "size" not in names[2]
    assert {"id", "state", "recipient"} <= names[-1]


def test_the_heading_is_printed_once_and_widths_do_not_shrink() -> None:
    table = Table([Column("id", right=True), Column("what")])
    assert table.lines([(100, "a")]) == [" id  what", "100  a"]
    assert table.lines([(7, "b")]) == ["  7  b"]
    assert Table([Column("id")]).lines([]) == []


def test_the_last_column_may_wrap_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    table = Table([Column("name"), Column("", wraps=True)], width=40)
    found = table.lines([("why", "one two three four five six seven eight nine ten")])
    assert found == ["name", "why   one two three four five six seven", "      eight nine ten"]


def test_an_address_is_not_broken_where_a_value_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    table = Table([Column("name"), Column("", wraps=True)], width=40)
    found = table.lines([("who", f"from {LONG} by us")])
    assert found == ["name", "who   from", f"      {LONG}", "      by us"]


def test_a_schedule_shows_its_recipient_on_a_narrow_terminal() -> None:
    row = ("weekly-report", NOW, "0 9 * * mon", [LONG], "UTC", None, "billing@example.com", "enabled")
    assert LONG in Table(SCHEDULES, width=80).lines([row])[1]


def test_values_are_readable_and_without_control_characters() -> None:
    assert shown("a\x1b[2Jb\nc", brief=True) == "a�[2Jb�c"
    assert [shown(value, brief=False) for value in (None, "", [], True, ["a", "b"], timedelta(minutes=90))] == [
        *("-", "-", "-", "yes", "a, b", "1h30m"),
    ]
    at = datetime(2026, 11, 23, 14, 5, 9, tzinfo=UTC)
    assert time(at, brief=False) == "2026-11-23T14:05:09Z"
    assert time(at, brief=True, now=at + timedelta(days=1)) == "11-23 14:05Z"
    assert time(at, brief=True, now=at + timedelta(days=400)) == "2026-11-23"


def test_wide_characters_count_as_two_columns() -> None:
    table = Table([Column("name"), Column("x")])
    assert table.lines([("日本", 1), ("abcd", 2)]) == ["name  x", "日本  1", "abcd  2"]


def test_columns_that_are_dropped_last_get_the_width() -> None:
    columns = [Column("a"), Column("b", gives=1, least=4), Column("c", gives=2, least=4)]
    assert fitted(columns, [3, 10, 10], None) == [3, 10, 10]
    assert fitted(columns, [3, 10, 10], 22) == [3, 5, 10]
    assert fitted(columns, [3, 10, 10], 15) == [3, 4, 4]
    assert fitted(columns, [3, 10, 10], 14) == [3, None, 9]
    assert fitted(columns, [3, 10, 10], 4) == [3, None, None]
