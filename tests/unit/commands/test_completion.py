"""test_completion — the shell completes verbs and options"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from scripts import cli
from tests.fixtures.pages.running import Running

if TYPE_CHECKING:
    from pathlib import Path

_FORGET_LINE = "\x15"  # Ctrl-U
_ASK = """
source {file}
COMP_WORDS=({words} {last})
COMP_CWORD={at}
_shtab_pillarbox pillarbox {last}
echo "${{COMPREPLY[@]}}"
"""


def completed(file: Path, *words: str) -> set[str]:
    """The words that bash offers for the last word."""
    *before, last = words
    script = _ASK.format(file=file, words=" ".join(before), last=last or "''", at=len(before))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_completes_verbs_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    file = tmp_path / "completion.bash"
    file.write_text(capsys.readouterr().out)
    assert completed(file, "pillarbox", "qu") == {"queue", "quarantine"}
    assert "release" in completed(file, "pillarbox", "queue", "re")
    assert {"--yes", "--dry-run", "--json"} <= completed(file, "pillarbox", "queue", "hold", "--")
    assert completed(file, "pillarbox", "completion", "z") == {"zsh"}


def test_zsh_completion_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "zsh"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("#compdef pillarbox")
    assert all(f"\n    {verb}:'" in said for verb in cli.VERBS)


def test_zsh_completes_verbs_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if (zsh := shutil.which("zsh")) is None:
        pytest.skip("no zsh here: apt-get install zsh")
    assert cli.main(["completion", "zsh"]) == 0
    (tmp_path / "_pillarbox").write_text(capsys.readouterr().out)
    with Running(f"exec {zsh} -fi", tmp_path, {"HOME": str(tmp_path), "PATH": os.defpath}) as shell:
        shell.type("fpath+=$PWD; autoload -Uz compinit; compinit -u -D; print -r rea''dy\n")
        shell.until("ready")
        for typed, offered in {
            "pillarbox qu\t": "quarantine +-- held mail",
            "pillarbox queue re\t": "release +-- release held recipients",
            "pillarbox queue hold --\t": "--yes +-- act without asking",
        }.items():
            shell.type(f"{_FORGET_LINE}{typed}")
            shell.until(offered)
        shell.type(f"{_FORGET_LINE}exit\n")
        shell.until_end()
