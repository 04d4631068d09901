"""test-export-killed — an export, compaction or clean-up that is killed at any step and run again loses no row

Guarantees: the kill is SIGKILL, from inside, at the named step; every row is compared.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from scripts.analytics.export import command as export
from tests.fixtures.analytics.lake import ask, exported, files, in_lake, known, late, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import date
    from pathlib import Path

pytestmark = pytest.mark.slow

#: For each line it reads, forks an export that kills itself when it comes to a step for the n-th time, and answers with
#: the signal the export died of; 0 when it lived. Forked, because each new Python would load Arrow again.
_PROGRAM: Final = """
import json, os, signal, sys
from datetime import timedelta
from pathlib import Path
from scripts.analytics.cleanup import command as cleanup, orphans, verify
from scripts.analytics.export import compact, day, rollup
from scripts.analytics.lake import catalog, storage
from scripts.analytics.source import columns, copying
from scripts.analytics.export.command import export
from scripts.analytics.workers import Here

def run(uri, lake, wanted, times, what):
    heard = 0

    def at(step):
        nonlocal heard
        heard += step == wanted
        if heard == times:
            os.kill(os.getpid(), signal.SIGKILL)

    class Dying(Here):
        def run(self, function, portions, tell):
            return super().run(function, portions, lambda done: (tell(done), at("portion")))

    if what == "cleanup":  # Spark's verification is proved elsewhere; a forked Java is not possible
        verify.fault = lambda *_: None
        done = cleanup.CleanupReport()
        cleanup.cleanup(uri, catalog.opened(lake), None, timedelta(0), timedelta(0), yes=True, at=at)
        cleanup.tidy(catalog.opened(lake), done, timedelta(0), timedelta(0), yes=True, at=at)
        return

    # Between the files of a commit: the catalog has the old state until the last.
    stored = storage.SyncedFile.close

    def closing(file):
        if not file.closed:
            at("stored")
        stored(file)

    storage.SyncedFile.close = closing
    export(uri, catalog.opened(lake, create=True), Dying(), at=at, compact=True, again=what == "again")

for line in sys.stdin:
    child = os.fork()
    if not child:
        run(*json.loads(line))
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""
_FIRST: Final = ("read", "portion", "compare", "commit", "committed", "rollup")
#: Files of a commit: rows, two manifests, their list, the table's metadata.
_AGAIN: Final = (*((step, 1) for step in ("commit", "committed", "rollup")), *(("stored", n) for n in range(1, 6)))

#: Of a clean-up that drops days and removes files.
_CLEANING: Final = ("verify", "drop", "dropped", "expire", "remove")

type Kill = Callable[..., None]


@pytest.fixture(scope="module")
def killed() -> Iterator[Kill]:
    """Runs an export that is killed when it comes to a step for the n-th time."""
    forking = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with forking as program:
        assert program.stdin is not None
        assert program.stdout is not None
        asked, answers = program.stdin, program.stdout

        def run(uri: str, lake: Path, step: str, times: int, what: str = "export") -> None:
            print(json.dumps((uri, str(lake), step, times, what)), file=asked, flush=True)
            assert answers.readline() == f"{signal.SIGKILL.value}\n", step

        yield run


def test_an_export_killed_at_any_step_of_its_first_run_can_be_repeated(
    killed: Kill, history_database: str, tmp_path: Path
) -> None:
    for step in _FIRST:
        lake = tmp_path / step
        killed(history_database, lake, step, 2)
        assert exported(history_database, lake).refused == []
        same(history_database, lake)


def test_an_export_killed_while_it_replaces_a_day_can_be_repeated(
    killed: Kill, history_database: str, exported_lake: Path
) -> None:
    for step, times in _AGAIN:
        late(history_database)
        killed(history_database, exported_lake, step, times)
        assert exported(history_database, exported_lake).refused == []
        same(history_database, exported_lake)


def test_an_export_of_damaged_days_killed_at_any_step_can_be_repeated(
    killed: Kill, history_database: str, exported_lake: Path
) -> None:
    for step in _FIRST:
        for file in files(exported_lake, "attempts"):
            file.unlink()
        killed(history_database, exported_lake, step, 2, "again")
        assert exported(history_database, exported_lake, again=True).refused == []
        same(history_database, exported_lake)


def test_an_export_killed_several_times_can_be_repeated(killed: Kill, history_database: str, tmp_path: Path) -> None:
    for times in (1, 1, 3):
        killed(history_database, tmp_path, "commit", times)
    exported(history_database, tmp_path)
    same(history_database, tmp_path)


def test_a_clean_up_killed_at_any_step_leaves_each_row_in_the_lake_and_each_day_whole(
    killed: Kill, history_database: str, exported_lake: Path
) -> None:
    def days() -> set[tuple[str, date]]:
        found = {table: export.closed(history_database, table, None, None) for table in export.TABLES}
        return {(table, leaf.day) for table, leaves in found.items() for leaf in leaves}

    late(history_database)
    exported(history_database, exported_lake, compact=True)
    before = {table: in_lake(exported_lake, table) for table in export.TABLES}

    for step in _CLEANING:
        killed(history_database, exported_lake, step, 2, what="cleanup")
        assert {table: in_lake(exported_lake, table) for table in export.TABLES} == before
        for table, day in days():
            rows = ask(history_database, f"SELECT count(*) FROM pillarbox.{table}_{day:%Y%m%d}")  # noqa: S608 - ours
            assert rows == next(each.rows for each in known(exported_lake, table) if each.day == day)
    assert days() == set()
