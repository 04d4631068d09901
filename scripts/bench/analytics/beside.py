"""beside — exports and reports in a loop, as load beside a live queue

Owns: the loop, and the cores that it may use.
Guarantees: runs at the priority of every analytics command. Once Spark has started, prints `export` or `report` at the
    start of each. SIGTERM ends it; Java ends when its standard input closes.
"""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scripts.analytics import session, workers
from scripts.analytics.export import command as export
from scripts.analytics.lake import catalog
from scripts.analytics.report import command as report


def main(uri: str, lake: Path, days: int, cores: int) -> None:
    """Run until SIGTERM, on the last `cores` cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    until = datetime.now(UTC).date()
    with session.started(f"local[{cores}]") as spark, workers.started(cores) as runner:
        while True:
            print("export", flush=True)
            export.export(uri, catalog.opened(str(lake), create=True), runner)
            print("report", flush=True)
            report.make(spark, report.Period(until - timedelta(days=days), until, str(lake)), {})
            shutil.rmtree(lake)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
