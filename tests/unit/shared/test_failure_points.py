"""test_failure_points — each point acts once if it is set, and costs nothing otherwise

Owns: the reading of PILLARBOX_FAIL, the counting and the mark, and that every point is reached somewhere.
See: shared/failure_points.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
import timeit
from typing import TYPE_CHECKING

import pytest

from shared import failure_points
from shared.errors import ConfigError
from shared.failure_points import ACTIONS, POINTS, Failure, Provoked, parse, reaching
from tests.layout.sources import PACKAGES, python_files, read

if TYPE_CHECKING:
    from pathlib import Path

POINT = "spool.before_commit"
_CALL = re.compile(r'\breach\("([^"]+)"\)')


def test_a_failure_is_parsed() -> None:
    assert parse(f"{POINT}:kill") == Failure(POINT, "kill")
    assert parse(f"{POINT}:raise:12", "mark") == Failure(POINT, "raise", 12, "mark")


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("spool.nowhere:kill", POINT),
        (POINT, "kill, stop, exit, raise, hang"),
        (f"{POINT}:explode", "kill, stop, exit, raise, hang"),
        (f"{POINT}:kill:0", "a whole number from 1"),
        (f"{POINT}:kill:soon", "a whole number from 1"),
    ],
)
def test_an_invalid_failure_is_refused_with_the_allowed_values(text: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=f"^PILLARBOX_FAIL: .*allowed: .*{allowed}"):
        parse(text)


def test_a_point_acts_once_at_its_count() -> None:
    reach = reaching(Failure(POINT, "raise", 3))
    reach(POINT)
    reach("claim.taken")
    reach(POINT)
    with pytest.raises(Provoked, match=POINT):
        reach(POINT)
    reach(POINT)


def test_only_the_first_of_several_processes_acts(tmp_path: Path) -> None:
    mark = str(tmp_path / "mark")
    with pytest.raises(Provoked):
        reaching(Failure(POINT, "raise", 1, mark))(POINT)
    reaching(Failure(POINT, "raise", 1, mark))(POINT)


@pytest.mark.parametrize(("action", "status"), [("kill", -9), ("exit", 70), ("raise", 1)])
def test_each_action_ends_the_process_with_its_status(action: str, status: int) -> None:
    assert _run(f"{POINT}:{action}", f"from shared.failure_points import reach; reach('{POINT}')").returncode == status


def test_a_daemon_with_an_invalid_failure_ends_with_one_line() -> None:
    done = _run("nonsense", "import shared.spool.spool")
    assert (done.returncode, done.stderr.count("\n")) == (ConfigError.exit_status, 1)
    assert "PILLARBOX_FAIL" in done.stderr


def test_every_point_is_reached_and_every_call_names_a_point() -> None:
    called = {name for path in python_files(*PACKAGES) for name in _CALL.findall(read(path))}
    assert called == set(POINTS)


def test_every_action_is_documented() -> None:
    assert all(f"{action}" in (failure_points.__doc__ or "") for action in ACTIONS)


def test_without_a_failure_reach_is_an_empty_function() -> None:
    """Calling it costs no more than calling any function that does nothing, and far less than the code around it."""
    assert failure_points.reach is failure_points._nothing
    rounds = 100_000
    each = min(timeit.repeat(lambda: failure_points.reach(POINT), number=rounds, repeat=5)) / rounds
    assert each < 5e-6  # seconds; measured 0.05 µs to 0.1 µs, beside a COMMIT of about 1,000


def _run(failure: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PILLARBOX_FAIL": failure, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
