"""test_as — `--as` names the principal for whom a command acts; without it, the user that runs it, if that is one

Owns: proofs about scripts/one_connection.py and shared/postgres/acting.py, by what PostgreSQL records and refuses.
See: docs/how-to/rights/say-on-whose-behalf.md; tests/integration/schema/test_review_rights.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from shared.postgres import acting, database
from tests.fixtures.database.logins import name_of
from tests.fixtures.database.operating import Pillarbox, write_config
from tests.fixtures.database.principals import agent, close, principal
from tests.fixtures.database.reviewing import hold

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.database.reviewing import Reviewing

SEE: Final = "; see docs/how-to/rights/grant-roles.md"


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets the system say that this user runs the command."""

    def be(name: str) -> None:
        monkeypatch.setattr("getpass.getuser", lambda: name)

    be("nobody-we-know")
    return be


def statuses(factory: Factory) -> list[str]:
    """Of every recipient."""
    return [row.status for row in factory.queue()]


def test_the_audit_has_the_principal_the_login_and_the_user(
    factory: Factory, pillarbox: Pillarbox, user: Callable[[str], None]
) -> None:
    principal(factory, "ann", "operator")
    factory.rows(3)
    held = pillarbox.json("hold", "--all", "--yes", "--as", "ann")["audit"]
    undone = pillarbox.json("undo", str(held), "--yes", "--as", "ann")["audit"]
    by_login = pillarbox.json("hold", "--all", "--yes")["audit"]
    login = factory.one("SELECT session_user")
    answer = {
        line["id"]: (line["who"], line["login"], line["operator"], line["done"]) for line in pillarbox.lines("audit")
    }
    assert answer == {
        held: ("ann", login, "nobody-we-know", 3),
        undone: ("ann", login, "nobody-we-know", 3),
        by_login: (login, login, "nobody-we-know", 3),
    }


def test_a_user_that_is_a_principal_acts_for_itself(
    factory: Factory, pillarbox: Pillarbox, user: Callable[[str], None]
) -> None:
    principal(factory, "ann", "viewer")
    principal(factory, "bob", "operator")
    factory.row()
    user("ann")
    pillarbox.run("hold", "--all", "--yes")
    assert (pillarbox.status, statuses(factory)) == (1, ["DELIVER"])
    assert pillarbox.refused == f"pillarbox: ann may not hold: only operators may{SEE}\n"
    pillarbox.json("hold", "--all", "--yes", "--as", "bob")
    factory.sql("UPDATE pillarbox.principals SET disabled = true WHERE name = 'ann'")
    pillarbox.run("list")
    assert (pillarbox.status, pillarbox.refused) == (1, f'pillarbox: principal "ann" is disabled{SEE}\n')
    factory.sql("DELETE FROM pillarbox.principals WHERE name = 'ann'")
    pillarbox.json("release", "--all", "--yes")
    assert [line["who"] for line in pillarbox.lines("audit")] == [factory.one("SELECT session_user"), "bob"]


def test_an_unknown_principal_is_refused_in_one_line(factory: Factory, pillarbox: Pillarbox) -> None:
    factory.row()
    pillarbox.run("hold", "--all", "--yes", "--as", "mallory")
    assert (pillarbox.status, pillarbox.refused) == (1, f'pillarbox: principal "mallory" does not exist{SEE}\n')
    assert statuses(factory) == ["DELIVER"]


def test_a_login_that_may_not_act_for_others_is_itself(
    factory: Factory, reviewing: Reviewing, user: Callable[[str], None]
) -> None:
    principal(factory, "ann", "viewer")
    user("ann")
    reviewer = reviewing.reviewer()
    hold(factory, "open")
    assert reviewer.json("release", "--all", "--yes")["done"] == 1
    assert factory.one("SELECT who FROM pillarbox.audit") == reviewer.login
    reviewer.run("list", "--as", "ann")
    assert reviewer.status != 0
    assert "permission denied for function act_as" in reviewer.refused
    assert reviewer.refused.count("\n") == 1


def test_a_principal_reviews_its_own_quarantines(
    factory: Factory, logins: Logins, reviewing: Reviewing, user: Callable[[str], None]
) -> None:
    principal(factory, "ann", "reviewer", reviews=["spam", "legal"])
    principal(factory, "eve", "viewer")
    quarantines = [{"id": "spam", "reviewers": ["ann"]}, {"id": "legal", "reviewers": ["bob"]}, {"id": "open"}]
    close(factory, {"spam": ["ann"], "legal": ["bob"]})
    reviewer = reviewing.at(agent(factory, logins, "reviewer"), quarantines=quarantines)
    spam, legal, opened = (hold(factory, name)[0] for name in ("spam", "legal", "open"))
    may = {line["id"]: line["may"] for line in reviewer.lines("list", "--as", "ann")}
    assert (may["spam"], may["legal"], may["open"]) == (True, False, False)
    reviewer.run("release", str(legal), "--yes", "--as", "ann")
    assert '"ann" is not a reviewer of "legal"; its reviewers are bob' in reviewer.refused
    reviewer.run("release", str(opened), "--yes", "--as", "ann")
    assert 'PostgreSQL does not let "ann" decide in "open"' in reviewer.refused
    reviewer.run("release", str(spam), "--yes")
    assert f'"{reviewer.login}" is not a reviewer of "spam"' in reviewer.refused, "such a login itself decides nothing"
    reviewer.run("list", "--as", "eve")
    assert reviewer.refused.startswith('pillarbox: "eve" is not a reviewer; allowed: principals with the role reviewer')
    assert reviewer.json("release", str(spam), "--yes", "--as", "ann")["done"] == 1
    assert {row.id: row.status for row in factory.queue()} == {spam: "DELIVER", legal: "HOLD", opened: "HOLD"}


@pytest.mark.parametrize(
    "words",
    [
        ("suspend", "add", "--destination", "example.com", "--reason", "x"),
        ("suppress", "add", "gone@example.com"),
        ("deadletters", "requeue", "--result", "failed", "--yes"),
    ],
)
def test_only_operators_change_what_is_beside_the_mail(
    database: str, factory: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    factory.row(status="DELETE")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    factory.sql("UPDATE pillarbox.archive SET result = 'failed'")
    for name in ("viewer", "operator"):
        principal(factory, name, name)
    command = Pillarbox(write_config(tmp_path / "c", database), capsys)
    command.run(*words, "--as", "viewer")
    assert (command.status, command.refused.count("\n")) == (1, 1)
    assert "only operators may" in command.refused
    command.run(*words, "--as", "operator")
    assert command.status == 0, command.refused
    assert factory.sql("SELECT who FROM pillarbox.suspends") == ([("operator",)] if words[0] == "suspend" else [])


async def test_each_statement_and_each_transaction_acts_and_none_after(factory: Factory, logins: Logins) -> None:
    principal(factory, "ann", "viewer")
    uri = agent(factory, logins)
    connection = await acting.connect(uri, "test")
    asked = "SELECT pillarbox.acting_for()"

    async def who() -> str:
        row = await (await connection.execute(asked.encode())).fetchone()
        assert row is not None
        return str(row[0])

    try:
        assert await who() == name_of(uri)
        connection.principal = "ann"
        assert await who() == "ann"
        async with connection.transaction(force_rollback=True):
            assert await who() == "ann"
            async with connection.transaction():
                assert await who() == "ann"
        [row] = await database.fetch(connection, "principal_known", principal="ann")
        assert row.known
        connection.principal = None
        assert await who() == name_of(uri)
    finally:
        await connection.close()
