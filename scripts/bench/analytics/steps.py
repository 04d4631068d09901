"""steps — measures an export, a report and the same questions as SQL on PostgreSQL

Owns: the order of the steps; export and report share one Spark session.
Guarantees: prints a line for each step; the last line is one JSON object: rows, start_s, export_s, report_s, ask_s.
See: scripts/bench/analytics/usage.py, the format of a step's line.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scripts.analytics import session
from scripts.analytics.export import command as export
from scripts.analytics.lake import catalog
from scripts.analytics.report import command as report
from scripts.analytics.report import questions
from scripts.analytics.workers import Here
from scripts.bench.analytics.usage import measured


def main(var: Path, uri: str, days: int) -> None:
    """Export the days before today, report on them, and answer the same questions in PostgreSQL."""
    until = datetime.now(UTC).date()
    asked = report.Period(until - timedelta(days=days), until, str(var / "lake"))
    with ExitStack() as opened:
        with measured("start of Spark", var) as starting:
            spark = opened.enter_context(session.started())
        with measured("export", var) as exporting:
            done = export.export(uri, catalog.opened(str(var / "lake"), create=True), Here())
        with measured("report", var) as reporting:
            report.make(spark, asked, {})
    with measured("the same in PostgreSQL", var) as asking:
        questions.ask(uri, asked.since, asked.until, asked.top)
    seconds = {
        "start_s": starting.seconds,
        "export_s": exporting.seconds,
        "report_s": reporting.seconds,
        "ask_s": asking.seconds,
    }
    print(json.dumps({"rows": done.rows} | seconds))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
