"""test_confirmation — `pillarbox partitions` acts only after a yes, and reports its steps

Owns: proofs about the questions, the answers, the progress and the help of scripts/partitions/command.py.
"""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from operate.partitions import run as partitions_run
from scripts.cli import main
from tests.fixtures.database.partitions import apply, assert_no_traces, bounds, configure, contents, pillarbox
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fixtures.database.factory import Factory


@pytest.fixture
def folder(factory: Factory, tmp_path: Path) -> Path:
    factory.rows(3, partid="1")
    return configure(tmp_path, factory.uri, LEAVES)


class Asked:
    """A command that has asked its question at a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, terminal: int) -> None:
        self.process = process
        self._terminal = terminal

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    async def ended(self) -> tuple[int, str]:
        """The exit status, and the standard error."""
        async with asyncio.timeout(PATIENCE):
            _, said = await self.process.communicate()
        return self.process.returncode or 0, said.decode()


@asynccontextmanager
async def asked(folder: Path, *words: str) -> AsyncIterator[Asked]:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.cli", "partitions", *words, "--config", str(folder)),
        stdin=theirs,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            await process.stdout.readuntil(b"do this? [y/N] ")
        yield Asked(process, ours)
    finally:
        os.close(theirs)
        os.close(ours)
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("answer", [b"y\n", b"Yes\n"])
async def test_the_answer_yes_starts_the_move(factory: Factory, folder: Path, answer: bytes) -> None:
    whole = contents(factory)
    async with asked(folder, "move", "1", "456") as command:
        command.type(answer)
        assert await command.ended() == (0, "")
    assert "'1'" in bounds(factory)["queue_def_456"]
    assert contents(factory) == whole


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"yessir\n", b"\x04"], ids=["n", "enter", "typo", "ctrl-d"])
async def test_any_other_answer_changes_nothing(factory: Factory, folder: Path, answer: bytes) -> None:
    before = bounds(factory)
    async with asked(folder, "move", "1", "456") as command:
        command.type(answer)
        assert await command.ended() == (1, "pillarbox: partitions: nothing was changed\n")
    assert bounds(factory) == before
    assert_no_traces(factory)


async def test_ctrl_c_ends_the_question(factory: Factory, folder: Path) -> None:
    before = bounds(factory)
    async with asked(folder, "move", "1", "456") as command:
        command.process.send_signal(signal.SIGINT)
        assert await command.ended() == (130, "\npillarbox: partitions: nothing was changed\n")
    assert bounds(factory) == before
    assert_no_traces(factory)


@pytest.mark.parametrize("words", [("123", "45", "into", "456"), ("12", "into", "123"), ("nowhere", "into", "456")])
def test_a_merge_of_unknown_leaves_is_reported(
    factory: Factory, folder: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before = bounds(factory)
    status, said = pillarbox(folder, "merge", *words, "--yes"), capsys.readouterr()
    assert bounds(factory) == before
    if words[0] == "123":  # one of them is there, so the other is a mistake
        assert (status, said.err) == (1, "pillarbox: leaf 45: not there; there are 123, 456 and def\n")
    else:  # perhaps it was merged before
        assert status == 0
        assert f"nothing to do: leaf {words[0]} does not exist (any more); there are 123, 456 and def" in said.out
        assert "the leaves are as wanted" not in said.out


def test_a_repeated_merge_is_not_an_error(factory: Factory, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pillarbox(folder, "merge", "123", "456", "into", "123", "--yes") == 0
    capsys.readouterr()
    assert pillarbox(folder, "merge", "123", "456", "into", "123", "--yes") == 0
    assert (
        "nothing to do: leaf 456 does not exist (any more); there are 123 and def, and 123 holds 1, 2, 3, 4, 5, 6"
        in capsys.readouterr().out
    )


def test_merging_the_default_leaf_is_always_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pillarbox(folder, "merge", "def", "into", "123", "--yes") == 1
    assert "leaf def: cannot be merged" in capsys.readouterr().err


async def test_long_work_reports_its_progress(factory: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions_run, "PROGRESS", 5000)
    factory.rows(12_000, partid="1")
    lines: list[str] = []
    async with partitions_run.connected(factory.uri) as connection:
        await partitions_run.apply(connection, {"1": frozenset("1"), "456": frozenset("456")}, lines.append)
    begun = next(number for number, text in enumerate(lines) if text.startswith("copy the rows of queue_def_123"))
    assert lines[begun + 1 : begun + 3] == ["  5,000 so far", "  10,000 so far"]
    assert "put the new leaves in place of the old ones" in lines


@pytest.mark.parametrize("verb", ["show", "plan", "apply", "split", "merge", "move", "balance"])
def test_every_argument_of_every_verb_is_explained(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["partitions", verb, "--help"])
    listed = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    # A line with a name and nothing after it is continued on the next, further in.
    entries = [n for n, line in enumerate(listed) if line.startswith("  ") and line[2] != " "]
    assert entries
    for number in entries:
        explained = "  " in listed[number].strip() or listed[number + 1].startswith(" " * 10)
        assert explained, listed[number]


async def test_an_unchanged_layout_asks_no_question(factory: Factory, folder: Path) -> None:
    assert await asyncio.to_thread(pillarbox, folder, "apply") == 0
    assert await apply(factory.uri, {name: frozenset(ids) for name, ids in LEAVES.items()}) == 0
