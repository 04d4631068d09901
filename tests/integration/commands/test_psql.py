"""test_psql — `pillarbox psql` runs psql on the configured database, and no password is in its command line"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scripts import cli
from scripts.commands import psql
from shared.errors import DatabaseUnavailable, PillarboxError
from shared.postgres.embedded import embedded
from shared.version import version
from tests.fixtures.database.operating import ROOT, write_config
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "words",
    [
        ("-Atc", "SELECT 6 * 7"),
        ("-At", "--command", "SELECT 6 * 7"),
        ("-At", "-v", "ON_ERROR_STOP=1", "-Pnull=none", "--command=SELECT 6 * 7"),
    ],
)
def test_it_asks_the_configured_database(database: str, tmp_path: Path, words: tuple[str, ...]) -> None:
    config = write_config(tmp_path / "config", database)
    done = subprocess.run(
        [sys.executable, "-m", "scripts.cli", "psql", "--config", str(config), "--", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


def test_a_password_is_in_the_environment_only(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config", "postgresql://ann:secret@db.example/mail")
    options = argparse.Namespace(config=config, words=["-l"])
    _, arguments, environment = psql.command(options)
    assert "secret" not in " ".join(arguments)
    assert arguments[-1] == "-l"
    assert environment["PGPASSWORD"] == "secret"


def test_a_missing_program_or_server_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path / "config", "postgresql://db.example/mail")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(embedded, "program", lambda _: None)
    with pytest.raises(PillarboxError, match="psql is not installed"):
        psql.command(argparse.Namespace(config=config, words=[]))
    (config / "smtpd.yaml").write_text(f"environment: {{database: {{uri: 'embedded:'}}, var: {tmp_path}/none}}\n")
    with pytest.raises(DatabaseUnavailable, match="no PostgreSQL runs under"):
        psql.command(argparse.Namespace(config=config, words=[]))


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"pillarbox {version()}\n"
