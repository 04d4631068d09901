"""test-file-sizes — no Python file is longer than one can read at a sitting

See: docs on layout; models of this field keep their median source file at 100 to 217 lines, and their tails hurt.
"""

from __future__ import annotations

from typing import Final

from tests.layout.sources import python_files, read

LONGEST: Final = 300  # lines


def test_no_file_is_longer_than_300_lines() -> None:
    lengths = {path: len(read(path).splitlines()) for path in python_files()}
    assert lengths, "no Python files found"
    too_long = [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > LONGEST]
    assert not too_long, f"longer than {LONGEST} lines; two files?\n" + "\n".join(too_long)
