"""charts — the three charts of a report, as SVG

Owns: shares as stacked bars, waiting times as ranges on a logarithmic axis, volume as lines over time.
Guarantees: pure; each chart has a title, a description for screen readers, labelled axes with units, a legend and a
    tooltip for every mark. Colours are classes of the page's style: they differ in lightness as well as in hue, in both
    schemes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from scripts.analytics.report.markup import Markup, joined, tag
from scripts.analytics.report.text import utc, written

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDE: Final = 960
_LEFT: Final = 220
_RIGHT: Final = 110
_ROW: Final = 26
_TOP: Final = 34
_PLOT: Final = _WIDE - _LEFT - _RIGHT
_LONGEST_NAME: Final = 30
#: The ticks of a time axis, in seconds.
_SPANS: Final = (0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400, 5 * 86400)

type Row = dict[str, Any]


def stacked(title: str, rows: Sequence[Row], name: str, parts: Sequence[tuple[str, str]], total: str) -> Markup:
    """A bar for each row, divided into shares. parts: field and colour class; total: the field that adds them up."""
    marks: list[Markup] = []
    for number, row in enumerate(rows):
        top, at, whole = _TOP + number * _ROW, float(_LEFT), float(row[total] or 0) or 1.0
        marks.append(_name(row[name], top))
        for field, colour in parts:
            wide = _PLOT * float(row[field] or 0) / whole
            if wide > 0:
                said = f"{field}: {written(row[field], 'count')}, {written(row[field] / whole, 'share')}"
                bar = tag("title", f"{written(row[name], 'text')}, {said}")
                marks.append(tag("rect", bar, x=at, y=top + 4, width=wide, height=_ROW - 8, class_=f"bar {colour}"))
            at += wide
        marks.append(tag("text", written(row[total], "count"), x=_WIDE - _RIGHT + 8, y=top + 17, class_="value"))
    ticks = [(share / 4, f"{share * 25} %") for share in range(5)]
    return _chart(
        title,
        f"share of {total} for each row",
        rows,
        joined(marks, _over(total)),
        ticks,
        f"share of {total} (%)",
        parts,
    )


def bars(title: str, rows: Sequence[Row], name: str, share: str) -> Markup:
    """A bar for each row, as long as its share."""
    marks: list[Markup] = []
    longest = max([float(row[share] or 0) for row in rows] + [0.0001])
    most = next(step for step in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if longest <= step or step == 1.0)
    for number, row in enumerate(rows):
        top, part = _TOP + number * _ROW, float(row[share] or 0)
        said = f"{written(row[name], 'text')}: {written(part, 'share')}"
        wide = max(_PLOT * part / most, 1.0)
        marks += [
            _name(row[name], top),
            tag("rect", tag("title", said), x=_LEFT, y=top + 4, width=wide, height=_ROW - 8, class_="bar good"),
            tag("text", written(part, "share"), x=_WIDE - _RIGHT + 8, y=top + 17, class_="value"),
        ]
    ticks = [(step / 4, f"{most * step * 25:g} %") for step in range(5)]
    return _chart(title, f"{share} of each row", rows, marks, ticks, "share of all (%)", ())


def ranges(title: str, rows: Sequence[Row], name: str) -> Markup:
    """A line for each row from p50 to p99, with a mark at p90, on a logarithmic time axis."""
    shown = [row for row in rows if row["p50"] is not None]
    least = min([float(row["p50"]) for row in shown] + [1.0])
    most = max([float(row["p99"]) for row in shown] + [10.0])
    low = max((span for span in _SPANS if span <= least), default=_SPANS[0])
    high = min((span for span in _SPANS if span >= most), default=most)

    def place(seconds: float) -> float:
        return _LEFT + _PLOT * math.log(max(seconds, low) / low) / math.log(max(high / low, 1.001))

    marks: list[Markup] = []
    points = (("p50", "good", 6), ("p90", "late", 5), ("p99", "bad", 5))
    for number, row in enumerate(shown):
        middle = _TOP + number * _ROW + _ROW / 2
        marks.append(_name(row[name], _TOP + number * _ROW))
        marks.append(tag("line", x1=place(row["p50"]), y1=middle, x2=place(row["p99"]), y2=middle, class_="range"))
        for field, colour, size in points:
            said = tag("title", f"{written(row[name], 'text')}: {field[1:]} % within {written(row[field], 'seconds')}")
            marks.append(tag("circle", said, cx=place(row[field]), cy=middle, r=size, class_=colour))
        right = {"x": _WIDE - _RIGHT + 12, "y": middle + 4, "class_": "value"}
        marks.append(tag("text", f"{written(row['recipients'], 'count')}", **right))
    ticks = [
        ((place(span) - _LEFT) / _PLOT, written(span, "seconds")) for span in _SPANS if low <= span <= high * 1.001
    ]
    legend = (("half within", "good"), ("90 % within", "late"), ("99 % within", "bad"))
    return _chart(
        title,
        "percentiles for each row",
        shown,
        joined(marks, _over("recipients")),
        ticks,
        "time from receipt, logarithmic",
        legend,
    )


def lines(title: str, known: Sequence[Row], coming: Sequence[Row]) -> Markup:
    """Attempts over time, the usual number, the unusual hours, and the forecast with its band."""
    hours = [utc(row["hour"]) for row in (*known, *coming)]
    first, span = hours[0], max((hours[-1] - hours[0]).total_seconds(), 1.0)
    most = _round_up(max([row["attempts"] for row in known] + [row["high"] for row in coming] + [1]))
    left, wide, high = 70, _WIDE - 80, 240

    def x(row: Row) -> float:
        return float(left + wide * (utc(row["hour"]) - first).total_seconds() / span)

    def y(value: float) -> float:
        return _TOP + high * (1 - float(value) / most)

    def path(rows: Sequence[Row], field: str) -> str:
        return " ".join(f"{x(row):.1f},{y(row[field]):.1f}" for row in rows)

    marks: list[Markup] = []
    for step in range(5):
        value = most * step / 4
        marks.append(tag("line", x1=left, x2=left + wide, y1=y(value), y2=y(value), class_="grid"))
        marks.append(
            tag("text", written(int(value), "count"), x=left - 8, y=y(value) + 4, class_="tick", text_anchor="end")
        )
    days = [hour for hour in hours if hour.hour == 0]
    for day in days[:: max(1, math.ceil(len(days) / 12))]:
        at = left + wide * (day - first).total_seconds() / span
        marks.append(tag("line", x1=at, x2=at, y1=_TOP, y2=_TOP + high, class_="grid"))
        marks.append(tag("text", day.strftime("%d %b"), x=at, y=_TOP + high + 18, class_="tick", text_anchor="middle"))
    if coming:
        band = f"{path(coming, 'high')} {path(list(reversed(coming)), 'low')}"
        marks += [
            tag("polygon", points=band, class_="band"),
            tag("polyline", points=path(coming, "expected"), class_="expected"),
        ]
    marks += [
        tag("polyline", points=path(known, "usual"), class_="usual"),
        tag("polyline", points=path(known, "attempts"), class_="attempts"),
    ]
    for row in known:
        if row["unusual"]:
            usual = f"usual {written(row['usual'], 'number')}"
            said = f"{written(row['hour'], 'instant')}: {written(row['attempts'], 'count')}, {usual}"
            marks.append(tag("circle", tag("title", said), cx=x(row), cy=y(row["attempts"]), r=5, class_="odd"))
    marks.append(tag("text", "attempts an hour", x=0, y=16, class_="axis"))
    marks.append(tag("text", "time (UTC)", x=left + wide, y=_TOP + high + 36, class_="axis", text_anchor="end"))
    legend = (
        ("attempts", "attempts"),
        ("usual", "usual"),
        ("expected (band: 90 % of hours)", "expected"),
        ("unusual", "odd"),
    )
    return _svg(title, "attempts in each hour, with a forecast", _TOP + high + 44, joined(marks, _lines_legend(legend)))


def _chart(
    title: str,
    said: str,
    rows: Sequence[Row],
    marks: Sequence[Markup] | Markup,
    ticks: Sequence[tuple[float, str]],
    axis: str,
    legend: Sequence[tuple[str, str]],
) -> Markup:
    """Marks in rows over an axis with ticks, each at its share of the width."""
    bottom = _TOP + len(rows) * _ROW
    grid: list[Markup] = []
    for share, text in ticks:
        at = _LEFT + _PLOT * share
        grid.append(tag("line", x1=at, x2=at, y1=_TOP, y2=bottom, class_="grid"))
        grid.append(tag("text", text, x=at, y=bottom + 16, class_="tick", text_anchor="middle"))
    named = tag("text", axis, x=_LEFT + _PLOT / 2, y=bottom + 34, class_="axis", text_anchor="middle")
    keys: list[Markup] = []
    at = float(_LEFT)
    for text, colour in legend:
        keys.append(tag("rect", x=at, y=8, width=12, height=12, class_=colour))
        keys.append(tag("text", text, x=at + 18, y=18, class_="key"))
        at += 40 + 7.5 * len(text)
    return _svg(title, said, bottom + 42, joined(grid, marks, named, keys))


def _lines_legend(legend: Sequence[tuple[str, str]]) -> list[Markup]:
    keys: list[Markup] = []
    at = 230.0
    for text, kind in legend:
        if kind == "odd":
            keys.append(tag("circle", cx=at + 12, cy=14, r=5, class_=kind))
        else:
            keys.append(tag("polyline", points=f"{at},14 {at + 24},14", class_=kind))
        keys.append(tag("text", text, x=at + 30, y=18, class_="key"))
        at += 60 + 7 * len(text)
    return keys


def _svg(title: str, said: str, high: float, content: Markup) -> Markup:
    view = {"viewBox": f"0 0 {_WIDE} {high:.0f}", "role": "img", "aria_label": f"{title}: {said}"}
    return tag("figure", tag("svg", content, **view))


def _over(text: str) -> Markup:
    """The heading of the numbers at the right."""
    return tag("text", text, x=_WIDE - _RIGHT + 8, y=18, class_="key")


def _name(value: object, top: float) -> Markup:
    text = written(value, "text")
    short = text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"
    return tag("text", tag("title", text), short, x=_LEFT - 10, y=top + 17, class_="name", text_anchor="end")


def _round_up(value: float) -> float:
    """The next number whose quarters are easy to read."""
    power = 10.0 ** math.floor(math.log10(max(value, 1)))
    return next((step * power for step in (1, 1.2, 1.6, 2, 3, 4, 6, 8) if value <= step * power), 10 * power)
