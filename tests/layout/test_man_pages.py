"""test-man-pages — every Python file opens with its man page

Guarantees: the docstring's first line is `name — what it does`, the name is the file's, and the page fits on a screen.
"""

from __future__ import annotations

import ast
from pathlib import PurePath
from typing import Final

import pytest

from tests.layout.sources import python_files, read

LONGEST: Final = 25  # lines of docstring


def page_fault(path: PurePath, source: str) -> str | None:
    """What is wrong with this file's man page; None when nothing is."""
    page = ast.get_docstring(ast.parse(source))
    if page is None:
        return f"{path}: opens with no docstring"
    lines = page.splitlines()
    name, dash, clause = lines[0].partition(" — ")
    stem = path.parent.name if path.stem == "__init__" else path.stem
    if not dash or not clause.strip():
        return f'{path}: first line "{lines[0]}" is not of the form "{stem} — what it does"'
    # An entry point is known by its command: `python -m smtpd`.
    names = {stem} if stem != "__main__" else {stem, path.parent.name, f"python -m {path.parent.name}"}
    if name.replace("-", "_") not in {known.replace("-", "_") for known in names}:
        return f'{path}: the page is named "{name}"; allowed: {", ".join(sorted(names))}'
    if len(lines) > LONGEST:
        return f"{path}: the page has {len(lines)} lines; allowed: {LONGEST}"
    return None


def test_every_file_opens_with_its_man_page() -> None:
    found = [fault for path in python_files() if (fault := page_fault(path, read(path))) is not None]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        '"""Claims recipients."""',
        '"""deliver — talks to a host"""',
        '"""claim — """',
        '"""claim — takes due rows\n' + "\nmore" * LONGEST + '\n"""',
    ],
)
def test_a_missing_misnamed_or_endless_page_is_seen(source: str) -> None:
    assert page_fault(PurePath("queued/claim.py"), source) is not None


def test_a_page_may_spell_the_name_with_dashes() -> None:
    assert page_fault(PurePath("queued/result_columns.py"), '"""result-columns — a group as columns"""') is None
