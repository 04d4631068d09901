"""test_tables — the commands in the tables of our pages run, and do and print what their rows say

See: docs/how-to/start/come-from-postfix.md, docs/how-to/start/come-from-halon.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.pages.readers import (
    PARTS,
    RECIPIENT,
    dead,
    factory_of,
    held,
    queued,
    rspamd,
    transport,
    without_mail,
)
from tests.fixtures.pages.walking import DOCS, Reader, Walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.counts_pages

_ROW: Final = re.compile(r"^\|(.*)\|$", re.MULTILINE)
#: What becomes of recipient 4711, by the verb that Postfix's command is here.
_STATUS: Final = {"hold": "HOLD", "release": "DELIVER", "bounce": "BOUNCE", "delete": "DELETE"}
#: These serve: tests/scenario/operation runs them. A report starts Spark: tests/analytics/test_pages.py makes it.
_NOT_HERE: Final = ("pillarbox up", "pillarbox relay", "pillarbox user add NAME", "pillarbox analytics report")


def rows(page: str, heading: str) -> Iterator[list[str]]:
    """The cells of each row of the tables below a heading."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    for row in _ROW.findall(text):
        yield [cell.strip() for cell in row.split("|")]


def commands(cell: str) -> list[str]:
    """The commands in a cell that run here."""
    return [words for words in re.findall(r"`(pillarbox [^`]*)`", cell) if not words.startswith(_NOT_HERE)]


@pytest.fixture
def walk(database: str, tmp_path: Path) -> Iterator[Walk]:
    """A reader with a transport `slow` and a content check."""
    with Walk(tmp_path, database, Reader()) as made:
        transport("slow")(made)
        rspamd(made)
        yield made


def prepare(walk: Walk, command: str) -> None:
    """Recipient 4711, in the state in which this command finds it."""
    without_mail(walk)
    verb = command.split()[1:3]
    if verb[0] in {"quarantine", "retention"} or verb[1:] == ["release"]:
        held("contentcheck", content=PARTS)(walk)
    elif verb[0] == "deadletters":
        dead(walk)
    else:
        queued(walk)


def test_commands_of_postfix_have_their_match_here(walk: Walk) -> None:
    ran = set()
    for row in rows("how-to/start/come-from-postfix.md", "Commands"):
        for command in commands(row[1]):
            prepare(walk, command)
            status, said = walk._run(command)
            assert status == 0 or command.startswith(
                ("pillarbox policy test", "pillarbox doctor", "pillarbox status")
            ), (command, said)
            verb = command.split()[2] if " " in command.removeprefix("pillarbox ") else ""
            if verb in _STATUS:
                with factory_of(walk) as factory:
                    assert factory.queue(RECIPIENT)[0].status == _STATUS[verb], command
            ran.add(verb)
    assert {"list", "retry", "hold", "release", "move", "delete", "show", "shape"} <= ran


@pytest.mark.parametrize(("page", "heading", "least"), [("postfix", "Settings", 25), ("halon", "Configuration", 12)])
def test_settings_of_others_have_their_key_here(page: str, heading: str, least: int) -> None:
    reference = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    keys = {
        file: reference.partition(f"\n## {file}\n")[2].partition("\n## ")[0] for file in ("smtpd.yaml", "queued.yaml")
    }
    found = [
        (file, key)
        for _, files, cell, _ in (row for row in rows(f"how-to/start/come-from-{page}.md", heading) if len(row) == 4)
        for file in files.split(", ")
        if file in keys
        for key in re.findall(r"`([^`]+)`", cell)
    ]
    assert len(found) > least
    for file, key in found:
        assert re.search(rf"^\| `{re.escape(key)}[`.\[]", keys[file], re.MULTILINE), (file, key)
