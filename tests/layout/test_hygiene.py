"""test-hygiene — nothing in the repository depends on one machine, one mirror or a date

Guarantees: no package-index hosts, no absolute paths of a home or workplace, no marks of unfinished work, no other
    tool's lock files.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

import pytest

from tests.layout.sources import ROOT, tracked

# Written in halves, so that this file passes its own test.
_HOSTS: Final = (
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("npmjs", ".org"),
    ("npmjs", ".com"),
    ("crates", ".io"),
    ("golang", ".org"),
    ("rubygems", ".org"),
    ("pkg", ".dev"),
    ("conda", ".io"),
    ("maven", ".org"),
    ("deb.debian", ".org"),
)
_OPTIONS: Final = (("index", "-url"), ("find", "-links"), ("trusted", "-host"))
_FOLDERS: Final = (("/ho", "me/"), ("/ro", "ot/"), ("/wo", "rk/"), ("/Us", "ers/"))
_MARKS: Final = (("TO", "DO"), ("FIX", "ME"), ("XX", "X"))

PATTERNS: Final = {
    "a package index's host": re.compile("|".join(re.escape(a + b) for a, b in _HOSTS)),
    "a package index's option": re.compile("|".join(f"--(extra-)?{a + b}" for a, b in _OPTIONS)),
    "somebody's folder": re.compile(r"(?<![\w.~}\-])(" + "|".join(a + b for a, b in _FOLDERS) + r")\w"),
    "a mark of unfinished work": re.compile(r"\b(" + "|".join(a + b for a, b in _MARKS) + r")\b"),
}

# `pip install -c constraints.txt` is the one way versions are fixed here.
FOREIGN_LOCKS: Final = frozenset(
    {"uv.lock", "package-lock.json", "poetry.lock", "pdm.lock", "Pipfile.lock", "yarn.lock"}
)


def hygiene_faults(path: PurePath, text: str) -> list[str]:
    """Every line that belongs to one machine, one mirror or some later day."""
    return [
        f"{path}:{number}: {what}: {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in PATTERNS.items()
        if (match := pattern.search(line)) is not None
    ]


def test_tracked_files_name_no_machine_mirror_or_todo() -> None:
    found = []
    for path in tracked():
        content = (ROOT / path).read_bytes()
        if b"\0" not in content:
            found += hygiene_faults(path, content.decode("utf-8", errors="replace"))
    assert not found, "\n".join(found)


def test_no_other_tool_locks_versions() -> None:
    assert [str(path) for path in tracked() if path.name in FOREIGN_LOCKS] == []


@pytest.mark.parametrize(
    "line",
    [
        "https://" + "files." + "pythonhosted" + ".org/x.whl",
        "pip install --" + "index-url x",
        "path = " + "/ho" + "me/ann/pillarbox",
        '"' + "/wo" + "rk/main" + '"',
        "# TO" + "DO: later",
    ],
)
def test_each_fault_is_found(line: str) -> None:
    assert len(hygiene_faults(PurePath("README.md"), line)) == 1


@pytest.mark.parametrize("line", ["a todo-list", "docs/home/flow", "see ../home/page", "/var/lib/pillarbox"])
def test_similar_text_passes(line: str) -> None:
    assert hygiene_faults(PurePath("README.md"), line) == []
