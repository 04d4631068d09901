"""test_pacing_pages — the examples of docs/explanation/pacing.md agree with a worker's behaviour

Owns: reads each configuration on the page and asks every question below it, at its time.
"""

from __future__ import annotations

import re
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from queued.pacing.pace import Fields, Paces, Turn
from shared.config.queued.load import load_queued

if TYPE_CHECKING:
    from shared.config.queued.settings import QueuedConfig

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "pacing.md"
_LINE = re.compile(
    r"(?:(?P<seconds>[0-9.]+) s|(?P<day>[A-Z][a-z]{2}) (?P<date>[0-9-]{10} [0-9:]{5}) UTC) +"
    r"(?P<fields>\S+=\S+(?: \S+=\S+)*) +(?P<answer>goes|is done|waits (?P<wait>[0-9.]+) s: (?P<reason>.*))"
)


class Example(NamedTuple):
    """A configuration and the questions asked of it; some have none."""

    config: str
    lines: list[str]


def examples() -> list[Example]:
    """The examples on the page, in their order."""
    blocks = re.findall(r"(?:^    .*\n|^\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    found: list[Example] = []
    for text in (part for block in blocks for part in re.split(r"\n{2,}", textwrap.dedent(block).strip("\n"))):
        if re.match(r"(pacing|transports):", text):
            found.append(Example(text + "\n", []))
        elif re.match(r"[0-9.]+ s |[A-Z][a-z]{2} 2026-", text):
            found[-1].lines.extend(text.splitlines())
    return found


def load(example: Example, folder: Path) -> QueuedConfig:
    (folder / "queued.yaml").write_text(example.config, encoding="utf-8")
    return load_queued(folder / "queued.yaml", {})


def test_the_page_has_examples_of_everything() -> None:
    kinds = "".join(example.config for example in examples())
    for key in ("rate:", "concurrency:", "suspends:", "windows:", "shared:", "match:"):
        assert key in kinds
    assert sum(len(example.lines) for example in examples()) >= 20


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.config.split("id: ")[-1].split()[0])
def test_a_worker_answers_as_the_page_says(example: Example, tmp_path: Path) -> None:
    config = load(example, tmp_path)
    at, wall = 0.0, datetime(2026, 11, 20, tzinfo=UTC)
    windows = {transport.id: transport.windows for transport in config.transports}
    paces = Paces(config.pacing, windows, clock=lambda: at, now=lambda: wall)
    turns: dict[str, Turn] = {}
    for line in example.lines:
        parts = _LINE.fullmatch(line)
        assert parts, line
        if parts["seconds"]:
            assert at <= float(parts["seconds"]), "time goes on"
            at = float(parts["seconds"])
        else:
            wall = datetime.fromisoformat(f"{parts['date']}+00:00")
            assert f"{wall:%a}" == parts["day"]
        if parts["answer"] == "is done":
            turns.pop(parts["fields"]).done()
            continue
        fields = {"transport": "default", "destination": "", **dict(f.split("=") for f in parts["fields"].split())}
        asked = paces.ask(Fields(**fields))
        if isinstance(asked, Turn):
            assert parts["answer"] == "goes", line
            turns[parts["fields"]] = asked
        else:
            assert parts["answer"] == f"waits {asked.seconds:.1f} s: {asked.reason}", line


def test_a_shared_limit_answers_wait_and_never_blocks(tmp_path: Path) -> None:
    [example] = [example for example in examples() if "shared: true" in example.config]
    paces = Paces(load(example, tmp_path).pacing)
    asked = paces.ask(Fields("default", "example.com"))
    assert not isinstance(asked, Turn)
    assert timedelta(seconds=asked.seconds) < timedelta(seconds=1)
