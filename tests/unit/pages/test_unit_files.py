"""test_unit_files — deploy/ agrees with the code that it starts

Owns: proofs about deploy/*.service.
See: systemd.service(5), systemd.exec(5); tests/integration/pages/test_system_commands.py, where systemd reads them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queued.daemon import _ENDING, _LEAVING, _RECORDING
from shared.config.collect.load import load_collect
from shared.config.httpd.load import load_httpd
from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from smtpd.process.serve import TRANSFER, patience
from smtpd.process.supervisor import _CLOSING, _READY

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "deploy" / "pillarbox-smtpd.service"
WORKER = ROOT / "deploy" / "pillarbox-queued@.service"
API = ROOT / "deploy" / "pillarbox-httpd.service"
COLLECTOR = ROOT / "deploy" / "pillarbox-collect.service"
_LITTLE = 5.0  # seconds for what a stop does besides


@pytest.fixture
def unit() -> Mapping[str, str]:
    """The settings of smtpd's unit."""
    return settings(UNIT)


def settings(file: Path) -> dict[str, str]:
    """The settings of a unit, which names each once."""
    found: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"(\w+)=(.*)", line):
            assert match[1] not in found, line
            found[match[1]] = match[2]
    return found


def test_the_unit_starts_an_existing_program(unit: Mapping[str, str]) -> None:
    program, *arguments = shlex.split(unit["ExecStart"])
    assert program.endswith("/bin/python")
    assert arguments == ["-m", "smtpd", "--config", "/etc/pillarbox/smtpd.yaml"]
    assert (ROOT / "smtpd" / "__main__.py").exists()


def test_the_stop_timeout_covers_the_longest_stop(unit: Mapping[str, str]) -> None:
    ours = TRANSFER + patience(load_smtpd(ROOT / "config" / "smtpd.yaml", {})) + _CLOSING
    assert int(unit["TimeoutStopSec"]) > ours
    assert int(unit["TimeoutStartSec"]) > _READY
    assert unit["KillMode"] == "mixed", "the supervisor stops its processes itself"


def test_the_unit_uses_the_protocol_and_signals_of_lifecycle(unit: Mapping[str, str]) -> None:
    assert (unit["Type"], unit["NotifyAccess"]) == ("notify", "main")
    assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert int(unit["WatchdogSec"]) >= 10
    assert unit["RestartPreventExitStatus"] == "78"


def test_the_unit_runs_without_root(unit: Mapping[str, str]) -> None:
    assert unit["User"] not in {"", "root", "0"}
    assert unit["CapabilityBoundingSet"] == unit["AmbientCapabilities"] == "CAP_NET_BIND_SERVICE"
    assert unit["NoNewPrivileges"] == "yes"


def test_a_worker_has_a_unit_that_differs_where_it_must(unit: Mapping[str, str]) -> None:
    worker = settings(WORKER)
    program, *arguments = shlex.split(worker["ExecStart"])
    assert program.endswith("/bin/python")
    assert arguments == ["-m", "queued", "--config", "/etc/pillarbox/queued.yaml", "--worker", "%i"]
    assert {key for key in unit.keys() | worker.keys() if unit.get(key) != worker.get(key)} == {
        "AmbientCapabilities",
        "CapabilityBoundingSet",
        "Description",
        "ExecStart",
        "TimeoutStartSec",
    }
    assert worker["CapabilityBoundingSet"] == ""
    patience = load_queued(ROOT / "config" / "queued.yaml", {}).shutdown.timeout.total_seconds()
    assert int(worker["TimeoutStopSec"]) > patience + _ENDING + _RECORDING + _LEAVING


@pytest.mark.parametrize(("file", "module"), [(API, "httpd"), (COLLECTOR, "collect")])
def test_httpd_and_the_collector_have_units_like_a_worker_s(file: Path, module: str) -> None:
    worker, other = settings(WORKER), settings(file)
    program, *arguments = shlex.split(other["ExecStart"])
    assert program.endswith("/bin/python")
    assert arguments == ["-m", module, "--config", f"/etc/pillarbox/{module}.yaml"]
    assert (ROOT / module / "__main__.py").exists()
    differ = {key for key in worker.keys() | other.keys() if worker.get(key) != other.get(key)}
    assert differ - {"TimeoutStopSec"} == {"Description", "ExecStart"}


def test_the_stop_timeouts_of_httpd_and_the_collector_cover_their_longest_stop() -> None:
    requests = load_httpd(ROOT / "config" / "httpd.yaml", {}).shutdown.timeout.total_seconds()
    committed = patience(load_smtpd(ROOT / "config" / "smtpd.yaml", {}))
    assert int(settings(API)["TimeoutStopSec"]) > requests + committed + _LITTLE
    batch = load_collect(ROOT / "config" / "collect.yaml", {}).shutdown.timeout.total_seconds()
    assert int(settings(COLLECTOR)["TimeoutStopSec"]) > batch + _LITTLE


def test_the_flush_of_sendmail_runs_without_rights_and_comes_each_minute() -> None:
    unit = settings(ROOT / "deploy" / "pillarbox-sendmail-flush.service")
    assert shlex.split(unit["ExecStart"])[1:] == ["sendmail", "--flush"]
    assert (unit["User"], unit["CapabilityBoundingSet"]) == ("pillarbox", "")
    timer = settings(ROOT / "deploy" / "pillarbox-sendmail-flush.timer")
    assert timer["OnUnitInactiveSec"] == "1min"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit_file", sorted((ROOT / "deploy").glob("*.service")), ids=lambda path: path.stem)
def test_systemd_finds_little_that_a_unit_could_still_do(unit_file: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit_file],
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Overall exposure level" in done.stdout
