"""test_chosen_database — the database of a command is that of `--database`, or that of smtpd.yaml"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from scripts import one_connection
from shared.errors import ConfigError
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    from pathlib import Path

_SMTPD = "environment: {{database: {{uri: {uri}}}, var: {var}}}\nservers: [{{listeners: [{{port: 0}}]}}]\n"


def chosen(config: Path, database: str | None) -> str:
    return one_connection.chosen(argparse.Namespace(config=config, database=database))


def test_another_server_needs_no_configuration(tmp_path: Path) -> None:
    assert chosen(tmp_path / "missing", "postgresql://db.example/accounts") == "postgresql://db.example/accounts"


def test_without_the_option_it_is_that_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "smtpd.yaml").write_text(_SMTPD.format(uri="postgresql://db.example/queue", var=tmp_path))
    assert chosen(tmp_path, None) == "postgresql://db.example/queue"


def test_the_embedded_server_is_that_of_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, `accounts install --database embedded:` made a server in the working folder."""
    (tmp_path / "smtpd.yaml").write_text(_SMTPD.format(uri="postgresql://db.example/queue", var=tmp_path / "var"))
    asked: list[Path] = []

    def running(var: Path) -> str:
        asked.append(var)
        return "host=here"

    for name in ("status", "ensure_running"):
        monkeypatch.setattr(embedded, name, running)
    assert chosen(tmp_path, "embedded:") == "host=here"
    assert set(asked) == {tmp_path / "var"}


def test_what_libpq_cannot_read_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'^--database: missing "=" after "x"'):
        chosen(tmp_path, "x")
