"""test_roles_refused — no role can exceed its rights

Owns: the table of refusals, and the tricks with search_path that functions with their owner's rights must survive.
See: tests/integration/schema/test_roles.py for their rights; PostgreSQL manual, "Writing SECURITY DEFINER Functions
    Safely".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

ENQUEUE = "SELECT enqueue('', ARRAY['r@example.com'], 'x')"
REFUSALS = [
    ("smtpd", "SELECT content FROM messages"),
    ("smtpd", "SELECT recipientlocalpart FROM queue"),
    ("smtpd", "UPDATE queue SET status = 'HOLD'"),
    ("smtpd", "DELETE FROM queue"),
    ("smtpd", "UPDATE refcounts SET refcount = 0"),
    ("smtpd", "INSERT INTO refcounts SELECT id, 9 FROM messages"),
    ("smtpd", "INSERT INTO released VALUES (gen_random_uuid(), now())"),
    ("smtpd", "SELECT refcount_anew('{}')"),
    (
        "smtpd",
        "INSERT INTO queue (id, messages__id, recipientlocalpart, recipientdomain) VALUES (1, NULL, 'a', 'b')",
    ),
    ("smtpd", "COPY queue TO STDOUT"),
    ("smtpd", "SELECT * FROM archive"),
    ("smtpd", "SELECT maintain_sweep('0s', '0s', 1)"),
    ("smtpd", ENQUEUE),
    ("queued", "INSERT INTO messages (id, size, content) VALUES (gen_random_uuid(), 1, 'x')"),
    (
        "queued",
        "INSERT INTO queue (messages__id, recipientlocalpart, recipientdomain) SELECT id, 'a', 'b' FROM messages",
    ),
    ("queued", "UPDATE messages SET content = 'y'"),
    ("queued", "UPDATE queue SET recipientlocalpart = 'thief'"),
    ("queued", "UPDATE queue SET status = 'HOLD'"),
    ("queued", "DELETE FROM messages"),
    ("queued", "DELETE FROM archive"),
    ("queued", "UPDATE attempts SET outcome = 'delivered'"),
    ("queued", "TRUNCATE queue"),
    ("queued", "SELECT dead_letters_requeue(ARRAY[1])"),
    ("queued", "DELETE FROM idempotency"),
    ("queued", "DELETE FROM suspends"),
    ("queued", "SELECT * FROM pace_limits"),
    ("queued", "UPDATE pace_shares SET slots = 0"),
    ("queued", "SELECT pace_share('k', 'w', now() + interval '1 year', 1, 1, 0, 1, 1, 0, 1, '1s')"),
    ("queued", "SELECT schedule_send('s', now(), now() + interval '2 years', now() + interval '1 year')"),
    ("smtpd", "SELECT * FROM suspends"),
    ("reviewer", "INSERT INTO suspends (selection, reason) VALUES ('{}', 'x')"),
    ("maintainer", "SELECT pace_share('k', 'w', 1, 1, 0, 1, 1, 0, 1, '1s')"),
    ("reviewer", "UPDATE queue SET status = 'DELETE' WHERE status = 'DELIVER'"),
    ("reviewer", "UPDATE queue_def_123 SET status = 'DELETE' WHERE status = 'DELIVER'"),
    ("reviewer", "UPDATE queue SET status = 'HOLD' WHERE status = 'DELIVER'"),
    ("reviewer", "UPDATE queue SET status = 'BOUNCE' WHERE status = 'DELIVER'"),
    ("reviewer", "UPDATE mail SET state = 'HOLD' WHERE state = 'ACTIVE'"),
    ("reviewer", "DELETE FROM mail WHERE state = 'ACTIVE'"),
    ("reviewer", "UPDATE mail SET priority = 9"),
    ("reviewer", "UPDATE queue SET recipientlocalpart = 'thief'"),
    ("reviewer", "UPDATE queue SET metadata = '{}'"),
    ("reviewer", "DELETE FROM queue"),
    ("reviewer", "UPDATE messages SET content = 'y'"),
    ("reviewer", "INSERT INTO status_transitions VALUES ('DELETE', 'DELIVER')"),
    ("analyst", "SELECT * FROM queue"),
    ("analyst", "SELECT * FROM mail"),
    ("analyst", "SELECT * FROM queue_def_123"),
    ("analyst", "SELECT * FROM messages"),
    ("analyst", "DELETE FROM archive"),
    ("queued", "SELECT maintain_history_drop(now() + interval '4 years', '30d', '90d')"),
    ("maintainer", "SELECT maintain_history_drop(now() + interval '4 years', '30d', '90d')"),
    ("maintainer", "SELECT maintain_sweep(now() + interval '1 day', '0s', '0s', 1)"),
    ("maintainer", "SELECT content FROM messages"),
    ("maintainer", "SELECT * FROM queue"),
    ("maintainer", "DELETE FROM queue"),
    ("maintainer", "DROP TABLE attempts"),
    ("application", "SELECT * FROM queue"),
    ("application", "SELECT * FROM mail"),
    ("application", "SELECT * FROM messages"),
    ("application", "SELECT * FROM idempotency"),
    ("application", "INSERT INTO messages (id, size, content) VALUES (gen_random_uuid(), 1, 'x')"),
    (
        "application",
        "INSERT INTO queue (messages__id, recipientlocalpart, recipientdomain) SELECT gen_random_uuid(), 'a', 'b'",
    ),
    ("application", "UPDATE own_mail SET state = 'HOLD'"),
    ("application", "UPDATE own_mail SET metadata = '{}'"),
    ("application", "SELECT dead_letters_requeue(ARRAY[1])"),
    ("application", "SELECT maintain_finish('me', 1)"),
    ("application", "UPDATE settings SET partitions = 1"),
    ("application", "CREATE TABLE pillarbox.mine (x integer)"),
    ("application", "CREATE FUNCTION pillarbox.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'"),
]


@pytest.mark.parametrize(("role", "statement"), REFUSALS)
def test_each_statement_beyond_a_roles_rights_is_refused(
    factory: Factory, logins: Logins, role: str, statement: str
) -> None:
    factory.row(partid="1")
    factory.row(status="HOLD", partid="1")
    before = (factory.queue(), factory.bodies())
    with logins.session(role) as session:
        if role == "application":
            session.execute(f"BEGIN; {ENQUEUE}; SAVEPOINT enqueued".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute(statement.encode())
        session.execute("ROLLBACK")
    assert (factory.queue(), factory.bodies()) == before


SHADOWS = """
CREATE TEMP TABLE settings (partitions integer);
INSERT INTO settings VALUES (1);
CREATE TEMP TABLE queue (LIKE pillarbox_shadowed INCLUDING ALL);
CREATE TEMP TABLE messages (id uuid, size integer, smtputf8 boolean, content bytea);
CREATE TEMP TABLE idempotency (application text, key text, messages__id uuid, PRIMARY KEY (application, key));
CREATE FUNCTION pg_temp.address_split(text, OUT localpart text, OUT domain text) LANGUAGE sql AS $$ SELECT 'x', 'y' $$;
CREATE FUNCTION pg_temp.partition_id(text, integer) RETURNS text LANGUAGE sql AS $$ SELECT 'mine' $$;
CREATE FUNCTION pg_temp.due_at(timestamptz) RETURNS timestamptz LANGUAGE sql AS $$ SELECT now() + interval '1 day' $$;
CREATE FUNCTION pg_temp.cardinality(anyarray) RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$;
SET search_path = pg_temp, pillarbox, pg_catalog;
"""


def test_our_functions_ignore_objects_in_pg_temp(factory: Factory, logins: Logins) -> None:
    with logins.session("application") as session:
        session.execute("CREATE TEMP TABLE pillarbox_shadowed (id bigint)")
        session.execute(SHADOWS.encode())
        session.execute("SELECT pillarbox.enqueue('a@sender.example', ARRAY['r@example.com'], 'x', 'k')")
        assert session.execute("SELECT count(*) FROM pg_temp.queue").fetchone() == (0,)
        assert session.execute("SELECT count(*) FROM pg_temp.messages").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            session.execute("SELECT pillarbox.enqueue('nobody', ARRAY['r@example.com'], 'x')")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            session.execute("SELECT pillarbox.enqueue('', '{}', 'x')")
    [row] = factory.queue()
    assert (row.senderlocalpart, row.recipientdomain, row.partid) != ("x", "y", "mine")
    assert row.recipientdomain == "example.com"


def test_security_definer_triggers_ignore_objects_in_pg_temp(factory: Factory, logins: Logins) -> None:
    message = factory.message()
    with logins.session("smtpd") as session:
        session.execute(
            """CREATE TEMP TABLE messages (id uuid); CREATE TEMP TABLE refcounts (messages__id uuid, refcount integer);
               CREATE TEMP TABLE released (messages__id uuid, ts timestamptz);
               CREATE TEMP TABLE status_transitions (previous text, next text);
               SET search_path = pg_temp, pg_catalog"""
        )
        session.execute(
            """INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain)
               VALUES (%s, 'r', 'example.com')""",
            (message,),
        )
    assert factory.bodies()[message].refcount == 1


def test_every_security_definer_function_sets_its_search_path(factory: Factory) -> None:
    found = factory.sql(
        """SELECT p.proname FROM pg_proc p
            WHERE p.pronamespace = 'pillarbox'::regnamespace AND p.prosecdef
              AND NOT 'search_path=pillarbox, pg_temp' = ANY (coalesce(p.proconfig, '{}'))"""
    )
    assert found == []


def test_only_the_owner_may_run_maintenance_with_a_given_time(factory: Factory) -> None:
    found = factory.sql(
        """SELECT p.oid::regprocedure::text FROM pg_proc p
            WHERE p.pronamespace = 'pillarbox'::regnamespace
              AND EXISTS (SELECT FROM unnest(p.proargtypes::oid[], p.proargnames[1:p.pronargs]) AS a(type, name)
                           WHERE a.type = 'timestamptz'::regtype AND a.name IS DISTINCT FROM 'since')
              AND p.proname ~ '^(maintain|history|orphans|pace_forget)'
              AND has_function_privilege('pillarbox_maintainer', p.oid, 'EXECUTE')"""
    )
    assert found == []


def test_a_negative_span_cannot_drop_future_history(factory: Factory, logins: Logins) -> None:
    factory.sql("SELECT pillarbox.history_create('2035-03-08 12:00:00+00', 0)")
    with logins.session("maintainer") as session:
        session.execute("SELECT maintain_history_drop('0s', '0s')")
        for call in (
            "maintain_history_drop('-20 years', '-20 years')",
            "maintain_history_drop('0s', '-20 years')",
            "history_drop_if_counted('archive', '2035-03-08', 0, '-20 years')",
            "maintain_sweep('-1 day', '0s', 1)",
            # Compared as if every month had 30 days these are 0; on the calendar they are years ahead.
            "maintain_history_drop('0s', '-9600 months 288000 days')",
            "history_drop_if_counted('archive', '2035-03-08', 0, '-9600 months 288000 days')",
        ):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="keeping for"):
                session.execute(f"SELECT {call}".encode())
    assert factory.one("SELECT to_regclass('pillarbox.archive_20350308') IS NOT NULL")


def test_security_definer_functions_are_not_granted_to_public(factory: Factory) -> None:
    found = factory.sql(
        """SELECT p.proname FROM pg_proc p
            WHERE p.pronamespace = 'pillarbox'::regnamespace AND p.prosecdef
              AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
                           WHERE a.grantee = 0)"""
    )
    assert found == []


def test_history_partitions_are_created_for_at_most_a_year(factory: Factory) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="days ahead: 367"):
        factory.sql("SELECT pillarbox.history_create(367)")
