"""test_config_command — `pillarbox config show` prints the settings of a worker"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scripts.cli import main
from shared.config.queued.load import load_queued

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
environment: {database: {uri: "postgresql://us:wordpass@db/queue"}}
transportgroups:
  - id: direct
    connection: {mode: mx}
    sources: [{address: 192.0.2.1, warmup: {from: 2026-12-01, days: [5]}}]
transports: [{id: a, group: direct, routes: {b.example: "[2001:db8::1]:26"}}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "queued.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def test_a_transport_is_shown_with_its_group_and_every_default(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "show", "transports", "--config", str(folder)]) == 0
    [transport] = json.loads(capsys.readouterr().out)["transports"]
    assert transport["connection"]["mode"] == "mx"
    assert transport["retry"]["intervals"][:2] == ["1m", "15m"]
    assert transport["routes"] == {"b.example": "[2001:db8::1]:26"}
    assert transport["sources"][0]["warmup"] == {"from": "2026-12-01", "days": [5]}
    assert transport["hostname"] is None


def test_the_printed_configuration_means_the_same_when_loaded(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["config", "show", "transports", "--config", str(folder)]) == 0
    shown = json.loads(capsys.readouterr().out)["transports"]
    for transport in shown:
        del transport["group"]
    (tmp_path / "again.yaml").write_text(json.dumps({"transports": shown}))
    [again], [before] = load_queued(tmp_path / "again.yaml").transports, load_queued(folder / "queued.yaml").transports
    assert again.model_copy(update={"group": "direct"}) == before


def test_passwords_are_masked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--config", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown)["environment"]["database"]["uri"] == "postgresql://us:***@db/queue"
    assert "wordpass" not in shown


def test_an_unknown_section_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "transport", "--config", str(folder)]) != 0
    assert 'queued.yaml has no section "transport"; allowed: environment, workers,' in capsys.readouterr().err
