"""test-report-page — the page, the JSON and the tables of a report with hostile values

Guarantees: the page is rendered by a real Chromium, which reports its requests, its console messages and its
    elements.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scripts.analytics.report.page import page
from scripts.analytics.report.sections import SECTIONS, Report
from scripts.analytics.report.text import as_document, print_tables, written
from scripts.output.commands import COMMANDS
from tests.fixtures.analytics.history import MONDAY
from tests.fixtures.peers.web.chromium import chromium

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "\"><script>document.title='broken'</script><img src=http://127.0.0.1:9/x onerror=alert(1)>\u202e\x00'`"


def value(kind: str, number: int) -> Any:
    """A value of this kind."""
    match kind:
        case "text":
            return f"{HOSTILE}{number}"
        case "instant":
            return MONDAY + timedelta(hours=number)
        case "share":
            return 0.25
        case "seconds":
            return 2.5 * 10**number
    return 1000 * number


def report(rows: int = 3) -> Report:
    """A report with so many rows in each section, every text hostile."""
    filled = {
        section.key: [{field.name: value(field.kind, number) for field in section.fields} for number in range(rows)]
        for section in SECTIONS
    }
    for row in filled["volume"]:
        row["unusual"] = True
    return Report(
        MONDAY, MONDAY + timedelta(days=7), datetime.now(UTC), HOSTILE, filled, frozenset({"wordings"}), {"a": ["1"]}
    )


def test_every_value_is_escaped() -> None:
    text = page(report())
    assert "<script" not in text
    assert "<img" not in text
    assert not re.search(r"<[a-z]+[^>]*\son\w+=", text)  # no attribute was opened
    assert html.escape(HOSTILE.replace("\u202e", "\ufffd").replace("\x00", "\ufffd")) in text
    assert "default-src &#x27;none&#x27;" in text  # should one come through all the same, nothing is fetched


def test_an_empty_report_has_a_note_in_each_section() -> None:
    text = page(report(0))
    assert text.count("None in this period.") == len(SECTIONS)


def test_unjudged_hours_are_counted_with_the_days_needed(capsys: pytest.CaptureFixture[str]) -> None:
    made = report()
    said = "3 hours; three days like theirs are needed: three working days, or two week-ends"
    assert said not in page(made)
    made.rows["volume"][0]["score"] = None
    assert f"not judged: 1 of {said}." in page(made)
    print_tables(made)
    assert f"\n  not judged: 1 of {said}\n" in capsys.readouterr().out


def test_the_json_has_every_row_and_plain_values() -> None:
    document = json.loads(json.dumps(as_document(report())))
    COMMANDS["analytics report"].forms[0].model_validate_json(json.dumps(document))
    assert [section["key"] for section in document["sections"]] == [section.key for section in SECTIONS]
    assert all(len(section["rows"]) == 3 for section in document["sections"])
    [volume] = [section for section in document["sections"] if section["key"] == "volume"]
    assert volume["rows"][1] == {"hour": "2026-03-02T01:00:00+00:00", "attempts": 1000, "usual": 1000, "score": 1000}


def test_the_tables_print_hostile_text_without_its_controls(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables(report())
    shown = capsys.readouterr().out
    assert "Bounces and deferrals" in shown
    assert "\x00" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        (None, "count", "\u2013"),
        (1234567, "count", "1\u2009234\u2009567"),
        (0.1234, "share", "12.3 %"),
        (0.034, "seconds", "0.034 s"),
        (59.0, "seconds", "59 s"),
        (90.0, "seconds", "1.5 min"),
        (7200.0, "seconds", "2 h"),
        (432000.0, "seconds", "5 d"),
        (MONDAY, "instant", "2026-03-02 00:00"),
        ("a\x1b[31mb", "text", "a\ufffd[31mb"),
    ],
)
def test_values_are_written_with_their_units(given: Any, kind: Any, said: str) -> None:
    assert written(given, kind) == said


def rendered(folder: Path, text: str, *more: str) -> tuple[str, str, list[str]]:
    """The page in a real Chromium: its elements, its console messages, and the requested URLs."""
    file, log = folder / "report.html", folder / "net.json"
    file.write_text(text, encoding="utf-8")
    quiet = ("networking", "client-side-phishing-detection")
    done = subprocess.run(
        [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-component-update"]
        + [f"--disable-background-{word}" for word in quiet]
        + [f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--enable-logging=stderr", *more]
        + ["--virtual-time-budget=2000", "--dump-dom", f"file://{file}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    asked = re.findall(r'"url":"([^"]+)"', log.read_text(encoding="utf-8", errors="replace"))
    return done.stdout, done.stderr, asked


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_chromium_shows_the_page_and_fetches_nothing(scheme: str, tmp_path: Path) -> None:
    text = page(report(8))
    dark = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    elements, said, asked = rendered(tmp_path, text, *dark)
    assert "CONSOLE" not in said
    assert "<title>Pillarbox report, 2026-03-02 00:00 to 2026-03-09 00:00 UTC</title>" in elements
    assert "Destinations that throttle us" in elements
    assert elements.count("<svg") == text.count("<svg") > 8
    assert [url for url in asked if "127.0.0.1" in url] == []


@pytest.mark.slow
def test_the_test_detects_requests_and_console_messages(tmp_path: Path) -> None:
    _, said, asked = rendered(tmp_path, "<img src=http://127.0.0.1:9/x><script>console.log('heard')</script>")
    assert "heard" in said
    assert any("127.0.0.1:9/x" in url for url in asked)


def test_the_reference_names_every_section_and_column() -> None:
    text = (ROOT / "docs" / "reference" / "analyses.md").read_text(encoding="utf-8")
    for section in SECTIONS:
        _, found, rest = text.partition(f"## {section.key}: {section.title}\n")
        assert found, section.key
        columns = ", ".join(f"`{field.name}`" for field in section.fields)
        assert f"Columns: {columns}." in rest.partition("\n## ")[0]


@pytest.mark.parametrize(("classes", "said"), [(("(unknown)",), "\u2013"), (("TLSv1.3", "none"), "25.0 %")])
def test_unknown_tls_is_not_counted_as_none(classes: tuple[str, ...], said: str) -> None:
    made = report(0)
    made.rows["encryption"] = [{"tls": name, "delivered": 1, "share": 0.25} for name in classes]
    assert f"<dt>delivered over TLS</dt><dd>{said}</dd>" in page(made)
