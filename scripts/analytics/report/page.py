"""page — a report as one self-contained HTML page

Owns: the page: its head with the policy that forbids every request and script, the figures at the top, a chart and a
    table for each section.
Guarantees: pure; scripts.analytics.report.markup escapes all text. The page loads no script, font, image or other
    address.
See: W3C Content Security Policy Level 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scripts.analytics.report import charts
from scripts.analytics.report.markup import Markup, joined, tag
from scripts.analytics.report.sections import SECTION, SECTIONS
from scripts.analytics.report.style import STYLE
from scripts.analytics.report.text import is_number, not_judged, written
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scripts.analytics.report.sections import Report, Section

_CHARTED: Final = 12  # rows of a chart
_TABLED: Final = 100
_OUTCOMES: Final = (("delivered", "good"), ("deferred", "late"), ("failed", "bad"), ("lost", "lost"))
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
#: Long series, whose tables are folded because the chart shows them better.
_FOLDED: Final = frozenset({"volume", "forecast"})


def page(report: Report) -> str:
    """The page as text."""
    period = f"{written(report.since, 'instant')} to {written(report.until, 'instant')} UTC"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", f"Pillarbox report, {period}"),
        Markup(f"<style>{STYLE}</style>"),
    )
    body = tag(
        "body",
        tag("h1", "Pillarbox report"),
        tag("p", f"{period}. Created {written(report.made, 'instant')} UTC from {report.origin}."),
        _overview(report),
        tag("nav", [joined(tag("a", section.title, href=f"#{section.key}"), " ") for section in SECTIONS]),
        [_section(section, report) for section in SECTIONS],
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _overview(report: Report) -> Markup:
    """The most important figures."""
    transports, times = report.rows.get("transports", []), report.rows.get("queue_time", [])
    attempts, delivered = (sum(row[name] for row in transports) for name in ("attempts", "delivered"))
    known = [row for row in report.rows.get("encryption", []) if row["tls"] != "(unknown)"]
    tls = sum(row["share"] for row in known if row["tls"] != "none") if known else None
    shown = [
        ("attempts", written(attempts, "count")),
        ("delivered of attempts", written(delivered / attempts if attempts else None, "share")),
        ("half of all mail leaves the queue within", written(times[0]["p50"] if times else None, "seconds")),
        ("99 % within", written(times[0]["p99"] if times else None, "seconds")),
        ("delivered over TLS", written(tls, "share")),
        ("unusual hours", written(len(report.rows.get("unusual", [])), "count")),
    ]
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in shown])


def _section(section: Section, report: Report) -> Markup:
    rows = report.rows.get(section.key, [])
    table = _table(section, rows, cut=section.key in report.cut)
    if section.key in _FOLDED and rows:
        table = tag("details", tag("summary", f"{how_many(len(rows), 'hour')} as a table"), table)
    extra: Markup | str = _leaves(report) if section.key == "weights" else ""
    if section.key == "unusual" and (unjudged := not_judged(report)):
        extra = tag("p", f"{unjudged}.")
    chart = _chart(section.key, report) if rows else ""
    return tag("section", tag("h2", section.title), tag("p", section.meaning), chart, extra, table, id=section.key)


def _chart(key: str, report: Report) -> Markup:  # noqa: PLR0911 - one return for each chart
    """The chart of a section; empty if a table shows it better."""
    rows = report.rows[key][:_CHARTED]
    title, first = SECTION[key].title, SECTION[key].fields[0].name
    match key:
        case "volume":
            return charts.lines(title, report.rows[key], report.rows.get("forecast", []))
        case "destinations" | "senders" | "transports" | "sources" | "campaigns" | "providers":
            return charts.stacked(title, rows, first, _OUTCOMES, "attempts")
        case "steps":
            return charts.stacked(
                title, [row | {"step": f"try {row['step']}"} for row in rows], "step", _OUTCOMES, "attempts"
            )
        case "delivery_time" | "transport_time" | "queue_time":
            return charts.ranges(title, rows, first)
        case "encryption":
            return charts.bars(title, rows, "tls", "share")
        case "weights":
            return charts.bars(title, rows, "partid", "share")
    return Markup("")


def _table(section: Section, rows: Sequence[dict[str, Any]], *, cut: bool) -> Markup:
    if not rows:
        return tag("p", "None in this period.")
    shown = rows if section.key in _FOLDED else rows[:_TABLED]
    head = [tag("th", field.label, class_="n" if is_number(field) else None, scope="col") for field in section.fields]
    body = [
        tag(
            "tr",
            [
                tag("td", written(row[field.name], field.kind), class_="n" if is_number(field) else None)
                for field in section.fields
            ],
        )
        for row in shown
    ]
    more = (
        tag("p", f"The first {how_many(len(shown), 'row')}; the JSON has more, up to --top.")
        if cut or len(rows) > len(shown)
        else ""
    )
    return joined(tag("div", tag("table", tag("thead", tag("tr", head)), tag("tbody", body)), class_="scroll"), more)


def _leaves(report: Report) -> Markup | str:
    """The recommended leaves, and the command that proposes them."""
    if not report.leaves:
        return ""
    said = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in report.leaves.items())
    return tag(
        "p", f"Leaves of about equal weight: {said}. `pillarbox partitions balance --from-report FILE` proposes them."
    )
