"""test_mail_inserted — INSERT into the views `mail` and `own_mail` queues mail as enqueue does

Owns: proofs about INSERT into both views of sql/schema/08_mail.sql: what it queues and returns, in one transaction with
    all of its rows, and which columns it refuses.
See: docs/how-to/send/enqueue-from-sql.md; tests/integration/schema/test_mail_view.py for UPDATE and DELETE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Json

from tests.fixtures.database.principals import acting, agent, principal

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

CONTENT = b"From: a@sender.example\r\nSubject: hello\r\n\r\nOctets: \xff\r\n"
OWN = "INSERT INTO pillarbox.own_mail (sender, recipient, content{}) VALUES ('a@sender.example', 'r@example.com', %s{})"
ALL = "INSERT INTO pillarbox.mail (sender, recipient, content, {}) VALUES ('', 'r@example.com', '', {})"


def inserted(session: psycopg.Connection[Any], columns: str = "", *values: Any, returning: str = "id") -> Any:
    """Insert a row into own_mail with these further columns; what RETURNING has."""
    statement = f"{OWN} RETURNING {returning}".format(columns, ", %s" * len(values))
    [row] = session.execute(statement.encode(), (CONTENT, *values)).fetchall()
    return row if len(row) > 1 else row[0]


def test_an_inserted_row_is_queued_with_everything_it_says(factory: Factory, logins: Logins) -> None:
    with logins.session("application") as session:
        id_, message, state, size, later = inserted(
            session,
            ", priority, jobid, metadata, transport, next_retry",
            *(5, "spring", Json({"order": 7}), "relay", "2030-01-01 12:00+00"),
            returning="id, message, state, size, next_retry > now()",
        )
        assert (state, size, later) == ("SCHEDULED", len(CONTENT), True)
        own = session.execute("SELECT sender, recipient, transport FROM own_mail WHERE id = %s", (id_,)).fetchall()
    assert [tuple(row) for row in own] == [("a@sender.example", "r@example.com", "relay")]
    [row] = factory.queue()
    assert (row.id, row.messages__id, row.priority, row.jobid, row.metadata["order"]) == (id_, message, 5, "spring", 7)
    assert factory.bodies()[message].content == CONTENT


def test_rows_of_one_insert_are_all_queued_or_none(factory: Factory, logins: Logins) -> None:
    several = """INSERT INTO own_mail (sender, recipient, content)
                 SELECT 'a@sender.example', address, 'x' FROM unnest(%s::text[]) AS address RETURNING id, recipient"""
    with logins.session("application") as session:
        rows = session.execute(several, (["r@example.com", "s@example.org"],)).fetchall()
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="not an address"):
            session.execute(several, (["t@example.com", "nobody"],))
    assert [(row.id, f"{row.recipientlocalpart}@{row.recipientdomain}") for row in factory.queue()] == [
        tuple(row) for row in rows
    ]


def test_a_rolled_back_insert_queues_nothing(factory: Factory, logins: Logins) -> None:
    with psycopg.connect(logins.uri("application")) as session:
        inserted(session)
        session.rollback()
    assert (factory.queue(), factory.bodies()) == ([], {})


def test_a_key_that_was_used_before_gives_the_first_row_also_when_it_has_finished(
    factory: Factory, logins: Logins
) -> None:
    with logins.session("application") as session:
        first = inserted(session, ", idempotency_key", "k", returning="id, message")
        assert inserted(session, ", idempotency_key", "k", returning="id, message") == first
        session.execute("DELETE FROM own_mail")
        factory.sql("SELECT pillarbox.maintain_finish(now(), 'maintainer', 100)")
        assert factory.queue() == []
        assert inserted(session, ", idempotency_key", "k", returning="id, message") == first
        with pytest.raises(psycopg.errors.UniqueViolation):
            inserted(session, ", idempotency_key, priority", "k", 3)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", 1),
        ("message", "01890000-0000-7000-8000-000000000000"),
        ("state", "HOLD"),
        ("size", 1),
        ("retry_count", 0),
    ],
)
def test_other_columns_are_refused_by_name(factory: Factory, logins: Logins, column: str, value: Any) -> None:
    with (
        logins.session("application") as session,
        pytest.raises(psycopg.errors.FeatureNotSupported, match=f"column {column} cannot be inserted here"),
    ):
        inserted(session, f", {column}", value)
    for name, text in ((column, f"'{value}'"), ("quarantine", "'q'"), ("received", "now()"), ("partition", "'1'")):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"column {name} cannot be inserted here"):
            factory.sql(ALL.format(name, text))
    assert factory.queue() == []


@pytest.mark.parametrize("missing", ["sender", "recipient", "content"])
def test_what_enqueue_needs_an_insert_needs(factory: Factory, logins: Logins, missing: str) -> None:
    values = {"sender": "a@sender.example", "recipient": "r@example.com", "content": b"x"}
    del values[missing]
    insert = "INSERT INTO own_mail ({}) VALUES (%s, %s)"
    statement = insert.format(", ".join(values))
    with logins.session("application") as session, pytest.raises(psycopg.errors.InvalidParameterValue):
        session.execute(statement.encode(), tuple(values.values()))


def test_an_operator_inserts_into_the_view_of_all_mail(factory: Factory, logins: Logins) -> None:
    insert = "INSERT INTO pillarbox.mail (sender, recipient, content) VALUES ('', 'r@example.com', 'x') RETURNING *"
    [row] = factory.sql(insert)
    assert (row.state, row.recipient, row.partition is not None) == ("ACTIVE", "r@example.com", True)
    for role in ("reviewer", "application", "analyst"):
        with logins.session(role) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute(insert.encode())
    with logins.session("reviewer") as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        inserted(session)
    assert [each.id for each in factory.queue()] == [row.id]


def test_a_principal_inserts_as_its_own_sender_alone(factory: Factory, logins: Logins) -> None:
    principal(factory, "shop", "sender", senders=["sender.example"])
    principal(factory, "other", "sender", senders=["other.example"])
    with psycopg.connect(agent(factory, logins), autocommit=True) as session:
        with acting(session, "shop"):
            inserted(session)
        with (
            pytest.raises(psycopg.errors.InsufficientPrivilege, match='"other" may not send as'),
            acting(session, "other"),
        ):
            inserted(session)
    assert [row.saslusername for row in factory.queue()] == ["shop"]
