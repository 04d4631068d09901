"""test_reply_pages — the examples on the pages about replies and retries work as documented

Owns: runs the rules of docs/how-to/deliver/react-to-replies.md through `pillarbox rules test` and the schedules of
    docs/explanation/retries.md through queued.outcome.retry; and that every table of classification is on its page.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from queued.outcome.retry import decide, is_late
from scripts.cli import main
from scripts.dev.classification_reference import page
from shared.config.queued.load import load_queued
from shared.config.queued.transport import Retry
from shared.config.units import parse_duration

DOCS = Path(__file__).parents[3] / "docs"
RULES = (DOCS / "how-to" / "deliver" / "react-to-replies.md").read_text(encoding="utf-8")
RETRIES = (DOCS / "explanation" / "retries.md").read_text(encoding="utf-8")
RECEIVED = datetime(2030, 1, 1, tzinfo=UTC)

_BLOCK = re.compile(r"(?:^    .*\n|^\n)+", re.MULTILINE)
FIRST, PROVIDERS = (b for b in map(textwrap.dedent, _BLOCK.findall(RULES)) if b.strip().startswith("rules:"))
SAID = re.findall(r"^\| `(\d{3} [^`]*)` \| `([^`]+)` \| (\S+) \| (.+) \|$", RULES, re.MULTILINE)
FATES = {"deferred": "tried again", "failed": "given up", "held": "held"}


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The providers' rules, in the folder config of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / "queued.yaml"
    file.write_text(PROVIDERS, encoding="utf-8")
    return file


@pytest.mark.parametrize(("reply", "site", "rule", "fate"), SAID)
def test_each_provider_reply_matches_its_rule(
    rules: Path, capsys: pytest.CaptureFixture[str], reply: str, site: str, rule: str, fate: str
) -> None:
    status = main(["rules", "test", "--reply", reply, "--site", site, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["fired"] == ([] if rule == "none" else [rule])
    assert status == (1 if rule == "none" else 0)
    shown = FATES[answer["outcome"]] + (f", {answer['suspend']['of']} suspended" if answer["suspend"] else "")
    assert shown == fate


def test_every_provider_rule_is_valid(rules: Path) -> None:
    assert len(SAID) >= 9
    assert len(load_queued(rules, {}).rules) == 9


def test_the_command_prints_what_the_page_shows(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules.write_text(FIRST, encoding="utf-8")
    shown = RULES.partition("    $ pillarbox ")[2].partition("\n\n")[0]
    command, *lines = textwrap.dedent(f"    {shown}").splitlines()
    assert main(shlex.split(command)) == 0
    printed = capsys.readouterr().out
    assert [line.strip() for line in printed.splitlines()] == [line.strip() for line in lines]


def test_an_invalid_reply_is_refused(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["rules", "test", "--reply", "go away"])
    assert "is not a valid reply; allowed: a code from 200 to 599" in capsys.readouterr().err


def schedules() -> list[tuple[Retry, dict[int, timedelta]]]:
    """Each retry section of the page, and the tries that the table after it has."""
    parts = re.split(r"^        retry:\n", RETRIES, flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        written = dict(re.findall(r"^          (\w+): (.*)$", part, re.MULTILINE))
        intervals = {"intervals": written.pop("intervals").strip("[]").split(", ")}
        numbers = {key: float(v) if key == "jitter" else int(v) for key, v in written.items() if v[-1].isdigit()}
        retry = Retry.model_validate(written | intervals | numbers)
        rows = re.findall(r"^\| (\d+) \| (\w+) \|$", part, re.MULTILINE)
        found.append((retry, {int(number): parse_duration(after) for number, after in rows}))
    return found


def tries(retry: Retry, *, null: bool = False) -> list[timedelta]:
    """When mail that is always deferred is tried, without jitter."""
    at, made = RECEIVED, [RECEIVED]
    while (due := decide(at, received=RECEIVED, tries=len(made), schedule=retry, roll=0, null=null)) is not None:
        at = due
        made.append(at)
    return [each - RECEIVED for each in made]


@pytest.mark.parametrize("number", range(3))
def test_the_schedules_are_those_of_the_tables(number: int) -> None:
    retry, table = schedules()[number]
    made = tries(retry)
    assert {n: made[n - 1] for n in table} == table
    assert len(made) == max(table) or retry.notice is not None


def test_the_first_schedule_is_the_default() -> None:
    assert schedules()[0][0] == Retry()


def test_mail_of_the_null_sender_ends_earlier() -> None:
    retry = schedules()[1][0].model_copy(update={"nullage": timedelta(hours=4)})
    assert tries(retry, null=True)[-1] == timedelta(hours=4)
    assert len(tries(retry, null=True)) == 5


def test_the_delay_notice_follows_the_documented_try() -> None:
    retry = schedules()[2][0]
    late = [
        n for n, after in enumerate(tries(retry), 1) if is_late(RECEIVED + after, received=RECEIVED, schedule=retry)
    ]
    assert late[0] == 6


def test_the_page_of_classification_has_every_table() -> None:
    text = page()
    for words in ("| rcpt | deferred, recipient | failed, recipient |", "| X.2.2 | recipient |", "| tls | "):
        assert words in text
