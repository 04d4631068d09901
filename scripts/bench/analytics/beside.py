"""beside — exports and reports in a loop, as load beside a live queue

Owns: the loop.
Guarantees: runs at the priority of every analytics command. Once Spark has started, prints `export` or `report` at the
    start of each. SIGTERM ends it; Java ends when its standard input closes.
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
    """Run until SIGTERM."""
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
