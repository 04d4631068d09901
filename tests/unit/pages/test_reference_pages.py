"""test_reference_pages — the generated pages of docs/reference are up to date

Owns: the comparison; a change of a model or an event without its page fails here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scripts.dev import reference

if TYPE_CHECKING:
    import pytest

DOCS = Path(__file__).parents[3] / "docs"


def test_the_pages_in_the_tree_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check", "--docs", str(DOCS)]) == 0, capsys.readouterr().err


def test_every_key_and_every_event_has_a_meaning() -> None:
    for page in reference.pages().values():
        for line in page.splitlines():
            if line.startswith("| `"):
                assert line.strip("| ").split("|")[-1].strip(), line


def test_a_stale_page_is_named_and_not_written(tmp_path: Path) -> None:
    folder = tmp_path / "reference"
    folder.mkdir()
    stale = folder / "events.md"
    stale.write_text("old")
    assert reference.main(["--check", "--docs", str(tmp_path)]) == 1
    assert stale.read_text() == "old"
    assert reference.main(["--docs", str(tmp_path)]) == 0
    assert stale.read_text() == reference.pages()["events.md"]
