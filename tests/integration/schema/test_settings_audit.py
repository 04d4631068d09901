"""test_settings_audit — the record of settings states the actual change, and only who may change settings begins one

Owns: the rights to begin a command that changes settings, forgeries of the setting that names it, two undos at once.
See: sql/schema/17_audit.sql; sql/README.md, "Changing settings".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.fixtures.database.principals import acting, agent, principal

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

BEGIN = "SELECT pillarbox.audit_begin('me', %s, '', '{}', NULL, %s, 1)"
SUSPEND = "INSERT INTO pillarbox.suspends (selection, reason) VALUES (jsonb_build_object('tenant', '[]'::jsonb), %s)"
VERBS = ("suspend add", "suppress remove", "schedule disable")
REFUSED = psycopg.errors.InsufficientPrivilege


@pytest.mark.parametrize("role", ["viewer", "reviewer", "sender"])
def test_only_operators_begin_to_change_settings(factory: Factory, logins: Logins, role: str) -> None:
    principal(factory, "eve", role)
    principal(factory, "olga", "operator")
    uri = agent(factory, logins, "maintainer")
    with psycopg.connect(uri, autocommit=True) as session:
        for verb in VERBS:
            with pytest.raises(REFUSED, match=f'"eve" may not {verb}'), acting(session, "eve"):
                session.execute(BEGIN, (verb, None))
        with acting(session, "olga"):
            [[made]] = session.execute(BEGIN, ("suspend add", None)).fetchall()
            session.execute(SUSPEND, ("x",))
            session.execute("SELECT pillarbox.audit_finish(%s)", (made,))
        with pytest.raises(REFUSED, match='"eve" may not undo'), acting(session, "eve"):
            session.execute(BEGIN, ("undo", made))
    assert [(row.who, row.done) for row in factory.sql("SELECT who, done FROM pillarbox.audit")] == [("olga", 1)]


def test_a_reviewers_login_begins_none_and_a_maintainers_nothing_else(factory: Factory, logins: Logins) -> None:
    with logins.session("reviewer") as reviewer, logins.session("maintainer") as maintainer:
        for verb in VERBS:
            with pytest.raises(REFUSED):
                reviewer.execute(BEGIN, (verb, None))
            maintainer.execute(BEGIN, (verb, None))
        [[hold]] = factory.sql("SELECT pillarbox.audit_begin('me', 'hold', '', '{}', NULL, NULL, 1)")
        for verb, undoes in (("hold", None), ("release", None), ("undo", hold), ("undo", None), ("retry", hold)):
            with pytest.raises(REFUSED):
                maintainer.execute(BEGIN, (verb, undoes))
        with pytest.raises(REFUSED):  # it would count as undone
            maintainer.execute(BEGIN, ("suspend add", hold))
        for statement in (
            "INSERT INTO pillarbox.audit_settings (audit__id, noun, key) VALUES (1, 'suspends', '1')",
            "DELETE FROM pillarbox.audit_settings",
            "UPDATE pillarbox.audit_settings SET before = NULL",
        ):
            with pytest.raises(REFUSED):
                maintainer.execute(statement.encode())


def test_no_session_writes_into_the_record_of_another_command(factory: Factory, logins: Logins) -> None:
    [[owners]] = factory.sql("SELECT pillarbox.audit_begin('me', 'suspend add', '', '{}', NULL, NULL, 1)")
    with logins.session("maintainer") as session:
        for claim in (str(owners), "4711"):
            session.execute("SELECT set_config('pillarbox.command', %s, false)", (claim,))
            with pytest.raises(REFUSED, match="is not an unfinished command"):
                session.execute(SUSPEND, ("x",))
        session.execute("RESET pillarbox.command")
        with session.transaction(force_rollback=True):
            session.execute(BEGIN, ("suppress add", None))
            with pytest.raises(REFUSED, match="does not change suspends"), session.transaction():
                session.execute(SUSPEND, ("x",))
        with session.transaction():
            [[made]] = session.execute(BEGIN, ("suspend add", None)).fetchall()
            session.execute(SUSPEND, ("x",))
            session.execute("SELECT pillarbox.audit_finish(%s)", (made,))
            with pytest.raises(REFUSED), session.transaction():  # it has ended
                session.execute(SUSPEND.replace("tenant", "jobid"), ("x",))
        session.execute(SUSPEND.replace("tenant", "jobid"), ("not by a command",))
    kept = factory.sql("SELECT audit__id, before, after->>'reason' AS reason FROM pillarbox.audit_settings")
    assert [tuple(row) for row in kept] == [(made, None, "x")]


def test_of_two_that_undo_the_same_the_second_waits(factory: Factory, logins: Logins) -> None:
    with logins.session("maintainer") as first, logins.session("maintainer") as second:
        with first.transaction():
            [[made]] = first.execute(BEGIN, ("suspend add", None)).fetchall()
            first.execute(SUSPEND, ("x",))
            first.execute("SELECT pillarbox.audit_finish(%s)", (made,))
        with first.transaction():
            first.execute(BEGIN, ("undo", made))
            second.execute("SET lock_timeout = '10ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                second.execute(BEGIN, ("undo", made))
        second.execute(BEGIN, ("undo", made))


def test_a_long_message_is_kept_once_and_only_where_its_schedule_is_gone(factory: Factory) -> None:
    factory.sql(
        "INSERT INTO pillarbox.schedules (id, cron, sender, recipients, content, next_at)"
        " VALUES ('s', '0 9 * * *', '', '{b@b.example}', decode(repeat('ab', 1000000), 'hex'), now())"
    )
    for verb, statement in (
        ("schedule disable", "UPDATE pillarbox.schedules SET enabled = false"),
        ("schedule remove", "DELETE FROM pillarbox.schedules"),
    ):
        factory.sql(
            f"DO $$ BEGIN PERFORM pillarbox.audit_begin('me', '{verb}', '', '{{}}', NULL, NULL, 1); {statement}; END $$"
        )
    rows = factory.sql("SELECT length(content) AS long, before ? 'content' AS twice FROM pillarbox.audit_settings")
    assert sorted(tuple(row) for row in rows if row.long) == [(1000000, False)]
    assert [row.twice for row in rows] == [False, False]


def test_what_a_command_changes_is_recorded_once_for_a_statement(factory: Factory, database: str) -> None:
    with psycopg.connect(database) as session:
        session.execute(BEGIN, ("suppress add", None))
        plan = session.execute(
            "EXPLAIN (ANALYZE, COSTS OFF) INSERT INTO pillarbox.suppressions (target, reason, source)"
            " SELECT format('%s@example.com', n), 'x', 'operator' FROM generate_series(1, 1000) AS n"
        ).fetchall()
        [line] = [row[0] for row in plan if "settings_insert" in row[0]]
        assert line.endswith("calls=1")
    assert factory.one("SELECT count(*) FROM pillarbox.audit_settings") == 1000


def test_what_a_command_changed_is_deleted_with_its_audit_row(factory: Factory) -> None:
    begun = "PERFORM pillarbox.audit_begin('me', 'suspend add', '', '{}', NULL, NULL, 1)"
    factory.sql(f"DO $$ BEGIN {begun}; {SUSPEND % "'x'"}; END $$")
    assert len(factory.sql("SELECT FROM pillarbox.audit_settings")) == 1
    factory.sql("DELETE FROM pillarbox.audit")
    assert factory.sql("SELECT FROM pillarbox.audit_settings") == []
