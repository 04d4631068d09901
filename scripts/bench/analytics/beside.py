"""beside — export and report, over and over, until stopped: what a live queue is measured beside

Owns: nothing but the loop.
Guarantees: runs at the priority every verb of the analytics runs at; prints `export` and `report` when it begins
    with one, once its Spark is there. SIGTERM ends it, and Java with it, whose standard input then ends.
"""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scripts.analytics import session
from scripts.analytics.export import command as export
from scripts.analytics.report import command as report
from scripts.analytics.runner import OnSpark


def main(uri: str, lake: Path, days: int) -> None:
    """Until SIGTERM."""
    until = datetime.now(UTC).date()
    with session.started(light=True) as spark:
        while True:
            print("export", flush=True)
            export.export(uri, lake, OnSpark(spark))
            print("report", flush=True)
            report.make(spark, report.Period(until - timedelta(days=days), until, lake), {})
            shutil.rmtree(lake)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
