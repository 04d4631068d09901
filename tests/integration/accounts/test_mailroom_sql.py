"""test_mailroom_sql — the statements of mailroom's article run as they are written there, with the results it shows

See: https://github.com/tetsuo/mailroom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.database.accounts import Accounts

_CREATE: Final = """INSERT INTO accounts (email, login)
	VALUES ('user@example.com', 'user123');"""
_RANDOM: Final = (
    "INSERT INTO accounts (email, login) VALUES ('user' || md5(random()::text) || '@fake.mail', "
    "'user' || substr(md5(random()::text), 1, 20));"
)
_CONSUME: Final = """UPDATE
	tokens
SET
	consumed_at = extract(epoch FROM now())
WHERE
	account = 1
	AND action = 'activation';"""
_DEQUEUE: Final = """
WITH token_data AS (
    SELECT
        t.account,
        t.secret,
        t.code,
        t.expires_at,
        t.id,
        t.action,
        a.email,
        a.login
    FROM
        jobs
        JOIN tokens t
            ON t.id > jobs.last_seq
            AND t.expires_at > EXTRACT(EPOCH FROM NOW())
            AND t.consumed_at IS NULL
            AND t.action IN ('activation', 'password_recovery')
        JOIN accounts a
        ON a.id = t.account
        AND (
          (t.action = 'activation' AND a.status = 'provisioned')
          OR (t.action = 'password_recovery' AND a.status = 'active')
        )
    WHERE
        jobs.job_type = 'mailroom'
    ORDER BY
        id ASC
    LIMIT 10
),
updated_jobs AS (
  UPDATE
    jobs
  SET
    last_seq = (SELECT MAX(id) FROM token_data)
  WHERE
    EXISTS (SELECT 1 FROM token_data)
  RETURNING last_seq
)
SELECT
  td.action,
  td.email,
  td.login,
  td.secret,
  td.code
FROM
  token_data td
"""
_INDEXES: Final = """CREATE INDEX accounts_id_status_idx ON accounts (id, status);

CREATE INDEX tokens_id_expires_consumed_action_idx ON tokens
    (id, expires_at, consumed_at, action);"""


def test_the_workflows_of_the_article_run_as_written(accounts: Accounts) -> None:
    account, tokens = "SELECT * FROM accounts WHERE id = 1;", "SELECT * FROM tokens WHERE account = 1;"
    assert accounts.sql("SELECT * FROM jobs;") == [("mailroom", 0)]

    accounts.sql(_CREATE)
    [created] = accounts.sql(account)
    assert created[:4] == (1, "user@example.com", "provisioned", "user123")
    assert created[5:9] == (None, None, None, None)
    [made] = accounts.sql(tokens)
    assert (made.id, made.action, made.account, made.consumed_at) == (1, "activation", 1, None)
    assert made.expires_at - made.created_at == 900

    accounts.sql(_CONSUME)
    [active] = accounts.sql(account)
    assert active.status == "active"
    assert active.activated_at == active.status_changed_at >= created.created_at
    assert accounts.sql(tokens)[0].consumed_at is not None

    accounts.sql("UPDATE accounts SET status = 'suspended' WHERE id = 1;")
    [suspended] = accounts.sql(account)
    assert (suspended.status, suspended.suspended_at is None, suspended.unsuspended_at) == ("suspended", False, None)

    accounts.sql("UPDATE accounts SET status = 'active' WHERE id = 1;")
    [again] = accounts.sql(account)
    assert (again.status, again.suspended_at, again.unsuspended_at is None) == ("active", None, False)


def test_the_article_s_own_collector_runs_on_these_tables(accounts: Accounts) -> None:
    accounts.sql(_INDEXES)
    for _ in range(3):
        accounts.sql(_RANDOM)
    dequeued = accounts.sql(_DEQUEUE)
    assert [row.action for row in dequeued] == ["activation"] * 3
    assert all(len(row.secret) == 32 and row.code.isdigit() for row in dequeued)
    assert accounts.sql(_DEQUEUE) == []
    assert accounts.one("SELECT last_seq FROM jobs") == 3


def test_a_new_token_is_notified_with_an_empty_payload(accounts: Accounts) -> None:
    with accounts.session() as listener:
        listener.execute("LISTEN token_insert;")
        accounts.sql(_CREATE)
        accounts.sql("INSERT INTO tokens (account, action) VALUES (1, 'activation')")
        heard = list(listener.notifies(timeout=PATIENCE, stop_after=2))
        assert [(each.channel, each.payload) for each in heard] == [("token_insert", "")] * 2
