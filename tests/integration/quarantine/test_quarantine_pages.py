"""test_quarantine_pages — every command on the page about quarantined mail works as documented

Owns: running them, in the order they stand, on a queue in which each finds something.
See: docs/how-to/review/review-quarantined-mail.md.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import textwrap
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shared.config.smtpd.quarantine import Quarantine
from shared.config.yaml_source import load_yaml
from tests.fixtures.database.logins import name_of
from tests.fixtures.database.reviewing import hold
from tests.fixtures.peers.web.http_peer import HttpPeer, verdict

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.database.reviewing import Reviewing

pytestmark = pytest.mark.counts_pages

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "review" / "review-quarantined-mail.md"
PHISHING = (
    b"Subject: Your account\r\nMIME-Version: 1.0\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n"
    b"--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n"
    b"--b\r\nContent-Type: text/html\r\n\r\n<p>Log in here</p>\r\n--b--\r\n"
)
_COMMAND = re.compile(r"^    pillarbox quarantine (.*)$", re.MULTILINE)
_YAML = re.compile(r"^    quarantines:\n(?:      .*\n)+", re.MULTILINE)


def commands() -> list[list[str]]:
    """The words of each command of the page, without `pillarbox quarantine`."""
    return [shlex.split(line) for line in _COMMAND.findall(PAGE.read_text(encoding="utf-8"))]


@pytest.fixture
def declared(tmp_path: Path) -> list[Any]:
    """The quarantines that the page declares."""
    example, *_ = _YAML.findall(PAGE.read_text(encoding="utf-8"))
    file = tmp_path / "example.yaml"
    file.write_text(textwrap.dedent(example), encoding="utf-8")
    found: Any = load_yaml(file, {}).values["quarantines"]
    assert [Quarantine.model_validate(each).retention for each in found] == [timedelta(days=30)]
    return list(found)


async def test_every_command_finds_its_rows(
    factory: Factory, reviewing: Reviewing, logins: Logins, declared: list[Any], tmp_path: Path
) -> None:
    uri = logins.uri("reviewer")
    factory.sql(f"GRANT pillarbox_application TO {name_of(uri)}")
    found = commands()
    verbs = {"list", "show", "release", "delete", "rescan", "export", "digest"}
    assert {words[0] for words in found} == verbs
    (tmp_path / "evidence").mkdir()
    async with HttpPeer(verdict()) as peer:
        quarantines = [{**each, "reviewers": [name_of(uri)]} for each in declared]
        settings = {"policy": {"contentcheck": {"url": peer.url}}}
        reviewer = reviewing.at(uri, quarantines=quarantines, **settings)
        for words in found:
            factory.sql("UPDATE pillarbox.queue SET status = 'DELETE' WHERE status = 'HOLD'")
            factory.sql("UPDATE pillarbox.queue SET status = 'DELETE' WHERE status = 'DELIVER'")
            [held] = hold(factory, "contentcheck", message=factory.message(PHISHING))
            factory.sql(
                """UPDATE pillarbox.queue SET ts = now() - interval '8 days', senderdomain = 'customer.example'
                    WHERE id = %(id)s""",
                id=held,
            )
            known = [str(held) if word == "4711" else word for word in words]
            known = [str(tmp_path / "evidence") if word == "evidence" else word for word in known]
            known = known[: known.index(">")] if ">" in known else known
            said = await asyncio.to_thread(reviewer.run, *known, "--json")
            assert (reviewer.status, reviewer.refused) == (0, ""), words
            status = factory.queue(held)[0].status
            if words[0] in {"release", "delete"} or "--release" in words:
                assert (status == "HOLD") == ("--yes" not in words), words
            else:
                assert status == "HOLD", words
                assert str(held) in said or "contentcheck" in said or words[0] in {"export", "rescan"}, words
            if words[0] == "rescan":
                assert '"clean": 1' in said
    assert len(list((tmp_path / "evidence").iterdir())) == 1
