"""text — a report as tables for a terminal and as JSON for programs

Owns: the text form of each kind of value; the JSON document.
Guarantees: pure apart from printing; the JSON has every row that the page has, numbers as numbers, instants in ISO
    8601 UTC. Text from mail is printed without control characters.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from scripts.analytics.report.sections import SECTIONS
from scripts.output.table import Column, Table
from shared.how_many import how_many

if TYPE_CHECKING:
    from scripts.analytics.report.sections import Field, Kind, Report

DASH: Final = "\u2013"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_NUMBERS: Final = frozenset({"count", "share", "seconds", "number"})
_SHOWN: Final = 15  # rows of a table on a terminal
_LAST: Final = 99  # to give way
#: Columns of text that may be cut on a narrow terminal.
_CUT: Final = frozenset({"wording", "reply_text"})


def written(value: Any, kind: Kind) -> str:  # noqa: PLR0911 - one return for each kind
    """A value for people; an empty value is a dash."""
    if value is None:
        return DASH
    match kind:
        case "count":
            return f"{value:,}".replace(",", "\u2009")
        case "share":
            return f"{value * 100:.1f} %"
        case "number":
            return f"{value:,.1f}".replace(",", "\u2009")
        case "seconds":
            return _span(float(value))
        case "instant":
            return utc(value).strftime("%Y-%m-%d %H:%M")
        case "text":
            return "".join(letter if letter.isprintable() else "�" for letter in str(value))


def is_number(field: Field) -> bool:
    """Whether this column is aligned to the right."""
    return field.kind in _NUMBERS


def as_document(report: Report) -> dict[str, Any]:
    """The whole report as a JSON value."""
    return {
        "since": report.since.isoformat(),
        "until": report.until.isoformat(),
        "made": report.made.isoformat(),
        "origin": report.origin,
        "leaves": report.leaves,
        "sections": [
            {
                "key": section.key,
                "title": section.title,
                "meaning": section.meaning,
                "more": section.key in report.cut,
                "columns": [field.name for field in section.fields],
                "rows": [
                    {field.name: _plain(row[field.name]) for field in section.fields}
                    for row in report.rows.get(section.key, [])
                ],
            }
            for section in SECTIONS
        ],
    }


def print_tables(report: Report) -> None:
    """Print every section except the long series as a table on standard output."""
    for section in SECTIONS:
        rows = report.rows.get(section.key, [])
        if section.key in {"volume", "forecast"}:
            continue
        print(f"\n{section.title}")
        fields = [field for field in section.fields if field.name != "example"]
        Table([_column(index, field) for index, field in enumerate(fields)]).print(
            [written(row[field.name], field.kind) for field in fields] for row in rows[:_SHOWN]
        )
        if section.key == "unusual" and (unjudged := not_judged(report)):
            print(f"  {unjudged}")
        if not rows:
            print("  none")
        elif len(rows) > _SHOWN or section.key in report.cut:
            print(f"  … of {how_many(len(rows), 'row')}{' or more' if section.key in report.cut else ''}")


def not_judged(report: Report) -> str:
    """How many hours were not judged and what that needs, in one sentence; empty where all were."""
    hours = report.rows.get("volume", [])
    unjudged = sum(row["score"] is None for row in hours)
    if not unjudged:
        return ""
    needs = "three days like theirs are needed: three working days, or two week-ends"
    return f"not judged: {unjudged} of {how_many(len(hours), 'hour')}; {needs}"


def _column(index: int, field: Field) -> Column:
    """A column; on a narrow terminal the first two stay longest, and the others give way from the left."""
    gives = _LAST if index == 1 else index
    if is_number(field):
        return Column(field.label, gives=gives, right=True)
    return Column(field.label, gives=0 if field.name in _CUT else gives, least=16, whole=field.name not in _CUT)


def _span(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits are enough
    for unit, name, limit in ((_MINUTE, "min", _HOUR), (_HOUR, "h", 2 * _DAY)):
        if seconds < limit:
            return f"{seconds / unit:.1f} {name}".replace(".0 ", " ")
    return f"{seconds / _DAY:.1f} d".replace(".0 ", " ")


def utc(value: datetime) -> datetime:
    """The instant in UTC: Spark returns local time without a zone."""
    return value.astimezone(UTC)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return utc(value).isoformat()
    return value
