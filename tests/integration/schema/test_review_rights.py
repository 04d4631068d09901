"""test_review_rights — PostgreSQL lets the reviewers of a quarantine decide there, and nobody else by any statement

Owns: proofs that quarantines[].reviewers and the roles of principals hold against direct statements of every granted
    role, and that audit rows say on whose behalf.
See: sql/schema/06_principal.sql; sql/README.md, "On whose behalf"; tests/integration/login/test_acting.py.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from shared.postgres.migrate import migrate
from tests.fixtures.database.logins import name_of
from tests.fixtures.database.principals import ACT_AS, acting, agent, close, principal
from tests.fixtures.database.reviewing import hold
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

REFUSED = psycopg.errors.InsufficientPrivilege
BEGIN = "SELECT pillarbox.audit_begin('me', %s, '', '{}', NULL, NULL, 1)"
#: Statements that would decide about held mail: {id} is its recipient.
DECISIONS = [
    "UPDATE queue SET status = 'DELIVER' WHERE id = {id}",
    "UPDATE queue SET status = 'DELETE' WHERE id = {id}",
    "UPDATE queue SET status = 'BOUNCE' WHERE id = {id}",
    "UPDATE queue_hold SET status = 'DELETE' WHERE id = {id}",
    "UPDATE mail SET state = 'DELIVER' WHERE id = {id}",
    "DELETE FROM mail WHERE id = {id}",
    "DELETE FROM queue WHERE id = {id}",
    "SELECT queue_release_copies('{{{id}}}', NULL, NULL)",
    "SELECT queue_release_copies('{{{id}}}', 'thief', 'example.net')",
    "SELECT queue_redirect('{{{id}}}', '{{thief}}', '{{example.net}}')",
    "UPDATE queue SET metadata = metadata - '_quarantineid' WHERE id = {id}",
    "UPDATE queue SET token = 1, worker = 'w', lease_until = now() + '1 minute' WHERE id = {id}",
    "MERGE INTO queue q USING (SELECT 1) AS x ON q.id = {id} WHEN MATCHED THEN UPDATE SET status = 'DELIVER'",
]


@pytest.mark.parametrize("role", ["smtpd", "queued", "reviewer", "analyst", "maintainer", "application", "agent"])
def test_no_statement_of_a_granted_role_decides_in_a_quarantine_of_others(
    factory: Factory, logins: Logins, role: str
) -> None:
    close(factory, {"legal": ["lawyers"]})
    [held] = hold(factory, "legal")
    before = factory.queue()
    with logins.session(role) as session:
        for statement in DECISIONS:
            with pytest.raises(REFUSED):
                session.execute(statement.format(id=held).encode())
        assert factory.queue() == before


@pytest.mark.parametrize("acts", [True, False])
@pytest.mark.parametrize("statement", [each for each in DECISIONS[:6] if "queue_hold" not in each])
def test_a_reviewer_decides_where_it_is_named_or_none_is(
    factory: Factory, logins: Logins, statement: str, *, acts: bool
) -> None:
    """A login by its name or by a role that it has, a principal by its name."""
    uri = agent(factory, logins, "reviewer") if acts else logins.uri("reviewer")
    name = principal(factory, "ann", "reviewer") if acts else name_of(uri)
    close(factory, {"by name": [name], "by role": ["pillarbox_reviewer"], "of others": ["lawyers"]})
    with psycopg.connect(uri, autocommit=True, options="-c search_path=pillarbox") as session:
        for quarantine, may in (("by name", True), ("by role", not acts), ("of others", False), ("open", True)):
            [held] = hold(factory, quarantine)
            whose = acting(session, name) if acts else session.transaction()
            refused = pytest.raises(REFUSED, match=f'may not decide about mail held in "{quarantine}"')
            with nullcontext() if may else refused, whose:
                assert session.execute(statement.format(id=held).encode()).rowcount == 1


@pytest.mark.parametrize("role", ["smtpd", "queued", "analyst", "maintainer", "application", "agent"])
def test_a_login_that_reviews_nothing_decides_in_no_quarantine_that_names_nobody(
    factory: Factory, logins: Logins, role: str
) -> None:
    [held] = hold(factory, "open")
    before = factory.queue()
    with logins.session(role) as session:
        for statement in DECISIONS:
            with pytest.raises(REFUSED):
                session.execute(statement.format(id=held).encode())
    assert factory.queue() == before


def test_a_copy_to_another_address_is_a_decision_too(factory: Factory, logins: Logins) -> None:
    close(factory, {"legal": ["lawyers"]})
    closed, opened = hold(factory, "legal")[0], hold(factory, "open")[0]
    with logins.session("reviewer") as session:
        with pytest.raises(REFUSED, match='held in "legal"'):
            session.execute("SELECT * FROM queue_redirect(%s, '{x}', '{example.net}')", ([opened, closed],))
        assert (
            len(session.execute("SELECT * FROM queue_redirect(%s, '{x}', '{example.net}')", ([opened],)).fetchall())
            == 1
        )
    assert {row.id: row.status for row in factory.queue(closed, opened)} == {closed: "HOLD", opened: "DELETE"}


@pytest.mark.parametrize(
    ("localpart", "domain"),
    [
        ("a> NOTIFY=SUCCESS", "example.net"),
        ("a", "exa mple.net"),
        ("a", "example.net."),
        ("a" * 65, "example.net"),
        ("a", "b." * 200 + "net"),
        ("a@b", "example.net"),
        ("", "example.net"),
        (None, "example.net"),
        ("a", None),
    ],
)
def test_a_copy_goes_to_an_address(factory: Factory, logins: Logins, localpart: str | None, domain: str | None) -> None:
    [held] = hold(factory, "open")
    copy = "SELECT * FROM queue_release_copies(%s, %s, %s)"
    with logins.session("reviewer") as session:
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            session.execute(copy, ([held], localpart, domain))
        assert session.execute(copy, ([held], "Ann", "Example.NET")).rowcount == 1
    [made] = [row for row in factory.queue() if row.id != held]
    assert (made.recipientlocalpart, made.recipientdomain) == ("Ann", "example.net")


def test_a_login_that_acts_for_others_decides_nothing_by_itself(factory: Factory, logins: Logins) -> None:
    [held] = hold(factory, "open")
    with psycopg.connect(agent(factory, logins, "reviewer"), autocommit=True) as session, pytest.raises(REFUSED):
        session.execute("UPDATE pillarbox.queue SET status = 'DELIVER' WHERE id = %s", (held,))


@pytest.mark.parametrize(
    ("roles", "columns", "may"),
    [
        (["reviewer"], {}, True),
        (["reviewer"], {"reviews": ["review", "other"]}, True),
        (["reviewer"], {"reviews": ["other"]}, False),
        (["reviewer"], {"reviews": []}, False),
        (["viewer", "sender"], {}, False),
        (["operator"], {"reviews": []}, True),
        (["admin"], {}, True),
    ],
)
@pytest.mark.parametrize("behind", ["owner", "agent"])
def test_a_principal_decides_by_its_roles_and_quarantines_whatever_its_login(
    factory: Factory, logins: Logins, behind: str, roles: list[str], columns: dict[str, Any], *, may: bool
) -> None:
    principal(factory, "ann", *roles, **columns)
    [held] = hold(factory, "review")
    uri = factory.uri if behind == "owner" else agent(factory, logins, "reviewer")
    with psycopg.connect(uri) as session:
        session.execute(ACT_AS, ("ann",))
        if may:
            assert session.execute("UPDATE pillarbox.queue SET status = 'DELIVER' WHERE id = %s", (held,)).rowcount == 1
        else:
            with pytest.raises(REFUSED):
                session.execute("UPDATE pillarbox.queue SET status = 'DELIVER' WHERE id = %s", (held,))


@pytest.mark.parametrize(
    ("statement", "least"),
    [
        ("UPDATE queue SET status = 'HOLD' WHERE status = 'DELIVER'", "operator"),
        ("DELETE FROM mail WHERE state = 'ACTIVE'", "operator"),
        ("SELECT audit_begin('me', 'hold', '', '{}', NULL, NULL, 1)", "operator"),
        ("SELECT audit_begin('me', 'release', '', '{}', NULL, NULL, 1)", "reviewer"),
        ("INSERT INTO suspends (selection, reason) VALUES ('{}', 'x')", "operator"),
        ("INSERT INTO suppressions (target, reason, source) VALUES ('a.example', 'x', 'operator')", "operator"),
        ("DELETE FROM schedules", "operator"),
        ("SELECT dead_letters_requeue('{1}')", "operator"),
        ("INSERT INTO principals (name) VALUES ('mallory')", "admin"),
        ("UPDATE principals SET roles = '{admin}'", "admin"),
        ("DELETE FROM users", "admin"),
    ],
)
def test_the_owner_is_bound_by_the_roles_of_the_principal_it_acts_for(
    factory: Factory, statement: str, least: str
) -> None:
    ranks = ["viewer", "reviewer", "operator", "admin"]
    factory.row()
    for role in ranks:
        principal(factory, role, role, "sender")
        with psycopg.connect(factory.uri, options="-c search_path=pillarbox") as session:
            session.execute(ACT_AS, (role,))
            if ranks.index(role) >= ranks.index(least):
                session.execute(statement.encode())
            else:
                with pytest.raises(REFUSED):
                    session.execute(statement.encode())
            session.rollback()


def test_an_operator_does_no_more_than_the_login_that_acts_for_it(factory: Factory, logins: Logins) -> None:
    principal(factory, "olga", "operator", "admin", "sender")
    factory.row()
    [held] = hold(factory, "open")
    before = factory.queue()
    for role in ("application", "reviewer", "maintainer"):
        with psycopg.connect(agent(factory, logins, role), options="-c search_path=pillarbox") as session:
            for statement in (
                "UPDATE queue SET status = 'HOLD' WHERE status = 'DELIVER'",
                "UPDATE queue SET recipientlocalpart = 'thief'",
                "DELETE FROM queue",
                "UPDATE principals SET roles = '{admin}'",
                "SELECT secret FROM acting_secret",
            ):
                session.execute(ACT_AS, ("olga",))
                with pytest.raises(REFUSED):
                    session.execute(statement.encode())
                session.rollback()
            if role == "reviewer":
                session.execute(ACT_AS, ("olga",))
                assert session.execute("UPDATE queue SET status = 'DELIVER' WHERE id = %s", (held,)).rowcount == 1
                session.rollback()
    assert factory.queue() == before


def test_the_audit_says_on_whose_behalf_and_by_which_login(factory: Factory, logins: Logins) -> None:
    ann, bob = (principal(factory, name, "reviewer") for name in ("ann", "bob"))
    uri = agent(factory, logins, "reviewer")
    with psycopg.connect(uri, autocommit=True) as session:
        audits = {}
        for name in (ann, bob):
            with acting(session, name):
                [[audits[name]]] = session.execute(BEGIN, ("release",)).fetchall()
        with pytest.raises(REFUSED), acting(session, bob):
            session.execute("SELECT pillarbox.audit_finish(%s)", (audits[ann],))
        with acting(session, ann):
            session.execute("SELECT pillarbox.audit_finish(%s)", (audits[ann],))
    rows = {row.who: row for row in factory.sql("SELECT * FROM pillarbox.audit")}
    assert {who: (row.login, row.finished is not None) for who, row in rows.items()} == {
        "ann": (name_of(uri), True),
        "bob": (name_of(uri), False),
    }


def test_a_worker_still_finishes_mail_that_was_put_on_hold_while_it_was_sent(factory: Factory, logins: Logins) -> None:
    close(factory, {"legal": ["lawyers"]})
    row = factory.row()
    factory.lease([row], ends=timedelta(minutes=1))
    factory.sql("""UPDATE pillarbox.queue SET status = 'HOLD', metadata = metadata || '{"_quarantineid": "legal"}'""")
    with logins.session("queued") as worker:
        assert worker.execute("UPDATE queue SET lease_until = lease_until + '1 s' WHERE id = %s", (row,)).rowcount == 1
        assert worker.execute("DELETE FROM queue WHERE id = %s AND token IS NOT NULL", (row,)).rowcount == 1


def test_migrate_tells_postgresql_who_the_reviewers_are(factory: Factory) -> None:
    read = "SELECT reviewers FROM pillarbox.settings"
    assert factory.one(read) == {}
    migrate(factory.uri, LEAVES, reviewers={"legal": ["lawyers", "ann"]})
    assert factory.one(read) == {"legal": ["lawyers", "ann"]}
    migrate(factory.uri, LEAVES)
    assert factory.one(read) == {}
