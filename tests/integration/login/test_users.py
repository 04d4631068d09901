"""test_users — users of a changing file and of the table, and the reply to a login if neither is available

Owns: proofs about smtpd/login/user_sources.py and sql/schema/06_principal.sql, with the real PostgreSQL.
See: tests/integration/settings/test_user_command.py for `pillarbox user`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from scripts.access.user_store import FileStore, TableStore, text
from shared.config.smtpd.users import UserEntry
from shared.errors import ConfigError
from smtpd.envelope.client import User
from smtpd.login import user_sources
from smtpd.login.user_sources import FileUsers, Several, TableUsers, WrittenUsers
from smtpd.login.users import Costs, UsersUnavailable
from tests.fixtures.daemons.login import HASH, KEYS, PASSWORD, authentication, log_in
from tests.fixtures.peers.proxy import relaying
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.heard import Heard

WHOLE: dict[str, Any] = {
    "argon2": HASH,
    "scram": str(KEYS),
    "disabled": True,
    "senders": ["alice@example.com", "*.example.net", ""],
    "messages": 10,
    "recipients": 100,
    "partition": "7",
    "transport": "relay",
    "hold": "review",
}
ALICE = User(
    "alice",
    argon2=HASH,
    scram=KEYS,
    disabled=True,
    senders=("alice@example.com", "*.example.net", ""),
    messages=10,
    recipients=100,
    partition="7",
    transport="relay",
    hold="review",
)


async def test_a_user_of_the_file_authenticates(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "users.yaml")
    assert store.add("alice", UserEntry.model_validate(WHOLE))
    assert store.add("bob", UserEntry())
    users = FileUsers(tmp_path / "users.yaml")
    users.prepare()
    assert await users.find("alice") == ALICE
    assert await users.find("bob") == User("bob")
    assert await users.find("nobody") is None


async def test_a_changed_file_is_read_before_the_next_login(tmp_path: Path, heard: Heard) -> None:
    file = tmp_path / "users.yaml"
    store = FileStore(file)
    store.add("alice", UserEntry(argon2=HASH))
    async with authentication(tmp_path, file=str(file)) as auth:
        assert (await log_in(auth, "alice", PASSWORD)).user is not None
        assert (await log_in(auth, "bob", PASSWORD)).user is None
        store.add("bob", UserEntry(argon2=HASH))
        assert (await log_in(auth, "bob", PASSWORD)).user is not None
        store.change("bob", disabled=True)
        assert (await log_in(auth, "bob", PASSWORD)).user is None
        store.remove("alice")
        assert (await log_in(auth, "alice", PASSWORD)).user is None
    assert [each["users"] for each in heard.all("users.read")] == [2, 2, 1]


async def test_an_invalid_file_keeps_the_old_users(tmp_path: Path, heard: Heard) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(text({"alice": UserEntry(argon2=HASH)}))
    async with authentication(tmp_path, file=str(file)) as auth:
        file.write_text("users: {alice: {argon2: hunter2}}")
        for _ in range(3):
            assert (await log_in(auth, "alice", PASSWORD)).user is not None
        [refused] = heard.all("users.refused")
        assert "users.alice.argon2" in str(refused["error"])
        assert "hunter2" not in str(refused["error"])
        file.unlink()
        assert (await log_in(auth, "alice", PASSWORD)).user is not None
        assert len(heard.all("users.refused")) == 2


def test_an_invalid_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"authentication\.file: .*users\.yaml: cannot be read"):
        FileUsers(tmp_path / "users.yaml").prepare()
    (tmp_path / "users.yaml").write_text("users: {alice: {sender: [a@b]}}")
    with pytest.raises(ConfigError, match=r"users\.alice\.sender: unknown key .*did you mean senders\?"):
        FileUsers(tmp_path / "users.yaml").prepare()


async def test_a_user_of_the_table_authenticates(factory: Factory, logins: Logins) -> None:
    store = TableStore(factory.uri)
    assert await asyncio.to_thread(store.entries) == {}
    assert await asyncio.to_thread(store.add, "alice", UserEntry.model_validate(WHOLE))
    assert not await asyncio.to_thread(store.add, "alice", UserEntry())
    users = TableUsers(logins.uri("smtpd"))
    try:
        assert await users.find("alice") == ALICE
        assert await users.find("nobody") is None
        assert await users.find("'; DROP TABLE pillarbox.users; --") is None
        assert await asyncio.to_thread(store.change, "alice", disabled=False)
        found = await users.find("alice")
        assert found is not None
        assert not found.disabled
    finally:
        await users.close()


def costs(iterations: set[int], hashes: set[str]) -> Costs:
    return Costs(frozenset(iterations), frozenset(hashes))


async def test_the_costs_of_all_verifiers_are_known(factory: Factory, logins: Logins, tmp_path: Path) -> None:
    """Of the file at once, of the table after a while."""
    dear = "$argon2id$v=19$m=65536,t=6,p=4"
    entries = [
        UserEntry.model_validate({"scram": str(replace(KEYS, iterations=cost)), "argon2": known})
        for cost, known in ((4096, None), (5000, f"{dear}$c2FsdHNhbHQ$ZGlnZXN0ZGlnZXN0"), (5000, None))
    ]
    cheap = HASH.rpartition("$")[0].rpartition("$")[0]
    now = 0.0
    table, file = TableStore(factory.uri), FileStore(tmp_path / "users.yaml")
    file.add("nobody", UserEntry(argon2=HASH))
    of_table = TableUsers(logins.uri("smtpd"), lambda: now)
    of_file = FileUsers(tmp_path / "users.yaml")
    of_file.prepare()
    both = Several([WrittenUsers({"bob": HASH}), of_file, of_table])
    try:
        assert await both.costs() == costs(set(), {cheap})
        for number, entry in enumerate(entries):
            file.add(f"user{number}", entry)
            await asyncio.to_thread(table.add, f"user{number}", entry)
        assert await of_file.find("anybody") is None
        assert await of_file.costs() == costs({4096, 5000}, {cheap, dear})
        assert await of_table.costs() == Costs()
        now = 301.0
        assert await of_table.costs() == costs({4096, 5000}, {dear})
        assert await both.costs() == costs({4096, 5000}, {cheap, dear})
    finally:
        await of_table.close()


@pytest.mark.parametrize("role", ["queued", "reviewer", "analyst", "maintainer", "application"])
def test_only_smtpd_may_read_verifiers(factory: Factory, logins: Logins, role: str) -> None:
    with logins.session(role) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute("SELECT name FROM pillarbox.users")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO pillarbox.users (name) VALUES ('mallory')",
        "UPDATE pillarbox.users SET disabled = true",
        "DELETE FROM pillarbox.users",
    ],
)
def test_smtpd_changes_no_user(factory: Factory, logins: Logins, statement: str) -> None:
    with logins.session("smtpd") as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(statement.encode())


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", ""),
        ("argon2", "open sesame"),
        ("scram", "open sesame"),
        ("scram", "SCRAM-SHA-256$4096:c2FsdA==$short:short"),
        ("senders", [None]),
        ("messages", 0),
        ("recipients", -1),
        ("partitionid", "no good"),
        ("transportid", ""),
        ("quarantineid", "x" * 65),
    ],
)
def test_the_table_refuses_invalid_users(factory: Factory, column: str, value: Any) -> None:
    columns = {"name": "alice", column: value}
    with psycopg.connect(factory.uri, autocommit=True) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(
            sql.SQL("INSERT INTO pillarbox.users ({}) VALUES ({})").format(
                sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(map(sql.Placeholder, columns))
            ),
            columns,
        )


async def test_while_postgresql_is_down_a_login_is_454_and_afterwards_it_works(
    factory: Factory, tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_sources, "_PATIENCE", 2.0)
    await asyncio.to_thread(TableStore(factory.uri).add, "alice", UserEntry(argon2=HASH, scram=str(KEYS)))
    async with (
        relaying(factory.uri) as proxy,
        authentication(tmp_path, source="table", conninfo=proxy.uri) as auth,
    ):
        proxy.refuse = True  # from the very first login on
        assert (await log_in(auth, "alice", PASSWORD)).reply == "454 4.7.0 Temporary authentication failure"
        proxy.refuse = False
        assert (await log_in(auth, "alice", PASSWORD)).user is not None
        proxy.refuse = True
        proxy.cut()
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            assert (await log_in(auth, "alice", PASSWORD, mechanism)).reply.startswith("454 4.7.0 ")
        proxy.refuse = False
        async with asyncio.timeout(PATIENCE):
            while (await log_in(auth, "alice", PASSWORD, "SCRAM-SHA-256")).user is None:
                pass
    assert heard.all("users.unavailable")
    assert PASSWORD not in str(heard.events)


async def test_a_table_that_hangs_is_454_in_time(
    factory: Factory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(user_sources, "_PATIENCE", 0.3)
    users = TableUsers(factory.uri)
    with psycopg.connect(factory.uri) as blocker:
        blocker.execute("LOCK TABLE pillarbox.users IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(UsersUnavailable):
            await users.find("alice")
    await users.close()
