"""test_schedule_command — `pillarbox schedule` works as documented and reports errors

Owns: proofs about scripts/commands/schedule.py, from the command line to the tables.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scripts import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

type Command = Callable[..., tuple[int, str, str]]

REPORT = ("--from", "robot@sender.example", "--to", "a@ash.example", "--to", "b@birch.example")


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `pillarbox schedule` on the test's database: exit status, standard output, standard error."""
    (tmp_path / "smtpd.yaml").write_text(json.dumps({"environment": {"database": {"uri": database}}}))
    (tmp_path / "mail.eml").write_bytes(b"Date: x\nMessage-ID: <x@y>\nSubject: report\n\nbody\n")

    def run(verb: str, *arguments: str) -> tuple[int, str, str]:
        file = ("--file", str(tmp_path / "mail.eml")) if verb == "add" else ()
        status = cli.main(["schedule", verb, *arguments, *file, "--config", str(tmp_path)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def listed(command: Command) -> dict[str, Any]:
    status, out, err = command("list", "--json")
    assert (status, err) == (0, "")
    return {row["id"]: row for row in map(json.loads, out.splitlines())}


def test_a_schedule_is_added_and_listed(command: Command, factory: Factory) -> None:
    status, out, _ = command("add", "weekly", "--every", "0 9 * * mon", "--timezone", "Europe/Berlin", *REPORT)
    assert status == 0
    assert out.startswith("weekly: At 09:00 on Monday, Europe/Berlin; first ")
    [row] = factory.sql("SELECT * FROM pillarbox.schedules")
    assert bytes(row.content) == b"Subject: report\r\n\r\nbody\r\n"
    assert (row.sender, row.recipients) == ("robot@sender.example", ["a@ash.example", "b@birch.example"])
    assert (row.enabled, row.timezone, row.next_at.weekday()) == (True, "Europe/Berlin", 0)
    known = listed(command)["weekly"]
    assert (known["cron"], known["recipients"], known["last_at"]) == ("0 9 * * mon", row.recipients, None)
    assert datetime.fromisoformat(known["next_at"]) == row.next_at
    status, out, _ = command("list")
    assert status == 0
    assert "weekly" in out


def test_disable_enable_and_remove(command: Command, factory: Factory) -> None:
    command("add", "hourly", "--every", "0 * * * *", *REPORT)
    assert command("disable", "hourly")[:2] == (0, "hourly is disabled; audit 2\n")
    assert listed(command)["hourly"]["enabled"] is False
    factory.sql("UPDATE pillarbox.schedules SET next_at = now() - interval '9 days', error = 'broken'")
    status, out, _ = command("enable", "hourly", "--json")
    assert status == 0
    known = listed(command)["hourly"]
    assert (known["enabled"], known["error"]) == (True, None)
    # What was missed while it was disabled is not made up.
    assert datetime.fromisoformat(known["next_at"]) > datetime.now(UTC)
    assert json.loads(out) == {"audit": 3, "id": "hourly", "next": known["next_at"]}
    assert command("remove", "hourly")[0] == 0
    assert listed(command) == {}
    assert command("list")[1] == "no schedules\n"


def test_one_message_is_queued_for_later(command: Command, factory: Factory) -> None:
    at = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)
    status, out, _ = command("add", "party", "--at", at.isoformat(), *REPORT, "--priority", "5", "--json")
    assert status == 0
    first, second = factory.queue()
    assert {first.next_retry, second.next_retry} == {at}
    assert (first.priority, first.jobid, str(first.messages__id)) == (5, "party", json.loads(out)["message"])
    assert factory.sql("SELECT content FROM pillarbox.messages")[0].content.startswith(b"Date: x\r\nMessage-ID: <x@y>")
    # Asked again, it is the same message; with another priority it is refused, and without an ID it is another one.
    again = command("add", "party", "--at", at.isoformat(), *REPORT, "--priority", "5", "--json")
    assert json.loads(again[1]) == json.loads(out)
    status, _, err = command("add", "party", "--at", at.isoformat(), *REPORT)
    assert (status, 'idempotency key "schedule:party:once" was used for another message' in err) == (1, True)
    assert command("add", "--at", at.isoformat(), *REPORT)[0] == 0
    assert len(factory.queue()) == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("weekly", "--every", "0 25 * * *", *REPORT), '--every: "0 25 * * *" is not a cron expression (bad hour)'),
        (("weekly", "--every", "@weekly", *REPORT), '--every: "@weekly" does not have five fields; allowed: minute'),
        (("weekly", "--every", "0 9 * * *", "--timezone", "CEST", *REPORT), '--timezone: "CEST" is not a time zone'),
        (("weekly report", "--every", "0 9 * * *", *REPORT), 'ID: "weekly report"; allowed: 1 to 64 letters'),
        (("--every", "0 9 * * *", *REPORT), "schedule add: ID is missing; allowed: with --every a name"),
        (("--at", "yesterday", *REPORT), '--at: "yesterday" is not a time; allowed: a time to come'),
        (("--at", "2001-01-01", *REPORT), '--at: "2001-01-01" has passed'),
        (("w", "--every", "0 9 * * *", *REPORT, "--to", "x"), '--to: "x": address has no domain'),
    ],
)
def test_an_error_names_the_option(command: Command, factory: Factory, arguments: tuple[str, ...], says: str) -> None:
    status, out, err = command("add", *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"pillarbox: {says}")
    assert err.count("\n") == 1
    assert factory.sql("SELECT FROM pillarbox.schedules") == factory.queue() == []


def test_an_id_must_be_new_to_add_and_known_to_remove(command: Command) -> None:
    every = ("--every", "0 9 * * *", *REPORT)
    assert (
        command("enable", "weekly")[2] == 'pillarbox: ID: schedule "weekly" does not exist; allowed: there are none\n'
    )
    assert command("add", "daily", *every)[0] == 0
    status, _, err = command("add", "daily", *every)
    assert (status, err.partition(";")[0]) == (1, 'pillarbox: ID: there is a schedule "daily" already')
    for verb in ("remove", "enable", "disable"):
        assert command(verb, "weekly")[::2] == (1, 'pillarbox: ID: schedule "weekly" does not exist; allowed: daily\n')


def test_an_unreachable_database_gives_one_line(command: Command, tmp_path: Path) -> None:
    (tmp_path / "smtpd.yaml").write_text('environment: {database: {uri: "postgresql://127.0.0.1:1/x"}}')
    status, out, err = command("list")
    assert (status, out, err.count("\n")) == (69, "", 1)
    assert err.startswith("pillarbox: PostgreSQL is unavailable: ")
