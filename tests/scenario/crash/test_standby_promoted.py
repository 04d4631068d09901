"""test_standby_promoted — a standby is promoted after the primary's loss: no mail is lost, no daemon restarts

Owns: the proof that daemons follow a URI with several hosts to the one that accepts writes; and that daemons whose URI
    leads to the standby alone wait for its promotion.
See: shared/postgres/database.py, `complete`; libpq's target_session_attrs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from scripts.deadletters import watch
from shared.postgres import account_schema, migrate
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.daemons.system import System
from tests.fixtures.servers import owner
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.servers.standby import replicated
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripts.demo.sample_mail import Sample
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.servers.standby import Pair

ENOUGH = 200  # messages before the loss, and again after it


class Tap:
    """Numbered mail until it is turned off."""

    def __init__(self) -> None:
        self.open = True

    def __iter__(self) -> Iterator[Sample]:
        for sample in numbered(1_000_000):
            if not self.open:
                return
            yield sample


@pytest.mark.slow
async def test_mail_continues_after_a_promotion_without_a_restart(books: Books, tmp_path: Path) -> None:
    async with replicated() as pair:
        migrate.migrate(pair.both, LEAVES)
        system = System(pair.both, tmp_path)
        try:
            await fail_over(system, books, pair)
        finally:
            await system.close()
        assert system.faults() == []


async def fail_over(system: System, books: Books, pair: Pair) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, claim={"inflight": 100})
    pids = (smtpd.pid, worker.pid)
    tap = Tap()
    submitting = asyncio.create_task(books.submit(smtpd, tap, sessions=5))
    await books.until_arrived(ENOUGH)

    await pair.lose_primary()
    await eventually(lambda: any(r.startswith("451") for r in books.replies.values()), "clients get 451")
    listened = len(worker.said("wakeup.listening"))
    before = books.accepted
    await pair.promote()
    await eventually(lambda: books.accepted >= before + ENOUGH, "mail is accepted again")
    tap.open = False
    await submitting
    await books.until_arrived(books.accepted)
    await system.until_finished()
    await worker.until_said("wakeup.listening", listened + 1)

    assert (smtpd.pid, worker.pid) == pids
    assert books.refusals() <= {"451"}
    account = books.account()
    assert (account.lost, account.altered) == (0, 0)
    # Delivered mail without a recorded result is sent again when its lease expires.
    expired = await system.value("SELECT count(*) FROM attempts WHERE outcome = 'lease_expired'")
    assert account.duplicated <= expired
    assert await system.value("SELECT NOT pg_is_in_recovery()")


@pytest.mark.slow
async def test_daemons_that_reach_a_standby_wait_until_it_is_promoted(books: Books, tmp_path: Path) -> None:
    """A hot standby refuses every change, and LISTEN; an address that moves may lead to it before its promotion."""
    async with replicated() as pair:
        migrate.migrate(pair.both, LEAVES)
        account_schema.install(pair.both, "accounts")
        await pair.lose_primary()
        host = conninfo_to_dict(pair.standby)["host"]
        system = System(f"postgresql:///{owner.DATABASE}?host={host}&user={owner.ROLE}", tmp_path)
        try:
            await wait_for_promotion(system, books, pair)
        finally:
            await system.close()


async def wait_for_promotion(system: System, books: Books, pair: Pair) -> None:
    smtpd, worker, httpd = await system.smtpd(), await system.worker(books.sink.port), await system.httpd()
    collector = await system.collector(**collecting(system.folder))
    await worker.until_said("wakeup.lost")
    await worker.until_said("claim.failed")
    await collector.until_said("wakeup.lost")
    await collector.until_said("collect.unavailable")
    await collector.until_said("collect.unforgotten")
    letters: list[str] = []
    watching = asyncio.create_task(watch.run(system.uri, None, letters.append))
    tap = Tap()
    submitting = asyncio.create_task(books.submit(smtpd, tap))
    await eventually(lambda: any(r.startswith("451") for r in books.replies.values()), "clients get 451")
    await pair.promote()
    await eventually(lambda: books.accepted >= 20, "mail is accepted")
    tap.open = False
    await submitting
    await system.rows("INSERT INTO accounts.accounts (email, login) VALUES ('new@oak.example', 'new')")
    await eventually(lambda: len(books.sink.received) > books.accepted, "mail of the new account arrives too")
    await worker.until_said("wakeup.listening")
    assert books.account().lost == 0
    await books.submit(smtpd, numbered(1, first=1_000_000, box="permerror"))
    await eventually(lambda: letters or watching.done(), "the watcher of dead letters has one")
    assert "permerror" in letters[0]
    watching.cancel()
    await asyncio.wait([watching])
    assert [daemon.said("daemon.failed") for daemon in (smtpd, worker, httpd, collector)] == [[], [], [], []]


def collecting(folder: Path) -> dict[str, Any]:
    """The sections of collect.yaml."""
    key = folder / "accounts.key"
    key.write_text("cafebabe" * 8)
    key.chmod(0o600)
    return {
        "accounts": {"schema": "accounts"},
        "poll": "500ms",
        "keys": [{"id": "k", "file": str(key)}],
        "mail": {
            "sender": "accounts@origin.example",
            "activate": "https://origin.example/activate?token={token}",
            "recover": "https://origin.example/recover?token={token}",
        },
    }
