"""test_account_states — accounts change as their table of states says, and no other way, whoever asks

See: sql/accounts/README.md.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from tests.fixtures.database.accounts import Accounts

_PAGE: Final = Path(__file__).parents[3] / "sql" / "accounts" / "README.md"
_STATES: Final = ("provisioned", "active", "suspended")


def moves() -> set[tuple[str, str]]:
    """The moves in the page's table."""
    text = _PAGE.read_text(encoding="utf-8").partition("## States of an account")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| (\S+) \| (\S+) \|", text, re.MULTILINE)) - {("from", "to")}


def in_state(accounts: Accounts, status: str, *, was_active: bool) -> int:
    """An account in this state."""
    account = accounts.add_active() if was_active else accounts.add()
    if status == "suspended":
        accounts.sql("UPDATE accounts SET status = 'suspended' WHERE id = %s", account)
    return account


def test_the_page_and_the_database_have_the_same_moves(accounts: Accounts) -> None:
    assert {tuple(row) for row in accounts.sql("SELECT before::text, after::text FROM account_transitions")} == {
        move for move in moves() if move[0] in _STATES
    }


@pytest.mark.parametrize(
    ("before", "was_active"), [("provisioned", False), ("active", True), ("suspended", False), ("suspended", True)]
)
def test_every_move_is_made_or_refused_as_the_page_says(accounts: Accounts, before: str, *, was_active: bool) -> None:
    for after in _STATES:
        account = in_state(accounts, before, was_active=was_active)
        ask = "UPDATE accounts SET status = %s WHERE id = %s"
        is_legal = before == after or ((before, after) in moves() and not (after == "provisioned" and was_active))
        if not is_legal:
            assert accounts.refusal(ask, after, account) == f"account {account} cannot change from {before} to {after}"
        else:
            accounts.sql(ask, after, account)
            expected = "provisioned" if (before, after, was_active) == ("suspended", "active", False) else after
            assert accounts.one("SELECT status::text FROM accounts WHERE id = %s", account) == expected
        accounts.sql("DELETE FROM accounts")


def test_a_superuser_makes_no_illegal_move_either(accounts: Accounts, server: object) -> None:
    account = accounts.add_active()
    accounts.sql("CREATE TABLE who AS SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    refused = accounts.refusal("UPDATE accounts SET status = 'provisioned' WHERE id = %s", account)
    assert refused == f"account {account} cannot change from active to provisioned"


def test_the_times_belong_to_the_database(accounts: Accounts) -> None:
    account = accounts.add()
    for column in ("id", "created_at", "status_changed_at", "activated_at", "suspended_at", "unsuspended_at"):
        change = f"UPDATE accounts SET {column} = 17 WHERE id = %s"  # noqa: S608 - ours
        assert "the database writes" in accounts.refusal(change, account)
    assert "cannot be suspended" in accounts.refusal(
        "INSERT INTO accounts (email, login, status) VALUES ('a@a.example', 'a', 'suspended')"
    )
    assert "writes the times" in accounts.refusal(
        "INSERT INTO accounts (email, login, suspended_at) VALUES ('a@a.example', 'a', 1)"
    )


@pytest.mark.parametrize("name", ["a,b", "a\nb", "a\rb", "a\tb", "", "a\x7fb", "a\u2028b"])
def test_names_that_would_break_a_line_are_refused_at_insert(accounts: Accounts, name: str) -> None:
    insert = "INSERT INTO accounts (email, login) VALUES (%s, %s)"
    assert "accounts_login_form" in accounts.refusal(insert, "a@a.example", name)
    for email in (f"{name}@a.example", f"a@{name}"):
        assert "accounts_email_form" in accounts.refusal(insert, email, "a")


@pytest.mark.parametrize("email", ["a", "a b@a.example", "<a@a.example>", "a@b@c.example"])
def test_what_is_not_an_address_is_refused(accounts: Accounts, email: str) -> None:
    assert "accounts_email_form" in accounts.refusal("INSERT INTO accounts (email, login) VALUES (%s, 'a')", email)


def test_provisioning_makes_the_token_in_the_same_transaction(accounts: Accounts) -> None:
    with accounts.connection.transaction(force_rollback=True):
        account = accounts.add()
        assert accounts.sql("SELECT account, action::text FROM tokens") == [(account, "activation")]
    assert accounts.one("SELECT count(*) FROM tokens") == 0
    accounts.add()
    accounts.sql("INSERT INTO accounts (email, login) VALUES ('user123@example.com', 'x') ON CONFLICT DO NOTHING")
    assert accounts.one("SELECT count(*) FROM tokens") == 1, "a refused insert leaves no token"


def test_an_account_verified_elsewhere_gets_no_token(accounts: Accounts) -> None:
    accounts.add(status="active")
    assert accounts.one("SELECT activated_at IS NOT NULL FROM accounts")
    assert accounts.one("SELECT count(*) FROM tokens") == 0


def test_another_address_ends_the_tokens_of_the_old_one(accounts: Accounts) -> None:
    account = accounts.add()
    accounts.sql("UPDATE accounts SET email = 'new@example.com' WHERE id = %s", account)
    valid = accounts.sql("SELECT expires_at > extract(epoch FROM now()) FROM tokens ORDER BY id")
    assert list(itertools.chain(*valid)) == [False, True]
