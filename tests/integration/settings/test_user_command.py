"""test_user_command — `pillarbox user` manages users in the file or the table, and never shows a password

Owns: proofs about scripts/access/user.py, from the command line to a login by what it wrote.
"""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from argon2 import PasswordHasher

from scripts import cli
from smtpd.login import passwords
from tests.fixtures.daemons.login import PASSWORD, authentication, log_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

type Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def places(database: str, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The section authentication for either place."""
    return {"file": {"file": str(tmp_path / "users.yaml")}, "table": {"source": "table"}}


@pytest.fixture(params=["file", "table"])
def place(request: pytest.FixtureRequest, places: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One of them."""
    return places[request.param]


@pytest.fixture
def command(
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Command:
    """Runs `pillarbox user` with a password from a pipe: exit status, standard output, standard error."""
    place = request.getfixturevalue("place") if "place" in request.fixturenames else {}
    config = {
        "environment": {"database": {"uri": database}, "var": str(tmp_path)},
        "authentication": {**place, "users": {"root": "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$x"}, "iterations": 4096},
    }
    (tmp_path / "smtpd.yaml").write_text(json.dumps(config))

    def run(verb: str, *arguments: str, password: str = PASSWORD) -> tuple[int, str, str]:
        if verb != "hash":  # which shows the cost
            monkeypatch.setattr(passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        monkeypatch.setattr("sys.stdin", io.StringIO(password + "\n"))
        where = () if verb == "hash" else ("--config", str(tmp_path))
        status = cli.main(["user", verb, *arguments, *where])
        said = capsys.readouterr()
        assert PASSWORD not in said.out + said.err
        return status, said.out, said.err

    return run


def listed(command: Command) -> dict[str, Any]:
    status, out, err = command("list", "--json")
    assert (status, err) == (0, "")
    assert "$" not in out, "verifiers stay where they are"
    return {user["name"]: user for user in map(json.loads, out.splitlines())}


async def lets_in(tmp_path: Path, database: str, place: dict[str, Any], password: str, mechanism: str) -> bool:
    async with authentication(tmp_path, conninfo=database, **place) as auth:
        return (await log_in(auth, "alice", password, mechanism)).user is not None


async def test_an_added_user_logs_in(command: Command, place: dict[str, Any], database: str, tmp_path: Path) -> None:
    added = await asyncio.to_thread(command, "add", "alice", "--sender", "alice@EXAMPLE.com", "--sender", "")
    assert added == (0, "alice is added\n", "")
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        assert await lets_in(tmp_path, database, place, PASSWORD, mechanism)
        assert not await lets_in(tmp_path, database, place, "wrong", mechanism)
    assert await asyncio.to_thread(command, "passwd", "alice", password="other") == (  # noqa: S106 - of a test
        0,
        "alice has a new password\n",
        "",
    )
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        assert await lets_in(tmp_path, database, place, "other", mechanism)
        assert not await lets_in(tmp_path, database, place, PASSWORD, mechanism)
    for verb, words, works in (("disable", "is disabled", False), ("enable", "is enabled", True)):
        assert await asyncio.to_thread(command, verb, "alice") == (0, f"alice {words}\n", "")
        assert await lets_in(tmp_path, database, place, "other", "PLAIN") is works
    assert await asyncio.to_thread(command, "remove", "alice") == (0, "alice is removed\n", "")
    assert not await lets_in(tmp_path, database, place, "other", "PLAIN")


def test_everything_about_a_user_is_kept_and_listed(command: Command, place: dict[str, Any]) -> None:
    options = ["--sender", "*.example.com", "--messages", "10", "--recipients", "100", "--partition", "7"]
    assert command("add", "gru\u0308ße", *options, "--transport", "relay", "--hold", "review", "--no-scram")[0] == 0
    assert command("add", "bob")[0] == 0
    users = listed(command)
    assert users["grüße"] == {
        "name": "grüße",
        "mechanisms": ["PLAIN", "LOGIN"],
        "disabled": False,
        "senders": ["*.example.com"],
        "messages": 10,
        "recipients": 100,
        "partition": "7",
        "transport": "relay",
        "hold": "review",
    }
    assert users["bob"]["mechanisms"] == ["PLAIN", "LOGIN", "SCRAM-SHA-256"]
    assert set(users) == {"grüße", "bob", "root"}
    status, out, _ = command("list")
    assert status == 0
    assert "$argon2" not in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["passwd", "nobody"], 'NAME: no user "nobody"; allowed: alice'),
        (["disable", "nobody"], 'NAME: no user "nobody"; allowed: alice'),
        (["remove", "nobody"], 'NAME: no user "nobody"; allowed: alice'),
        (["add", "alice"], 'NAME: there is a user "alice" already; allowed: another name, or user passwd'),
        (["add", ""], 'NAME: "" is not a valid user name: it is empty'),
        (["add", "bob", "--sender", "a@b@c"], 'senders: "a@b@c" is not a valid sender; allowed: user@example.com, e'),
        (["add", "bob", "--hold", "a b"], 'hold: "a b" is not usable here; allowed: 1 to 64'),
    ],
)
def test_an_error_is_one_line(command: Command, place: dict[str, Any], arguments: list[str], problem: str) -> None:
    assert command("add", "alice")[0] == 0
    status, out, err = command(*arguments)
    assert (status != 0, out) == (True, "")
    assert err.startswith(f"pillarbox: {problem}")
    assert err.count("\n") == 1


def test_an_empty_password_is_refused(command: Command, place: dict[str, Any]) -> None:
    assert command("add", "alice", password="")[2] == "pillarbox: the password is empty; nothing was changed\n"
    assert set(listed(command)) == {"root"}


def test_without_a_source_of_users_the_error_names_the_sources(command: Command) -> None:
    status, _, err = command("add", "alice")
    assert status == 78
    assert "allowed: authentication.file: PATH, authentication.source: table" in err
    assert set(listed(command)) == {"root"}, "those of smtpd.yaml are listed anyway"


def test_hash_prints_a_line_for_smtpd_yaml(command: Command) -> None:
    status, out, _ = command("hash", "alice")
    assert status == 0
    assert out.startswith('alice: "$argon2id$v=19$m=65536,t=3,p=4$')
