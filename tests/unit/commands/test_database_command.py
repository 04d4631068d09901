"""test_database_command — `pillarbox database` means the server of smtpd.yaml, and no second one"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scripts import cli

if TYPE_CHECKING:
    from pathlib import Path


def config(folder: Path, uri: str) -> str:
    environment = {"var": str(folder / "mine"), "database": {"uri": uri}}
    (folder / "smtpd.yaml").write_text(json.dumps({"environment": environment}))  # JSON is YAML
    return str(folder)


def test_the_folder_is_that_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["database", "status", "--config", config(tmp_path, "embedded:")]) == 3
    assert capsys.readouterr().out == f"no PostgreSQL runs under {tmp_path}/mine\n"
    assert cli.main(["database", "status", "--var", str(tmp_path / "other")]) == 3
    assert capsys.readouterr().out == f"no PostgreSQL runs under {tmp_path}/other\n"


@pytest.mark.parametrize("verb", ["start", "stop", "status"])
def test_a_server_that_is_not_embedded_is_not_managed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert cli.main(["database", verb, "--config", config(tmp_path, "postgresql:///queue")]) == 1
    assert "environment.database.uri names a server that" in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()
