"""test_retention_page — every command of the pages on held mail and retention works as documented

Owns: running them, in the order they stand, with the configuration of the page, on a queue in which each finds
    something.
See: docs/how-to/review/keep-and-delete.md, docs/how-to/accept/hold-mail.md.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import cli, delete_release1
from shared.config.yaml_source import load_yaml
from tests.fixtures.database.operating import write_config

if TYPE_CHECKING:
    import pytest

    from tests.fixtures.database.factory import Factory

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
_COMMAND = re.compile(
    r"^    (?:\.venv/bin/)?(pillarbox (?:retention|queue) .*|pillarbox retention|python -m .*)$", re.MULTILINE
)
_SECTIONS = re.compile(r"^    quarantines:\n(?:    .*\n)+", re.MULTILINE)


def commands(page: str) -> list[list[str]]:
    """The words of each command of a page."""
    return [shlex.split(line) for line in _COMMAND.findall((HOW_TO / page).read_text(encoding="utf-8"))]


def held(factory: Factory, quarantine: str) -> int:
    """A recipient held a year ago, with the sender and recipient of the pages' examples."""
    one = factory.row(status="HOLD", received=datetime.now(UTC) - timedelta(days=365))
    factory.sql(
        """UPDATE pillarbox.queue SET senderlocalpart = 'bob', senderdomain = 'customer.example',
                  metadata = metadata || jsonb_build_object('_quarantineid', %(quarantine)s::text) WHERE id = %(id)s""",
        quarantine=quarantine,
        id=one,
    )
    return one


def test_the_page_on_retention(
    factory: Factory, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = _SECTIONS.findall((HOW_TO / "review/keep-and-delete.md").read_text(encoding="utf-8"))
    yaml = tmp_path / "page.yaml"
    yaml.write_text(textwrap.dedent(block), encoding="utf-8")
    folder = write_config(tmp_path / "config", database, **load_yaml(yaml, {}).values)
    found = commands("review/keep-and-delete.md")
    assert len(found) == 6
    assert " ".join(found[4]) == "python -m scripts.delete_release1"
    for words in found:
        ids = [held(factory, name) for name in ("mailquarantine:release1", "abuse", "other")]
        options = [*words[3 if words[0] == "python" else 1 :], "--json", "--config", str(folder)]
        status = delete_release1.main(options) if words[0] == "python" else cli.main(options)
        assert status == 0, (words, capsys.readouterr().err)
        first = json.loads(capsys.readouterr().out.splitlines()[0])
        deleted = [row.id for row in factory.queue(*ids) if row.status == "DELETE"]
        if "--yes" in words or words[0] == "python":
            expected = ids if words[1:] == ["retention", "--yes"] else ids[:1]
            assert (deleted, first["done"]) == (expected, 1), words
        else:
            assert (deleted, first["recipients"]) == ([], 1), words
        factory.sql("UPDATE pillarbox.queue SET status = 'DELETE' WHERE status = 'HOLD'")


def test_the_page_on_holding(
    factory: Factory, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_config(tmp_path / "config", database)
    verbs = []
    for words in commands("accept/hold-mail.md"):
        for quarantine in ("mailquarantine:release1", "abuse"):
            held(factory, quarantine)
        waiting = factory.row()
        factory.sql(
            "UPDATE pillarbox.queue SET senderlocalpart = 'bob', senderdomain = 'example.com' WHERE id = %(id)s",
            id=waiting,
        )
        assert cli.main([*words[1:], "--json", "--config", str(folder)]) == 0, (words, capsys.readouterr().err)
        answer = json.loads(capsys.readouterr().out.splitlines()[0])
        assert "--yes" not in words or answer["done"] == 1, words
        verbs.append(words[2])
        factory.sql("UPDATE pillarbox.queue SET status = 'DELETE' WHERE status IN ('HOLD', 'DELIVER')")
    assert verbs == ["list", "group", "hold", "release", "delete"]
