"""test_tokens — tokens are made, consumed, refused and asked for as sql/accounts/README.md says"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.database.accounts import Accounts

_CONSUME = "UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE id = %s"


def newest(accounts: Accounts) -> int:
    """The id of the token that was made last."""
    return int(accounts.one("SELECT max(id) FROM tokens"))


def expired(accounts: Accounts, token: int) -> None:
    """Let a token expire."""
    accounts.sql("UPDATE tokens SET expires_at = extract(epoch FROM now()) - 10 WHERE id = %s", token)


def test_a_token_has_a_secret_a_code_and_fifteen_minutes(accounts: Accounts) -> None:
    accounts.add()
    [token] = accounts.sql("SELECT octet_length(secret) AS length, code, expires_at - created_at AS span FROM tokens")
    assert (token.length, len(token.code), token.span) == (32, 5, 900)


def test_codes_are_five_digits_evenly_spread_and_secrets_differ(accounts: Accounts) -> None:
    codes = [row[0] for row in accounts.sql("SELECT token_code() FROM generate_series(1, 20000)")]
    assert all(len(code) == 5 and code.isdigit() for code in codes)
    firsts = Counter(code[0] for code in codes)
    assert len(firsts) == 10
    assert max(firsts.values()) < 1.3 * min(firsts.values())
    assert accounts.one("SELECT count(DISTINCT token_secret()) FROM generate_series(1, 1000)") == 1000
    accounts.add()
    for code in ("1234", "12 34", "abcde", "#####"):
        assert "tokens_code_form" in accounts.refusal(
            "INSERT INTO tokens (account, action, code) SELECT id, 'activation', %s FROM accounts", code
        )


def test_consuming_activates_once(accounts: Accounts) -> None:
    accounts.add()
    token = newest(accounts)
    accounts.sql(_CONSUME, token)
    assert accounts.one("SELECT status::text FROM accounts") == "active"
    assert accounts.refusal("UPDATE tokens SET consumed_at = 1 WHERE id = %s", token) == (
        f"token {token} is consumed already"
    )
    assert "is consumed already" in accounts.refusal("UPDATE tokens SET consumed_at = NULL WHERE id = %s", token)


def test_an_expired_token_is_refused(accounts: Accounts) -> None:
    accounts.add()
    token = newest(accounts)
    expired(accounts, token)
    assert accounts.refusal(_CONSUME, token) == f"token {token} has expired"
    assert "cannot change so" in accounts.refusal("UPDATE tokens SET expires_at = 2000000000 WHERE id = %s", token)
    assert accounts.one("SELECT status::text FROM accounts") == "provisioned"


def test_a_token_is_refused_while_its_account_is_in_another_state(accounts: Accounts) -> None:
    account = accounts.add()
    token = newest(accounts)
    accounts.sql("UPDATE accounts SET status = 'suspended'")
    assert accounts.refusal(_CONSUME, token) == f"token {token} is for activation, and account {account} is suspended"
    insert = "INSERT INTO tokens (account, action) VALUES (%s, %s)"
    assert "gets no token for activation" in accounts.refusal(insert, account, "activation")
    accounts.sql("UPDATE accounts SET status = 'active'")
    assert "gets no token for password_recovery" in accounts.refusal(insert, account, "password_recovery")
    assert accounts.refusal(insert, 4711, "activation") == "account 4711 does not exist"


@pytest.mark.parametrize(
    "change",
    ["id = 17", "secret = token_secret()", "code = '00000'", "account = 17", "action = 'activation'", "created_at = 1"],
)
def test_nothing_else_of_a_token_changes(accounts: Accounts, change: str) -> None:
    accounts.add_active()
    accounts.sql("SELECT request_recovery('user123@example.com')")
    accounts.sql("UPDATE tokens SET attempts = 3 WHERE id = %s", newest(accounts))
    accounts.sql("UPDATE tokens SET collected_at = 1 WHERE id = %s", newest(accounts))
    for each in (change, "attempts = 2", "collected_at = NULL", "collected_at = 2"):
        ask = f"UPDATE tokens SET {each} WHERE action = 'password_recovery'"  # noqa: S608 - ours
        assert "cannot change so" in accounts.refusal(ask)


@pytest.mark.parametrize("span", ["-1 s", "31 days"])
def test_a_token_expires_within_thirty_days(accounts: Accounts, span: str) -> None:
    account = accounts.add()
    assert "cannot expire at" in accounts.refusal(
        "INSERT INTO tokens (account, action, expires_at) "
        "VALUES (%s, 'activation', extract(epoch FROM now() + %s::interval))",
        account,
        span,
    )


def test_recovery_needs_secret_and_code_and_works_once(accounts: Accounts) -> None:
    account = accounts.add_active()
    accounts.sql("SELECT request_recovery('user123@example.com')")
    [token] = accounts.sql("SELECT secret, code FROM tokens WHERE action = 'password_recovery'")
    consume = "SELECT consume_token('password_recovery', %s, %s)"
    assert accounts.one(consume, token.secret, None) is None
    assert accounts.one(consume, b"\0" * 32, token.code) is None
    assert accounts.one("SELECT consume_token('activation', %s)", token.secret) is None
    assert accounts.one(consume, token.secret, token.code) == account
    assert accounts.one(consume, token.secret, token.code) is None


def test_a_consumed_recovery_ends_the_others_of_the_account(accounts: Accounts) -> None:
    account = accounts.add_active()
    accounts.sql(
        "INSERT INTO tokens (account, action) SELECT %s, 'password_recovery' FROM generate_series(1, 2)", account
    )
    accounts.sql(_CONSUME, newest(accounts))
    assert "has expired" in accounts.refusal(_CONSUME, newest(accounts) - 1)


def test_five_wrong_codes_spend_a_token(accounts: Accounts) -> None:
    accounts.add_active()
    accounts.sql("SELECT request_recovery('user123@example.com')")
    [token] = accounts.sql("SELECT id, secret, code FROM tokens WHERE action = 'password_recovery'")
    wrong = "00000" if token.code != "00000" else "00001"
    for _ in range(5):
        assert accounts.one("SELECT consume_token('password_recovery', %s, %s)", token.secret, wrong) is None
    assert accounts.one("SELECT consume_token('password_recovery', %s, %s)", token.secret, token.code) is None
    assert accounts.refusal(_CONSUME, token.id) == f"token {token.id} had too many wrong codes"
    assert "tokens_attempts_limit" in accounts.refusal("UPDATE tokens SET attempts = 6 WHERE id = %s", token.id)


def test_twenty_wrong_codes_in_a_day_end_recovery_for_that_day(accounts: Accounts) -> None:
    account = accounts.add_active()
    recovery = "INSERT INTO tokens (account, action) SELECT %s, 'password_recovery' FROM generate_series(1, %s)"
    accounts.sql(recovery, account, 4)
    accounts.sql("UPDATE tokens SET attempts = 5 WHERE action = 'password_recovery'")
    accounts.sql(recovery, account, 1)
    [token] = accounts.sql("SELECT secret, code FROM tokens WHERE id = %s", newest(accounts))
    assert accounts.one("SELECT consume_token('password_recovery', %s, %s)", token.secret, token.code) is None


def test_a_code_alone_is_enough_where_a_person_types_it(accounts: Accounts) -> None:
    account = accounts.add()
    code = accounts.one("SELECT code FROM tokens")
    by_code = "SELECT consume_code('activation', %s, %s)"
    assert accounts.one(by_code, "stranger@example.com", code) is None
    assert accounts.one(by_code, "user123@example.com", "wrong") is None
    assert accounts.one("SELECT attempts FROM tokens") == 1
    assert accounts.one(by_code, "user123@example.com", code) == account
    assert accounts.one("SELECT status::text FROM accounts") == "active"


def test_two_sessions_consume_a_token_once(accounts: Accounts) -> None:
    accounts.add()
    secret = accounts.one("SELECT secret FROM tokens")
    with accounts.session() as other, accounts.connection.transaction():
        assert accounts.one("SELECT consume_token('activation', %s)", secret) is not None
        other.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("SELECT consume_token('activation', %s)", [secret])
    assert accounts.one("SELECT consume_token('activation', %s)", secret) is None


def test_activation_is_sent_again_only_for_accounts_never_activated(accounts: Accounts) -> None:
    accounts.add_active("active")
    accounts.add("new")
    accounts.sql("UPDATE tokens SET expires_at = 1 WHERE consumed_at IS NULL")
    for name in ("active", "new", "new", "stranger"):
        accounts.sql("SELECT request_activation(%s)", f"{name}@example.com")
    assert accounts.sql("SELECT login FROM tokens t JOIN accounts a ON a.id = account WHERE t.id > 2") == [("new",)]


def test_recovery_answers_alike_and_does_the_same_work_for_unknown_accounts(accounts: Accounts) -> None:
    names = [f"user{number}" for number in range(60)]
    for name in names:
        accounts.add_active(name)
    accounts.sql("SELECT request_recovery('first@example.com')")
    octets: dict[str, list[int]] = {"known": [], "unknown": []}
    pages: dict[str, list[int]] = {"known": [], "unknown": []}
    for name in names:
        for kind, email in (("known", f"{name}@example.com"), ("unknown", f"not-{name}@example.com")):
            before = accounts.one("SELECT pg_current_wal_insert_lsn()")
            [plan] = accounts.one("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT request_recovery(%s)", email)
            assert plan["Plan"]["Actual Rows"] == 1
            pages[kind].append(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])
            octets[kind].append(int(accounts.one("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", before)))
    assert accounts.one("SELECT count(*) FROM tokens WHERE action = 'password_recovery'") == len(names)
    written = {kind: statistics.median(each) for kind, each in octets.items()}
    assert 0.8 < written["unknown"] / written["known"] < 1.25, written
    read = {kind: statistics.median(each) for kind, each in pages.items()}
    assert 0.5 < read["unknown"] / read["known"] < 2, read
    for email in (f"{names[0]}@example.com", "stranger@example.com"):
        assert accounts.one("SELECT request_recovery(%s)", email) in {"", None}


def test_old_tokens_and_decoys_are_forgotten(accounts: Accounts) -> None:
    accounts.add()
    accounts.add("other")
    expired(accounts, newest(accounts))
    accounts.sql("SELECT request_recovery('stranger@example.com')")
    accounts.sql("UPDATE decoys SET expires_at = 1")
    assert accounts.one("SELECT tokens_forget('1 hour', 10)") == 0
    assert accounts.one("SELECT tokens_forget('1 second', 10)") == 1
    assert accounts.one("SELECT (SELECT count(*) FROM decoys) + (SELECT count(*) FROM tokens)") == 1
