"""test_users_file — users in smtpd.yaml and in a file that commands change while it is read

Owns: proofs about the file of users; test_users.py has the table.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scripts.access import user_store
from scripts.access.user_store import FileStore, text
from shared.config.smtpd.users import UserEntry
from shared.errors import PillarboxError
from shared.mail.address import parse
from smtpd.envelope.client import User
from smtpd.login.user_sources import FileUsers
from tests.fixtures.daemons.login import HASH, PASSWORD, authentication, log_in
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from pathlib import Path


async def test_users_in_smtpd_yaml_take_precedence_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(text({"alice": UserEntry(), "bob": UserEntry(argon2=HASH)}))
    async with authentication(tmp_path, file=str(file), users={"alice": HASH}) as auth:
        for name in ("alice", "bob"):
            assert (await log_in(auth, name, PASSWORD)).user is not None


def test_concurrent_commands_lose_no_user(tmp_path: Path) -> None:
    async def everybody() -> None:
        stores = [FileStore(tmp_path / "users.yaml") for _ in range(8)]
        await asyncio.gather(
            *(asyncio.to_thread(store.add, f"user{number}", UserEntry()) for number, store in enumerate(stores))
        )

    asyncio.run(everybody())
    assert len(FileStore(tmp_path / "users.yaml").entries()) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["users.yaml"]


def test_the_file_is_read_by_its_owner_only_and_keeps_its_rights(tmp_path: Path) -> None:
    file = tmp_path / "users.yaml"
    FileStore(file).add("alice", UserEntry(argon2=HASH))
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    FileStore(file).change("alice", disabled=True)
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_file_that_would_be_refused_for_its_size_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path / "users.yaml")
    store.add("alice", UserEntry(argon2=HASH))
    monkeypatch.setattr(user_store, "MOST_BYTES", (tmp_path / "users.yaml").stat().st_size + 10)
    with pytest.raises(PillarboxError, match="has no room for more users"):
        store.add("bob", UserEntry(argon2=HASH))
    assert list(store.entries()) == ["alice"]


@pytest.mark.parametrize(
    ("senders", "sender", "allowed"),
    [
        ((), "anybody@anywhere.example", True),
        ((), None, True),
        (("alice@example.com",), "alice@EXAMPLE.com", True),
        (("alice@example.com",), "Alice@example.com", False),
        (("alice@example.com",), "bob@example.com", False),
        (("alice@example.com",), "alice@sub.example.com", False),
        (("example.com",), "anybody@example.com", True),
        (("example.com",), "anybody@sub.example.com", False),
        (("*.example.com",), "anybody@deep.sub.example.com", True),
        (("*.example.com",), "anybody@example.com", False),
        (("*.example.com",), "anybody@badexample.com", False),
        (("example.com",), None, False),
        (("example.com", ""), None, True),
    ],
)
def test_a_user_has_own_senders(senders: tuple[str, ...], sender: str | None, allowed: bool) -> None:  # noqa: FBT001
    address = None if sender is None else parse(sender)
    assert User("alice", senders=senders).may_send_as(address) is allowed


async def test_reading_the_file_does_not_delay_other_logins(tmp_path: Path) -> None:
    """Reading a large file again is done beside the event loop."""
    file = tmp_path / "users.yaml"
    file.write_text(text({f"user{number}": UserEntry(argon2=HASH) for number in range(3000)}))
    users = FileUsers(file)
    users.prepare()
    file.write_text(text({f"user{number}": UserEntry(argon2=HASH) for number in range(3001)}))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    finding = asyncio.create_task(users.find("user3000"))
    await until(finding.done, "the new file")
    running.cancel()
    assert finding.result() is not None
    assert turns > 10
