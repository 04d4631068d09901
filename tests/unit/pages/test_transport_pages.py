"""test_transport_pages — the examples on the pages about transports are valid and have the described meaning"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent, indent

import pytest

from shared.config.queued.load import load_queued

PAGES = Path(__file__).parents[3] / "docs" / "how-to" / "deliver"
_BLOCK = re.compile(r"(?m)(?:^    .*\n|^\n(?=    ))+")
_KEY = re.compile(r"transport|pacing|sources|routing")


def examples(page: str) -> list[str]:
    """The blocks of a page that are parts of queued.yaml, each made a whole one."""
    blocks = [dedent(block).strip("\n") + "\n" for block in _BLOCK.findall((PAGES / page).read_text(encoding="utf-8"))]
    return [
        "transports:\n  - id: a\n" + indent(block, "    ") if block.startswith("sources") else block
        for block in blocks
        if _KEY.match(block)
    ]


@pytest.mark.parametrize(
    ("page", "count"), [("transport-groups.md", 1), ("several-source-addresses.md", 3), ("route-mail.md", 6)]
)
def test_every_example_is_valid(page: str, count: int, tmp_path: Path) -> None:
    found = examples(page)
    assert len(found) >= count
    for text in found:
        (tmp_path / "queued.yaml").write_text(text, encoding="utf-8")
        load_queued(tmp_path / "queued.yaml", {})


def test_the_transports_on_the_page_about_groups_have_the_described_settings(tmp_path: Path) -> None:
    (tmp_path / "queued.yaml").write_text(examples("transport-groups.md")[0], encoding="utf-8")
    default, newsletters, internal = load_queued(tmp_path / "queued.yaml", {}).transports
    assert newsletters.connection == default.connection
    assert newsletters.retry.intervals == default.retry.intervals
    assert (default.retry.count, newsletters.retry.count) == (20, 5)
    assert [source.hostname for source in newsletters.sources] == ["news.example.com"]
    assert (internal.connection.mode, internal.sources) == ("smarthost", [])
