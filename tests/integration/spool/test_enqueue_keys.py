"""test_enqueue_keys — an idempotency key is of one principal and of one message, for as long as it is kept

Owns: proofs about the keys of enqueue: their fingerprints, whose they are, and how long maintenance keeps them; and
    about the principals in whose name mail is queued.
See: docs/how-to/send/enqueue-from-sql.md; docs/how-to/rights/say-on-whose-behalf.md;
    tests/integration/spool/test_enqueue.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queued.maintain import Maintainer
from shared.config.queued.settings import Maintenance
from shared.mail.message import Address
from shared.postgres import database as db
from smtpd.envelope.client import User
from tests.fixtures.database.logins import name_of
from tests.fixtures.database.principals import acting, agent, principal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

GIVEN: dict[str, str] = {
    "sender": "'a@sender.example'",
    "recipients": "ARRAY['r@example.com', 's@example.com']",
    "content": "'From: a@sender.example'",
    "idempotency_key": "'order-7'",
    "deliver_at": "'2030-01-01 12:00+00'",
    "priority": "2",
    "metadata": '\'{"order": 7, "shop": "a"}\'',
    "transportid": "'relay'",
    "jobid": "'spring'",
    "smtputf8": "false",
}
REFUSED = psycopg.errors.InsufficientPrivilege


def call(**other: str) -> str:
    """The statement that enqueues GIVEN, with other SQL for some parameters."""
    return f"SELECT pillarbox.enqueue({', '.join(f'{name} => {text}' for name, text in {**GIVEN, **other}.items())})"


@pytest.fixture
def session(factory: Factory, logins: Logins) -> Iterator[psycopg.Connection[Any]]:
    """A session of a login that acts for principals, in autocommit."""
    with psycopg.connect(agent(factory, logins), autocommit=True) as connection:
        yield connection


def enqueued(session: psycopg.Connection[Any], name: str | None, **other: str) -> UUID:
    """Enqueue in a principal's name; the message's id."""
    with acting(session, name):
        [[message]] = session.execute(call(**other).encode()).fetchall()
    found: UUID = message
    return found


def test_the_same_parameters_give_the_first_id_however_they_are_written(factory: Factory) -> None:
    first = factory.one(call())
    for same in (
        {"deliver_at": "'2030-01-01 14:00+02'"},
        {"metadata": '\'{"shop":"a",   "order": 7}\''},
        {"smtputf8": "NULL"},
        {"content": "'From: a@sender.example'::bytea"},
    ):
        assert factory.one(call(**same)) == first
    bare = factory.one("SELECT pillarbox.enqueue('', '{r@example.com}', 'x', 'bare')")
    full = """SELECT pillarbox.enqueue('', '{r@example.com}', 'x', 'bare', NULL, 0, '{}', 'default', NULL, false)"""
    assert factory.one(full) == bare
    assert factory.one(full.replace("0, '{}', 'default'", "NULL, NULL, NULL")) == bare
    assert len(factory.queue()) == 3


@pytest.mark.parametrize(
    ("parameter", "other"),
    [
        ("sender", "'b@sender.example'"),
        ("sender", "''"),
        ("recipients", "ARRAY['r@example.com']"),
        ("recipients", "ARRAY['s@example.com', 'r@example.com']"),
        ("content", "'Subject: y'"),
        ("deliver_at", "'2030-01-01 12:00:00.000001+00'"),
        ("deliver_at", "NULL"),
        ("priority", "3"),
        ("metadata", '\'{"order": "7", "shop": "a"}\''),
        ("metadata", "'{}'"),
        ("transportid", "'default'"),
        ("jobid", "'summer'"),
        ("jobid", "NULL"),
        ("smtputf8", "true"),
    ],
)
def test_a_key_with_any_other_parameter_is_refused_by_its_name(factory: Factory, parameter: str, other: str) -> None:
    first = factory.one(call())
    with pytest.raises(psycopg.errors.UniqueViolation) as refused:
        factory.sql(call(**{parameter: other}))
    assert refused.value.diag.message_primary == 'idempotency key "order-7" was used for another message'
    assert refused.value.diag.message_detail == f"message {first}"
    assert {row.messages__id for row in factory.queue()} == {first}
    assert factory.one(call()) == first


def test_principals_behind_one_login_have_keys_of_their_own(factory: Factory, session: psycopg.Connection[Any]) -> None:
    for name in ("alice", "bob"):
        principal(factory, name, "sender", kind="application")
    ids = {name: enqueued(session, name) for name in ("alice", "bob", None)}
    assert len(set(ids.values())) == 3
    assert {name: enqueued(session, name) for name in ids} == ids
    with pytest.raises(psycopg.errors.UniqueViolation):
        enqueued(session, "bob", content="'Subject: y'")
    login = session.info.user
    names = {row.messages__id: row.saslusername for row in factory.queue()}
    assert names == {message: name or login for name, message in ids.items()}
    assert {(row.application, row.messages__id) for row in factory.sql("SELECT * FROM pillarbox.idempotency")} == {
        (name or login, message) for name, message in ids.items()
    }


def test_a_principal_sees_and_cancels_its_own_mail_alone_and_the_archive_has_its_name(
    factory: Factory, session: psycopg.Connection[Any]
) -> None:
    for name in ("alice", "bob"):
        principal(factory, name, "sender", kind="application")
        enqueued(session, name)
    enqueued(session, None)
    with acting(session, "alice"):
        assert session.execute("DELETE FROM pillarbox.own_mail").rowcount == 2
    with acting(session, "bob"):
        assert session.execute("UPDATE pillarbox.own_mail SET priority = 5").rowcount == 2
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    assert [row.saslusername for row in factory.archive()] == ["alice", "alice"]
    assert {row.saslusername: row.priority for row in factory.queue()} == {"bob": 5, session.info.user: 2}


async def test_maintenance_keeps_a_key_for_a_day_unless_it_is_told_another_time(factory: Factory) -> None:
    first = factory.one(call())
    factory.one(call(idempotency_key="'young'"))
    connection = await db.connect(factory.uri, "maintainer")
    try:
        for hours, keep, left in ((25, "2d", {"order-7", "young"}), (25, None, {"young"})):
            factory.sql(
                "UPDATE pillarbox.idempotency SET ts = now() - make_interval(hours => %(hours)s) WHERE key = 'order-7'",
                hours=hours,
            )
            settings = Maintenance.model_validate({} if keep is None else {"keep": {"idempotency": keep}})
            assert await Maintainer("w", settings).round_if_elected(connection)
            factory.sql("UPDATE pillarbox.locks SET holder = NULL, until = NULL WHERE name = 'maintain'")
            assert {row.key for row in factory.sql("SELECT key FROM pillarbox.idempotency")} == left
    finally:
        await connection.close()
    assert factory.one(call(content="'Subject: y'")) != first


def test_only_a_sender_sends_and_only_as_its_own_senders(factory: Factory, session: psycopg.Connection[Any]) -> None:
    principal(factory, "reader", "viewer", "operator", "admin", "reviewer")
    principal(factory, "shop", "sender", senders=["sender.example"])
    with pytest.raises(REFUSED, match='"reader" may not send mail'):
        enqueued(session, "reader")
    with pytest.raises(REFUSED, match='"shop" may not send as "a@other'):
        enqueued(session, "shop", sender="'a@other.example'")
    with pytest.raises(REFUSED, match='"shop" may not send as "<>"'):
        enqueued(session, "shop", sender="''")
    assert factory.queue() == []
    enqueued(session, "shop")
    assert len(factory.queue()) == 2


def test_mail_in_a_principals_name_is_held_and_goes_as_by_smtp(
    factory: Factory, session: psycopg.Connection[Any]
) -> None:
    principal(factory, "new", "sender", quarantineid="review", partitionid="7", transportid="slow")
    enqueued(session, "new", transportid="'default'", idempotency_key="NULL")
    enqueued(session, "new", transportid="'fast'", idempotency_key="NULL")
    rows = factory.queue()
    assert {(row.status, row.partid, row.metadata["_quarantineid"]) for row in rows} == {("HOLD", "7", "review")}
    assert {row.metadata["_holdreason"] for row in rows} == {"all mail of this user is held"}
    assert [row.transportid for row in rows] == ["slow", "slow", "fast", "fast"]


DOMAINS = ["a.example", "b.a.example", "ba.example", "example"]
PATTERNS = st.sampled_from(["", *DOMAINS, *(f"*.{each}" for each in DOMAINS), *(f"x@{each}" for each in DOMAINS)])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    patterns=st.lists(PATTERNS, max_size=3),
    sender=st.none() | st.builds(Address, st.sampled_from(["x", "y"]), st.sampled_from(DOMAINS)),
)
def test_sql_and_smtpd_judge_senders_alike(factory: Factory, patterns: list[str], sender: Address | None) -> None:
    localpart, domain = (None, None) if sender is None else (sender.localpart, sender.domain)
    judged = factory.one(
        "SELECT pillarbox.sender_allowed(%(patterns)s::text[], %(localpart)s, %(domain)s)",
        patterns=patterns,
        localpart=localpart,
        domain=domain,
    )
    assert judged == User("u", senders=patterns).may_send_as(sender)


def test_a_login_without_a_principal_sends_as_before(factory: Factory, logins: Logins) -> None:
    uri = logins.uri("application")
    principal(factory, name_of(uri), "viewer")
    with psycopg.connect(uri, autocommit=True) as session:
        session.execute(call().encode())
    assert {row.saslusername for row in factory.queue()} == {name_of(uri)}
