"""test_principal_command — `pillarbox principal` manages principals, and leaves passwords to `pillarbox user`

Owns: proofs about scripts/access/principal.py.
See: tests/integration/settings/test_user_command.py; docs/how-to/rights/say-on-whose-behalf.md.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.login import PASSWORD
from tests.fixtures.database.operating import Pillarbox, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

ANN: dict[str, Any] = {
    "name": "ann",
    "kind": "person",
    "roles": ["reviewer", "sender"],
    "reviews": ["spam", "legal"],
    "mechanisms": [],
    "disabled": False,
    "senders": ["ann@example.com"],
    "messages": 10,
    "recipients": None,
    "partition": "7",
    "transport": "default",
    "hold": "new",
}
TABLE = {"source": "table", "iterations": 4096}
QUARANTINES = [{"id": "spam"}, {"id": "legal"}]
ADD = (
    *("add", "ann", "--role", "reviewer", "--role", "sender", "--review", "spam", "--review", "legal"),
    *("--sender", "ann@EXAMPLE.com", "--messages", "10", "--partition", "7", "--transport", "default", "--hold", "new"),
)


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pillarbox:
    """`pillarbox`, where users are in the table."""
    config = write_config(tmp_path / "c", database, authentication=TABLE, quarantines=QUARANTINES)
    return Pillarbox(config, capsys)


def listed(command: Pillarbox) -> dict[str, dict[str, Any]]:
    """Every principal by name."""
    return {line["name"]: line for line in command.lines("principal", "list")}


def test_everything_about_a_principal_is_kept_changed_and_listed(command: Pillarbox) -> None:
    assert command.json("principal", *ADD)["name"] == "ann"
    assert listed(command) == {"ann": ANN}
    command.json("principal", "change", "ann", "--role", "operator", "--disable")
    assert listed(command)["ann"] == {**ANN, "roles": ["operator"], "disabled": True}
    cleared = ("reviews", "senders", "messages", "partition", "transport", "hold")
    words = [word for each in cleared for word in ("--clear", each)]
    command.json("principal", "change", "ann", "--enable", "--recipients", "5", *words)
    changed: dict[str, Any] = {"reviews": None, "senders": [], **dict.fromkeys(cleared[2:]), "recipients": 5}
    assert listed(command)["ann"] == {**ANN, "roles": ["operator"], **changed}
    assert "ann" in command.run("principal", "list")
    command.json("principal", "remove", "ann")
    assert listed(command) == {}
    assert command.run("principal", "list").endswith("no principals\n")


def test_a_preview_changes_nothing_and_a_change_says_how_to_take_it_back(command: Pillarbox) -> None:
    command.run("principal", "add", "ann")
    before = listed(command)
    for verb, *more in (("add", "bob"), ("change", "ann", "--disable"), ("remove", "ann")):
        assert command.run("principal", verb, *more, "--dry-run").endswith("nothing was changed\n")
        assert command.json("principal", verb, *more, "--dry-run")["changed"] == 1
    assert listed(command) == before
    command.run("principal", "add", "ann", "--dry-run")
    assert 'NAME: there is a principal "ann" already' in command.refused
    command.run("principal", "remove", "bob", "--dry-run")
    assert 'NAME: no principal "bob"' in command.refused
    done = command.json("principal", "change", "ann", "--disable")
    command.run("queue", "undo", str(done["audit"]), "--yes")
    assert listed(command) == before


def test_a_new_principal_has_the_least_role_of_its_kind(command: Pillarbox) -> None:
    command.run("principal", "add", "ann")
    command.run("principal", "add", "shop", "--kind", "application")
    assert {name: (line["kind"], line["roles"]) for name, line in listed(command).items()} == {
        "ann": ("person", ["viewer"]),
        "shop": ("application", ["sender"]),
    }


def test_an_application_is_a_user_once_it_has_a_password_and_changes_keep_it(
    command: Pillarbox, factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.run("principal", "add", "shop", "--kind", "application")
    command.run("principal", "add", "ann")
    assert [line["name"] for line in command.lines("user", "list")] == ["shop"]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    command.run("user", "passwd", "shop")
    verifiers = factory.sql("SELECT argon2, scram FROM pillarbox.principals WHERE name = 'shop'")
    command.run("principal", "change", "shop", "--messages", "5")
    assert factory.sql("SELECT argon2, scram FROM pillarbox.principals WHERE name = 'shop'") == verifiers
    assert listed(command)["shop"]["mechanisms"] == ["PLAIN", "LOGIN", "SCRAM-SHA-256"]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    command.run("user", "add", "ann")
    assert command.refused.startswith('pillarbox: NAME: there is a principal that is no such user "ann" already')


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("add", "ann"), 'NAME: there is a principal "ann" already; allowed: another name, or principal change'),
        (("add", ""), 'NAME: "" is not a valid user name: it is empty'),
        (("add", "a b"), 'NAME: "a b" is not a valid user name: it has a space; allowed: up to 255'),
        (("add", "a\u00a0b"), 'NAME: "a\\u00a0b" is not a valid user name: it has a space'),
        (("add", "b" * 256), 'NAME: "bbb'),
        (("add", "bob", "--sender", "a@b@c"), 'senders: "a@b@c" is not a valid sender; allowed: user@example.com'),
        (("add", "bob", "--review", "a b"), "reviews: "),
        (("add", "bob", "--review", "spma"), '--review: "spma" is not in quarantines of '),
        (("change", "ann", "--review", "spma"), '--review: "spma" is not in quarantines of '),
        (("change", "bob", "--disable"), 'NAME: no principal "bob"; allowed: ann'),
        (("change", "ann"), "principal change: a change is missing; allowed: --role, --review"),
        (("remove", "bob"), 'NAME: no principal "bob"; allowed: ann'),
    ],
)
def test_an_error_is_one_line(command: Pillarbox, words: tuple[str, ...], problem: str) -> None:
    command.run("principal", "add", "ann")
    said = command.run("principal", *words)
    assert (command.status != 0, said) == (True, "")
    assert command.refused.startswith(f"pillarbox: {problem}")
    assert command.refused.count("\n") == 1


def test_a_quarantine_that_is_not_declared_is_refused_before_anything_is_changed(command: Pillarbox) -> None:
    command.run("principal", "add", "ann", "--review", "spma")
    assert command.refused.endswith("smtpd.yaml; allowed: body, legal, poison, spam\n")
    assert listed(command) == {}
    assert command.json("principal", "add", "ann", "--review", "poison")["name"] == "ann"


def test_only_an_admin_changes_principals_and_users(command: Pillarbox) -> None:
    command.run("principal", "add", "root", "--role", "admin")
    command.run("principal", "add", "bob", "--role", "operator")
    for words in (
        ("principal", "add", "eve", "--role", "admin"),
        ("principal", "change", "bob", "--role", "admin"),
        ("principal", "remove", "root"),
        ("user", "disable", "bob"),
    ):
        command.run(*words, "--as", "bob")
        assert (command.status, '"bob" may not change principals: only admins may' in command.refused) == (1, True)
    command.json("principal", "change", "bob", "--role", "admin", "--as", "root")
    assert listed(command)["bob"]["roles"] == ["admin"]
