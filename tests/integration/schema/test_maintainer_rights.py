"""test_maintainer_rights — a login that maintains and acts for others maintains for operators only

Owns: proofs over every function and table that pillarbox_maintainer may use, so that a new one is refused to a viewer,
    or is named here as harmless.
See: sql/README.md, "On whose behalf"; sql/schema/25_right.sql.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from tests.fixtures.database.principals import ACT_AS, agent, principal

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

REFUSED: Final = psycopg.errors.InsufficientPrivilege
#: Functions of maintainers that do no more than the server does by itself, or only look.
HARMLESS: Final = {
    *("acted_for", "acting_for", "acting_has", "is_operator", "may_review", "operator_checked"),
    *("audit_takes_back", "review_checked"),  # they look
    *("act_as", "principal_known"),  # begin to act
    *(
        "address_hash",
        "suspend_fits",
        "archive_is_dead",
        "due_at",
        "lowered",
        "partition_id",
        "priority_checked",
    ),  # read nothing
    *("history_create", "maintain_leaves", "maintain_renotify", "maintain_renotify_since", "pace_forget"),
    *("maintain_unserved", "maintain_unserved_since", "partition_channel", "notify_partition"),
}
_FUNCTIONS: Final = """
    SELECT p.proname AS name, p.oid::regprocedure::text AS called,
           (SELECT string_agg('NULL::' || format_type(t, NULL), ', ' ORDER BY n)
              FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a(t, n)) AS nothing
      FROM pg_proc p
     WHERE p.pronamespace = 'pillarbox'::regnamespace AND p.prorettype <> 'trigger'::regtype AND p.prokind = 'f'
       AND has_function_privilege('pillarbox_maintainer', p.oid, 'EXECUTE')
     ORDER BY 1, 2"""
_TABLES: Final = """
    SELECT c.relname AS name, (SELECT min(a.attname) FROM pg_attribute a
                                WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attidentity = '' AND a.attgenerated = ''
                                  AND NOT a.attisdropped) AS "column"
      FROM pg_class c
     WHERE c.relnamespace = 'pillarbox'::regnamespace AND c.relkind IN ('r', 'p', 'v')
       AND (has_table_privilege('pillarbox_maintainer', c.oid, 'UPDATE')
            OR has_table_privilege('pillarbox_maintainer', c.oid, 'DELETE'))
     ORDER BY 1"""


def test_every_function_of_a_maintainer_is_refused_to_a_viewer_or_known_to_be_harmless(
    factory: Factory, logins: Logins
) -> None:
    principal(factory, "vera", "viewer", "reviewer", "sender")
    found = factory.sql(_FUNCTIONS)
    assert {"maintain_history_drop", "history_drop_if_counted", "orphans_hold"} <= {row.name for row in found}
    taken = []
    with psycopg.connect(agent(factory, logins, "maintainer"), options="-c search_path=pillarbox") as session:
        for row in found:
            if row.name in HARMLESS:
                continue
            session.execute(ACT_AS, ("vera",))
            try:
                session.execute(f"SELECT * FROM {row.name}({row.nothing or ''})".encode())  # noqa: S608 - ours
                taken.append(row.called)
            except REFUSED:
                pass
            except psycopg.Error as error:
                taken.append(f"{row.called}: {error}")
            session.rollback()
    assert taken == []


def test_every_table_of_a_maintainer_is_refused_to_a_viewer(factory: Factory, logins: Logins) -> None:
    principal(factory, "vera", "viewer", "reviewer", "sender")
    found = factory.sql(_TABLES)
    assert {"volumes", "suspends", "webhooks"} <= {row.name for row in found}
    with psycopg.connect(agent(factory, logins, "maintainer"), options="-c search_path=pillarbox") as session:
        for row in found:
            change = f'UPDATE "{row.name}" SET "{row.column}" = "{row.column}"'  # noqa: S608 - ours
            for statement in (change, f'DELETE FROM "{row.name}"'):  # noqa: S608 - ours
                session.execute(ACT_AS, ("vera",))
                with pytest.raises(REFUSED):
                    session.execute(statement.encode())
                session.rollback()
        session.execute(ACT_AS, ("vera",))
        with pytest.raises(REFUSED, match="may not change volumes"):
            session.execute("INSERT INTO volumes VALUES ('h', '/', 1, 1, now(), '1s')")


def test_an_operator_and_a_login_that_acts_for_none_maintain(factory: Factory, logins: Logins) -> None:
    principal(factory, "olga", "operator")
    uri = agent(factory, logins, "maintainer")
    calls = ("maintain_history_drop('90d', '90d')", "maintain_forget_keys('1d', 10)", "orphans_release('{}')")
    with psycopg.connect(uri, options="-c search_path=pillarbox") as session:
        for name in ("olga", None):
            for call in (*calls, "orphans_hold('{}')", "maintain_finish('me', 1)", "maintain_sweep('1h', '1d', 1)"):
                session.execute(ACT_AS, (name,))
                session.execute(f"SELECT {call}".encode())
                session.rollback()
