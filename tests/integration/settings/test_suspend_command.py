"""test_suspend_command — `pillarbox suspend` works as documented and reports errors

Owns: proofs about scripts/commands/suspend.py, from the command line to the tables.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scripts import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

type Command = Callable[..., tuple[int, str, str]]

WHY = ("--reason", "they asked")


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `pillarbox suspend` on the test's database: exit status, standard output, standard error."""
    return commanding(database, tmp_path, capsys)


def commanding(uri: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    (folder / "smtpd.yaml").write_text(json.dumps({"environment": {"database": {"uri": uri}}}))

    def run(verb: str, *arguments: str) -> tuple[int, str, str]:
        status = cli.main(["suspend", verb, *arguments, "--config", str(folder)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def listed(command: Command) -> list[dict[str, Any]]:
    status, out, err = command("list", "--json")
    assert (status, err) == (0, "")
    rows: list[dict[str, Any]] = list(map(json.loads, out.splitlines()))
    return rows


def test_a_destination_is_suspended_and_listed(command: Command) -> None:
    status, out, _ = command("add", "--destination", "Example.com", "--destination", ".example.com", *WHY)
    assert (status, out) == (0, "1: destination example.com, .example.com is suspended until it is removed; audit 1\n")
    [row] = listed(command)
    assert row["selection"] == {"destination": ["example.com", ".example.com"]}
    assert (row["reason"], row["expires"]) == ("they asked", None)
    status, out, _ = command("list")
    assert status == 0
    assert "they asked" in out


def test_a_suspend_can_expire(command: Command, factory: Factory) -> None:
    status, out, _ = command("add", "--tenant", "acme", "--for", "2h", "--who", "night shift", "--json", *WHY)
    assert status == 0
    [row] = factory.sql("SELECT * FROM pillarbox.suspends")
    assert (row.expires - row.made, row.who) == (timedelta(hours=2), "night shift")
    selection = {"tenant": ["acme"]}
    assert json.loads(out) == {"audit": 1, "id": row.id, "selection": selection, "expires": row.expires.isoformat()}
    factory.sql("UPDATE pillarbox.suspends SET expires = now()")
    assert listed(command) == []


def test_suspending_again_changes_the_suspend(command: Command) -> None:
    command("add", "--destination", "example.com", *WHY)
    command("add", "--destination", "example.com", "--reason", "they asked twice", "--for", "1h")
    [row] = listed(command)
    assert (row["reason"], row["expires"] is None) == ("they asked twice", False)


def test_removing_makes_its_mail_due(command: Command, factory: Factory) -> None:
    command("add", "--destination", "example.com", *WHY)
    mail = factory.row(due=timedelta(minutes=9))
    factory.sql("UPDATE pillarbox.queue SET last_error = 'waiting: suspended: they asked'")
    assert command("remove", "1")[:2] == (0, "1: destination example.com is no longer suspended\naudit 2\n")
    assert listed(command) == []
    assert [row.id for row in factory.sql("SELECT id FROM pillarbox.queue WHERE next_retry <= now()")] == [mail]


def test_all_are_removed_together(command: Command) -> None:
    command("add", "--destination", "example.com", *WHY)
    command("add", "--all", *WHY)
    status, out, _ = command("remove", "--all", "--json")
    answer = {"audit": 3, "removed": [1, 2], "selections": [{"destination": ["example.com"]}, {}]}
    assert (status, json.loads(out)) == (0, answer)
    assert command("list")[1] == "nothing is suspended\n"


def test_maintainers_suspend_and_remove_with_their_own_rights(
    factory: Factory, logins: Logins, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = commanding(logins.uri("maintainer"), tmp_path, capsys)
    assert command("add", "--destination", "example.com", *WHY)[0] == 0
    factory.row()
    assert command("remove", "1")[0] == 0  # workers make its mail due, who may


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", *WHY), "suspend add: no mail selected; allowed: any of --transport, --destination"),
        (
            ("add", "--all", "--job", "x", *WHY),
            "suspend add: no mail selected; allowed: any of --transport, --destination",
        ),
        (("add", "--job", "two words", *WHY), '--jobid: "two words" is not usable here; allowed: a value'),
        (("add", "--destination", "x@example.com", *WHY), '--destination: "x@example.com" is not usable here; allowed'),
        (("add", "--sender", "\u202e", *WHY), '--sender: "\\u202e" is not usable here; allowed: a domain, .domain'),
        (("add", "--site", "\u202e", *WHY), '--site: "\\u202e" is not a site; allowed: a name such as'),
        (("add", "--all", "--who", "f\udcfcr", *WHY), '"f\\udcfcr" is not UTF-8; allowed: words in UTF-8'),
        (("add", "--all", "--who=f\udcfcr", *WHY), '"--who=f\\udcfcr" is not UTF-8; allowed: words'),
        (("remove",), "suspend remove: give numbers that `pillarbox suspend list` shows, or --all"),
        (("remove", "77"), "suspend remove: suspend 77 does not exist; allowed: those of `suspend list`"),
    ],
)
def test_a_mistake_gives_one_line(command: Command, arguments: tuple[str, ...], said: str) -> None:
    status, out, err = command(*arguments)
    assert (status != 0, out) == (True, "")
    assert err.startswith(f"pillarbox: {said}")
    assert err.count("\n") == 1


def test_an_invalid_time_is_refused(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command("add", "--all", "--for", "soon", *WHY)
    assert '"soon" is not a duration' in capsys.readouterr().err
