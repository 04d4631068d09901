"""test_system_commands — what our pages have apt-get, pip and systemctl do, tried without changing the machine

Guarantees: apt-get, which only simulates, would install every package; pip would find every extra, each package pinned;
    systemd finds no fault in the units as the page installs them, with the programs and pages they name in this
    checkout; systemctl enables those the page enables, below another root; every unit of our pages is one of these, and
    systemctl has every verb.
Bugs: systemd starts nothing here, for that it would have to be process 1. readers.py starts the units' programs.
See: docs/how-to/start/run-with-systemd.md.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.pages.blocks import blocks
from tests.fixtures.pages.walking import DOCS, ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PAGE: Final = DOCS / "how-to" / "start" / "run-with-systemd.md"
_PLACE: Final = "/etc/systemd/system"
_ENVIRONMENT: Final = {**os.environ, "LC_ALL": "C", "SYSTEMD_OFFLINE": "1"}
_INLINE: Final = re.compile(r"`((?:apt-get|systemctl) [^`]+)`")


def commands(page: Path) -> list[str]:
    """The command lines of a page: those of its blocks, then those within sentences."""
    found = [line for block in blocks(page) if block.language in {"sh", "console"} for line in block.commands()]
    return [*found, *_INLINE.findall(page.read_text(encoding="utf-8"))]


def said(program: str) -> list[tuple[str, ...]]:
    """What our pages have a program do, each line once, in words."""
    lines = [part for page in sorted(DOCS.rglob("*.md")) for line in commands(page) for part in line.split("&&")]
    words = [tuple(shlex.split(line, comments=True)) for line in lines if line.strip().startswith(program)]
    return list(dict.fromkeys(words))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """A program's answer in English."""
    return subprocess.run(words, cwd=ROOT, env=_ENVIRONMENT, capture_output=True, text=True, check=False)


def units(words: Sequence[str]) -> list[str]:
    """The units that a line of systemctl names after its verb."""
    return [word for word in words[2:] if not word.startswith("-")]


@pytest.mark.parametrize("words", [line for line in said("apt-get") if line[1] == "install"], ids=" ".join)
def test_apt_get_would_install_every_package(words: tuple[str, ...]) -> None:
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get here: packages have these names on Debian and Ubuntu")
    if not run("apt-cache", "madison", "make").stdout:
        pytest.skip("apt-get has no lists of packages here: apt-get update")
    done = run("apt-get", "--simulate", "-qq", *words[1:])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", said(".venv/bin/pip"), ids=" ".join)
def test_pip_would_find_the_extra_with_every_package_pinned(words: tuple[str, ...]) -> None:
    *command, what = words
    assert command == [".venv/bin/pip", "install", "-c", "constraints.txt", "-e"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines}
    packages = {re.split(r"[^\w.-]", each)[0].lower() for each in extras[what.removeprefix(".[").removesuffix("]")]}
    assert packages
    assert packages <= pinned


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The root of a machine with the units, as the page installs them."""
    for program in ("systemd-analyze", "systemctl"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here: apt-get install systemd")
    folder = tmp_path / _PLACE.removeprefix("/")
    folder.mkdir(parents=True)
    [install] = [line for line in commands(_PAGE) if line.startswith("install ") and _PLACE in line]
    done = run("/bin/sh", "-c", install.replace(_PLACE, str(folder)))
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_systemd_finds_no_fault_in_the_units(machine: Path) -> None:
    files = sorted((machine / _PLACE.removeprefix("/")).iterdir())
    assert len(files) == 5
    for file in files:
        text = file.read_text(encoding="utf-8").replace("/opt/pillarbox", str(ROOT))
        file.write_text(text, encoding="utf-8")
        for page in re.findall(r"file://(\S+)", text):
            assert (ROOT / page).exists(), page
    done = run("systemd-analyze", "verify", "--man=no", *map(str, files))
    assert [line for line in done.stderr.splitlines() if "pillarbox-" in line] == []


def test_systemctl_enables_the_units_and_has_the_verbs(machine: Path) -> None:
    lines = said("systemctl")
    systemctl = ("systemctl", f"--root={machine}")
    enabled = [unit for words in lines if words[1] == "enable" for unit in units(words)]
    assert len(enabled) == 5
    done = run(*systemctl, "enable", *enabled)
    assert done.returncode == 0, done.stderr
    for words in lines:
        assert "Unknown" not in run(*systemctl, words[1]).stderr, words
        for unit in units(words):
            assert run(*systemctl, "is-enabled", unit).stdout == "enabled\n", words
