"""test_preloaded_starts — a preloaded start of a daemon or command looks like an ordinary one from outside

Owns: proofs about tests/fixtures/daemons/preloaded.py, which starts the processes of all tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.daemons.system import ROOT

COLD = {**os.environ, "PILLARBOX_TEST_COLD": "1"}


@pytest.mark.parametrize(
    "words",
    [
        ("smtpd", "--help"),
        ("queued", "--dry-run", "0"),
        ("queued", "--config", "missing.yaml"),
        ("scripts.cli", "queue", "--help"),
        ("scripts.cli", "config", "show"),
    ],
)
def test_a_preloaded_start_has_the_same_output_and_exit_status(words: tuple[str, ...], tmp_path: Path) -> None:
    warm, cold = (
        subprocess.run((sys.executable, "-m", *words), cwd=tmp_path, env=env, capture_output=True, check=False)
        for env in (None, COLD)
    )
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)
    assert warm.stdout or warm.stderr


def test_a_preloaded_child_has_the_given_environment_session_and_files(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        sink = subprocess.Popen(
            (sys.executable, "-m", "scripts.cli", "sink", "--port", "0"),
            cwd=ROOT,
            env={**os.environ, "GIVEN": "to it"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    with sink:
        assert sink.stdout is not None
        assert sink.stdout.readline()
        process = Path("/proc", str(sink.pid))
        files = {each.name: each.resolve() for each in (process / "fd").iterdir()}
        assert files["0"] == Path(os.devnull)
        assert files["2"] == tmp_path / "log"
        assert os.getsid(sink.pid) == sink.pid
        assert process.joinpath("stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
        sink.send_signal(signal.SIGKILL)
        assert sink.wait() == -signal.SIGKILL
