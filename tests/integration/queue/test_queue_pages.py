"""test_queue_pages — every command on the pages about the queue works as documented

Owns: running them, in the order they stand, on a queue in which each finds something.
See: docs/how-to/operate/look-into-the-queue.md, docs/how-to/operate/act-on-the-queue.md.
"""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts import cli

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

pytestmark = pytest.mark.counts_pages

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "operate"
_COMMAND = re.compile(r"^    pillarbox (queue .*)$", re.MULTILINE)


def commands(page: str) -> list[list[str]]:
    """The words of each command of a page."""
    return [shlex.split(line) for line in _COMMAND.findall((HOW_TO / page).read_text(encoding="utf-8"))]


@pytest.fixture
def config(database: str, tmp_path: Path) -> Path:
    """A folder of configuration that names the test's own database."""
    environment = {"environment": {"database": {"uri": database}}}
    transports = {"transports": [{"id": "default"}, {"id": "slow"}]}  # the page moves mail to slow
    for name, more in (("smtpd", {}), ("queued", transports)):
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**environment, **more}), encoding="utf-8")  # JSON is YAML
    return tmp_path


def run(words: list[str], config: Path) -> int:
    extra = ["--times", "1"] if words[1] == "top" else []
    return cli.main([*words, *extra, "--config", str(config)])


def test_looking_commands_find_their_rows(factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=3)
    ids = factory.rows(2, tries=2, due=timedelta(hours=1), received=long_ago)
    factory.sql("UPDATE pillarbox.queue SET last_error = '451 4.7.1 Greylisted', status = 'DELIVER'")
    message = str(factory.queue(ids[0])[0].messages__id)
    found = commands("look-into-the-queue.md")
    assert {words[1] for words in found} == {"list", "group", "shape", "top", "show", "trace"}
    for words in found:
        known = [message if len(word) == 36 else str(ids[0]) if word == "4711" else word for word in words]
        assert run(known, config) == 0, (words, capsys.readouterr().err)
        answer = capsys.readouterr().out
        known_output = "r1" in answer or "example.com" in answer or "2" in answer
        assert "metadata.campaign" in words or known_output, (words, answer)


def test_acting_commands_change_the_rows_they_name(
    factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = commands("act-on-the-queue.md")
    assert [words[1] for words in found if "--yes" in words] == [
        *("hold", "hold", "release", "release", "retry", "delay", "priority", "move", "bounce", "delete", "undo"),
    ]
    last = ""
    for words in found:
        verb = words[1]
        factory.sql("UPDATE pillarbox.queue SET status = 'DELETE' WHERE status IN ('HOLD', 'DELIVER')")
        if verb in {"undo", "audit"}:
            known = [last if word == "17" else word for word in words]
            factory.sql("UPDATE pillarbox.audit SET verb = 'priority' WHERE id = %(id)s", id=int(last))
            assert run(known, config) == 0, (words, capsys.readouterr().err)
            capsys.readouterr()
            continue
        status = "HOLD" if verb in {"release", "delete"} else "DELIVER"
        received = datetime.now(UTC) - timedelta(days=3)
        one = factory.row(status=status, tries=1, due=timedelta(hours=1), received=received)
        factory.sql(
            """UPDATE pillarbox.queue SET senderlocalpart = 'shop', senderdomain = 'example.com', jobid = 'newsletter',
                      metadata = jsonb_strip_nulls(
                          metadata || jsonb_build_object('_quarantineid', %(quarantine)s::text))
                WHERE id = %(id)s""",
            id=one,
            quarantine="abuse" if status == "HOLD" else None,
        )
        known = [str(one) if word == "4711" else word for word in words]
        assert run([*known, "--json"], config) == 0, (words, capsys.readouterr().err)
        answer = json.loads(capsys.readouterr().out)
        assert answer["wanted"] == 1, words
        if "--yes" in words:
            assert answer["done"] == 1, words
            last = str(answer["audit"])
