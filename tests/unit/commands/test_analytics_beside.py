"""test_analytics_beside — which queue the analytics give way to"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from scripts.analytics import terminal

if TYPE_CHECKING:
    from pathlib import Path


def asked(folder: Path, *words: str) -> str | None:
    parser = argparse.ArgumentParser()
    terminal.add_spark(parser)
    terminal.add_pace(parser)
    terminal.add_common(parser, lambda _: 0)
    return terminal.beside(parser.parse_args(["--config", str(folder), *words]))


def configured(folder: Path, uri: str) -> Path:
    text = f'environment: {{database: {{uri: "{uri}"}}, var: {folder / "var"}}}\nservers: [{{id: a}}]\n'
    (folder / "smtpd.yaml").write_text(text, encoding="utf-8")
    return folder


def test_it_is_the_one_of_the_configuration_whatever_is_read(tmp_path: Path) -> None:
    """A replica records no attempts of its own."""
    folder = configured(tmp_path, "postgresql://primary/mail")
    assert asked(folder, "--database", "postgresql://replica/mail") == "postgresql://primary/mail"


def test_an_embedded_server_is_not_started_to_be_asked(tmp_path: Path) -> None:
    assert asked(configured(tmp_path, "embedded:")) == ""
    assert not (tmp_path / "var" / "postgres").exists()


def test_without_a_configuration_nobody_can_be_asked(tmp_path: Path) -> None:
    assert asked(tmp_path / "missing") == ""


def test_at_full_speed_it_is_none(tmp_path: Path) -> None:
    assert asked(configured(tmp_path, "postgresql://primary/mail"), "--full-speed") is None


def test_a_configuration_at_fault_does_not_keep_a_report_on_the_lake_from_being_made(tmp_path: Path) -> None:
    assert asked(configured(tmp_path, "postgresql://[primary")) == ""


def test_a_cluster_does_not_rest(tmp_path: Path) -> None:
    assert asked(configured(tmp_path, "postgresql://primary/mail"), "--master", "spark://host:7077") is None
