"""steps — measures an export, a report, a search, and the same questions as SQL on PostgreSQL

Owns: the order of the steps, each with the defaults of its command; export and report share one Spark session, the
    search is the command as it is typed.
Guarantees: prints a line for each step; the last line is one JSON object: rows, start_s, export_s, report_s, search_s,
    ask_s. The search is by a Message-ID of the oldest day and must find it.
See: scripts/bench/analytics/usage.py, the format of a step's line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scripts.analytics import session, workers
from scripts.analytics.export import command as export
from scripts.analytics.lake import catalog
from scripts.analytics.report import command as report
from scripts.analytics.report import questions
from scripts.analytics.source import copying
from scripts.bench.analytics.usage import measured
from shared.errors import PillarboxError


def main(var: Path, uri: str, days: int) -> None:
    """Export the days before today, report on them, and answer the same questions in PostgreSQL."""
    until = datetime.now(UTC).date()
    asked = report.Period(until - timedelta(days=days), until, str(var / "lake"))
    with ExitStack() as opened:
        with measured("start of Spark", var) as starting:
            spark = opened.enter_context(session.started())
        with measured("export", var) as exporting, workers.started() as runner:
            done = export.export(uri, catalog.opened(str(var / "lake"), create=True), runner)
        with measured("report", var) as reporting:
            report.make(spark, asked, {})
    msgid = _oldest(uri)
    words = [
        sys.executable,
        "-m",
        "scripts.cli",
        "analytics",
        "search",
        f"<{msgid}>",
        "--lake",
        str(var / "lake"),
        "--json",
    ]
    with measured("search by Message-ID", var) as searching:
        found = subprocess.run(words, stdout=subprocess.PIPE, check=True)  # noqa: S603 - ours
    if msgid not in found.stdout.decode():
        raise PillarboxError(f"the search has not found {msgid}")
    with measured("the same in PostgreSQL", var) as asking:
        questions.ask(uri, asked.since, asked.until, asked.top)
    seconds = {
        "start_s": starting.seconds,
        "export_s": exporting.seconds,
        "report_s": reporting.seconds,
        "search_s": searching.seconds,
        "ask_s": asking.seconds,
    }
    print(json.dumps({"rows": done.rows} | seconds))


def _oldest(uri: str) -> str:
    with copying.session(uri) as connection:
        [row] = copying.rows(connection, "bench_oldest_msgid")
    msgid: str = row.msgid
    return msgid


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
