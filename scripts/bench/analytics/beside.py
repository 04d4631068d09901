"""beside — exports or reports in a loop, as load beside a live queue

Owns: the loop, and the cores that it may use.
Guarantees: runs at the priority of every analytics command. Prints `export` or `report` at the start of each. An export
    begins with an empty lake each time; a report reads one that is there.
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


def main(step: str, uri: str, lake: Path, days: int, cores: int) -> None:
    """Repeat `step` until killed, on the last `cores` cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    if step == "export":
        with workers.started(cores) as runner:
            while True:
                print("export", flush=True)
                export.export(uri, catalog.opened(str(lake), create=True), runner)
                shutil.rmtree(lake)
    until = datetime.now(UTC).date()
    with session.started(f"local[{cores}]") as spark:
        while True:
            print("report", flush=True)
            report.make(spark, report.Period(until - timedelta(days=days), until, str(lake)), {})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
