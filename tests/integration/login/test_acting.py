"""test_acting — a session acts for a principal only where act_as has said so, in this very transaction

Owns: proofs about act_as, acting_for and the seal between them (sql/schema/06_principal.sql): forgeries, pools,
    rollback, disabled principals, and the logins that may not act for others.
See: sql/README.md, "On whose behalf"; tests/integration/schema/test_review_rights.py.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from tests.fixtures.database.logins import name_of
from tests.fixtures.database.principals import ACT_AS, ACTING_FOR, agent, principal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

ENQUEUE = "SELECT pillarbox.enqueue('a@sender.example', '{r@example.com}', 'Subject: x')"
CLAIM = "SELECT current_setting('pillarbox.acting')"
SET = "SELECT set_config('pillarbox.acting', %s, %s)"
REFUSED = psycopg.errors.InsufficientPrivilege


@pytest.fixture
def uri(factory: Factory, logins: Logins) -> str:
    """A login that acts for alice and bob, who may send."""
    principal(factory, "alice", "sender")
    principal(factory, "bob", "sender", kind="application")
    return agent(factory, logins)


@pytest.fixture
def session(uri: str) -> Iterator[psycopg.Connection[Any]]:
    """Its session, in autocommit."""
    with psycopg.connect(uri, autocommit=True) as connection:
        yield connection


def who(session: psycopg.Connection[Any]) -> str:
    """On whose behalf the session acts."""
    [[name]] = session.execute(ACTING_FOR).fetchall()
    return str(name)


def claim_of(session: psycopg.Connection[Any], name: str) -> str:
    """The setting that act_as makes for this principal, in a transaction that is over."""
    with session.transaction():
        session.execute(ACT_AS, (name,))
        [[claim]] = session.execute(CLAIM).fetchall()
    return str(claim)


def test_a_session_acts_for_a_principal_until_its_transaction_ends(session: psycopg.Connection[Any], uri: str) -> None:
    login = name_of(uri)
    assert who(session) == login
    with session.transaction():
        session.execute(ACT_AS, ("alice",))
        assert who(session) == "alice"
        session.execute(ACT_AS, ("bob",))
        assert who(session) == "bob"
        session.execute(ACT_AS, (None,))
        assert who(session) == login
        session.execute(ACT_AS, ("alice",))
    assert who(session) == login


def test_a_rollback_ends_it_too_and_one_to_a_savepoint_brings_back_who_it_was(
    session: psycopg.Connection[Any], uri: str
) -> None:
    with session.transaction(force_rollback=True):
        session.execute(ACT_AS, ("alice",))
        with session.transaction(force_rollback=True):
            session.execute(ACT_AS, ("bob",))
            assert who(session) == "bob"
        assert who(session) == "alice"
    assert who(session) == name_of(uri)


def test_a_pooled_connection_carries_no_principal_into_the_next_transaction(uri: str) -> None:
    with ConnectionPool(uri, min_size=1, max_size=1, open=True) as pool:
        with pool.connection() as connection:
            connection.execute(ACT_AS, ("alice",))
            first = connection.info.backend_pid
        with pool.connection() as connection:
            assert (connection.info.backend_pid, who(connection)) == (first, name_of(uri))
        with suppress(psycopg.errors.DivisionByZero), pool.connection() as connection:
            connection.execute(ACT_AS, ("bob",))
            connection.execute("SELECT 1 / 0")
        with pool.connection() as connection:
            assert (connection.info.backend_pid, who(connection)) == (first, name_of(uri))


@pytest.mark.parametrize("asks", [ACTING_FOR, ENQUEUE, "SELECT * FROM pillarbox.own_mail"])
@pytest.mark.parametrize(
    "forged", ["alice", "a" * 64 + "alice", "\\x00", "of an earlier transaction", "of another session", "of bob"]
)
def test_a_forged_setting_is_refused_whoever_asks(
    session: psycopg.Connection[Any], uri: str, forged: str, asks: str
) -> None:
    session.execute(ENQUEUE)
    claim = forged
    if forged == "of an earlier transaction":
        claim = claim_of(session, "alice")
    elif forged == "of another session":
        with psycopg.connect(uri) as other:
            claim = claim_of(other, "alice")
    with session.transaction(force_rollback=True):
        if forged == "of bob":
            session.execute(ACT_AS, ("bob",))
            [[real]] = session.execute(CLAIM).fetchall()
            claim = f"{real[:64]}alice"
        session.execute(SET, (claim, True))
        with pytest.raises(REFUSED, match="acting is not a setting that pillarbox"):
            session.execute(asks.encode())


def test_a_setting_kept_for_the_session_is_refused_in_the_next_transaction_of_the_same_message(
    session: psycopg.Connection[Any], factory: Factory
) -> None:
    """Transactions that one message begins have one time; the number of the transaction tells them apart."""
    keep = "SELECT set_config('pillarbox.acting', current_setting('pillarbox.acting'), false)"
    with pytest.raises(REFUSED, match="act_as made in this transaction"):
        session.execute(f"BEGIN; SELECT pillarbox.act_as('alice'); {keep}; COMMIT; BEGIN; {ENQUEUE}; COMMIT".encode())
    session.rollback()
    with pytest.raises(REFUSED):
        session.execute(ENQUEUE)
    session.execute("RESET pillarbox.acting")
    assert factory.queue() == []


def test_unknown_and_disabled_principals_are_refused(session: psycopg.Connection[Any], factory: Factory) -> None:
    principal(factory, "gone", "sender", disabled=True)
    for name, refusal in (
        ("mallory", 'principal "mallory" does not exist'),
        ("gone", 'principal "gone" is disabled'),
        ("", 'principal "" does not exist'),
    ):
        with session.transaction(force_rollback=True), pytest.raises(REFUSED, match=refusal):
            session.execute(ACT_AS, (name,))


def test_a_principal_that_is_disabled_meanwhile_does_no_more(
    session: psycopg.Connection[Any], factory: Factory
) -> None:
    with session.transaction(force_rollback=True):
        session.execute(ACT_AS, ("alice",))
        factory.sql("UPDATE pillarbox.principals SET disabled = true")
        with pytest.raises(REFUSED, match='"alice" may not send mail'):
            session.execute(ENQUEUE)


@pytest.mark.parametrize("role", ["smtpd", "queued", "reviewer", "analyst", "maintainer", "application"])
def test_no_other_login_acts_for_principals_or_reads_them(factory: Factory, logins: Logins, role: str) -> None:
    principal(factory, "alice", "sender", "admin")
    with logins.session(role) as session:
        for statement in (
            "SELECT act_as('alice')",
            "SELECT principal_known('alice')",
            "SELECT acting_seal('alice')",
            "SELECT secret FROM acting_secret",
            "UPDATE acting_secret SET secret = ''",
            "SELECT name FROM principals",
            "INSERT INTO principals (name) VALUES ('mallory')",
            "UPDATE principals SET roles = '{admin}'",
        ):
            with pytest.raises(REFUSED):
                session.execute(statement.encode())
        assert who(session) == session.info.user


def test_a_login_that_acts_for_principals_reads_no_secret_and_changes_no_principal(
    session: psycopg.Connection[Any],
) -> None:
    for statement in (
        "SELECT pillarbox.acting_seal('alice')",
        "SELECT secret FROM pillarbox.acting_secret",
        "SELECT name FROM pillarbox.principals",
        "UPDATE pillarbox.principals SET roles = '{admin}'",
    ):
        with pytest.raises(REFUSED):
            session.execute(statement.encode())


#: What a client may do to its session; a name is of a principal, a number of a setting that it has seen, 0 the latest.
STEPS = st.one_of(
    st.tuples(st.just("BEGIN")),
    st.tuples(st.just("act_as"), st.sampled_from(["alice", "bob", "gone", None])),
    st.tuples(st.just("set"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("spliced"), st.integers(0, 2), st.sampled_from(["alice", "bob", "gone"])),
    st.tuples(st.sampled_from(["COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"])),
    st.tuples(
        st.sampled_from(
            [
                "RESET pillarbox.acting",
                "SET pillarbox.acting = 'alice'",
                "SET LOCAL pillarbox.acting = ''",
                "DISCARD ALL",
            ]
        )
    ),
)


class Client:
    """A client that does to its session what it likes; `accepted`: whom act_as has accepted in this transaction."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        session.prepare_threshold = None  # DISCARD ALL forgets prepared statements
        session.rollback()
        session.execute("DISCARD ALL")
        self._session = session
        self._seen = ["", "alice", claim_of(session, "alice"), claim_of(session, "bob")]
        self.accepted = set[str]()

    def does(self, kind: str, *rest: Any) -> None:
        """One of STEPS; what PostgreSQL refuses ends the transaction."""
        with suppress(psycopg.Error):
            if kind == "act_as":
                self._act_as(*rest)
            elif kind == "set":
                self._session.execute(SET, (self._setting(rest[0]), rest[1]))
            elif kind == "spliced":
                self._session.execute(SET, (self._setting(rest[0])[:64] + rest[1], False))
            else:
                self._session.execute(kind.encode())
        self._look()

    def says(self) -> str | None:
        """What acting_for answers; None where it refuses."""
        try:
            return who(self._session)
        except REFUSED:
            return None
        finally:
            self._look()

    def _act_as(self, name: str | None) -> None:
        if self._session.info.transaction_status == TransactionStatus.IDLE:
            self._session.execute("BEGIN")
        self._session.execute(ACT_AS, (name,))
        self.accepted |= {name} if name else set()
        self._seen.extend(row[0] for row in self._session.execute(CLAIM).fetchall())

    def _setting(self, number: int) -> str:
        return self._seen[-1 - number % len(self._seen)]

    def _look(self) -> None:
        if self._session.info.transaction_status == TransactionStatus.INERROR:
            self._session.execute("ROLLBACK")
        if self._session.info.transaction_status == TransactionStatus.IDLE:
            self.accepted.clear()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=14))
@example(steps=[("act_as", "alice"), ("spliced", 0, "bob")])
@example(steps=[("act_as", "alice"), ("set", 0, False), ("COMMIT",)])
@example(
    steps=[("SAVEPOINT s",), ("BEGIN",), ("SAVEPOINT s",), ("act_as", "bob"), ("ROLLBACK TO s",), ("set", 2, True)]
)
def test_no_sequence_of_settings_names_a_principal_that_act_as_did_not_accept_in_this_transaction(
    session: psycopg.Connection[Any], uri: str, steps: list[tuple[Any, ...]]
) -> None:
    client = Client(session)
    for step in steps:
        client.does(*step)
        accepted = client.accepted | {name_of(uri), None}
        assert client.says() in accepted
