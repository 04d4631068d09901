"""test-names — files and classes are named for what they do, in the words of the trade

Guarantees: no file shadows a standard-library module; no file or class uses a word that says nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import PurePath
from typing import Final

import pytest

from tests.layout.sources import python_files, read

# A recipient is the unit of work, a message the content; what owns something is named for what it does with it.
FORBIDDEN: Final = frozenset({"helper", "info", "item", "job", "manager", "task", "util"})

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def words(name: str) -> set[str]:
    """The lower-case words of a snake_case or CamelCase name, plurals as singulars."""
    found = {word.lower() for word in _WORD.findall(name)}
    return found | {word.removesuffix("s") for word in found}


def name_faults(path: PurePath, source: str) -> list[str]:
    """Every name in this file, its own included, that is forbidden."""
    found = []
    if not path.stem.startswith("__") and path.stem in sys.stdlib_module_names:
        found.append(f"{path}: {path.stem} is a module of the standard library")
    found += [f'{path}: "{word}" in a file name says nothing' for word in sorted(words(path.stem) & FORBIDDEN)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            bad = sorted(words(node.name) & FORBIDDEN)
            found += [f'{path}:{node.lineno}: "{word}" in class {node.name} says nothing' for word in bad]
    return found


def test_names_say_what_things_are() -> None:
    found = [fault for path in python_files() for fault in name_faults(path, read(path))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("shared/queue.py", ""),
        ("shared/config_utils.py", ""),
        ("queued/jobs.py", ""),
        ("queued/claim.py", "class ClaimManager: ..."),
        ("queued/claim.py", "def f():\n    class SMTPTask: ..."),
    ],
)
def test_an_empty_word_is_seen(path: str, source: str) -> None:
    assert len(name_faults(PurePath(path), source)) == 1


def test_a_word_inside_another_word_is_not_meant() -> None:
    assert name_faults(PurePath("shared/itemised.py"), "class Taskmaster: ...\nclass Information: ...") == []
