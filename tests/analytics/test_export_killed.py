"""test-export-killed — an export that is killed at any step and run again leaves a lake equal to the table

Guarantees: the kill is SIGKILL, from inside, at the named step; every row is compared.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.database.lake import exported, late, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

#: For each line it reads, forks an export that kills itself when it comes to a step for the n-th time, and answers with
#: the signal the export died of; 0 when it lived. Forked, because each new Python would load Arrow again.
_PROGRAM: Final = """
import json, os, signal, sys
from pathlib import Path
from scripts.analytics import classes
from scripts.analytics.export import compact, day
from scripts.analytics.source import columns, copying
from scripts.analytics.export.command import export
from scripts.analytics.runner import Here

def run(uri, lake, wanted, times):
    heard = 0

    def at(step):
        nonlocal heard
        heard += step == wanted
        if heard == times:
            os.kill(os.getpid(), signal.SIGKILL)

    class Dying(Here):
        def run(self, function, portions, tell):
            return super().run(function, portions, lambda done: (tell(done), at("portion")))

    export(uri, Path(lake), Dying(), at=at, compact=True)

for line in sys.stdin:
    child = os.fork()
    if not child:
        run(*json.loads(line))
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""
_FIRST: Final = ("read", "portion", "staged", "move", "commit", "tidy", "done")
_AGAIN: Final = ("move", "commit", "tidy", "remove")

type Kill = Callable[[str, Path, str, int], None]


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

        def run(uri: str, lake: Path, step: str, times: int) -> None:
            print(json.dumps((uri, str(lake), step, times)), file=asked, flush=True)
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
    for step in _AGAIN:
        late(history_database)
        killed(history_database, exported_lake, step, 1)
        assert exported(history_database, exported_lake).refused == []
        same(history_database, exported_lake)


def test_an_export_killed_several_times_can_be_repeated(killed: Kill, history_database: str, tmp_path: Path) -> None:
    for times in (1, 1, 3):
        killed(history_database, tmp_path, "commit", times)
    exported(history_database, tmp_path)
    same(history_database, tmp_path)
