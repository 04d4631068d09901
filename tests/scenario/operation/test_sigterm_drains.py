"""test_sigterm_drains — a stop finishes running deliveries, gives back the rest at once, and exits with 0

Owns: the stop of both daemons from the view of their clients, their peers and the next worker.
See: RFC 5321 section 3.8 (421); shared/lifecycle.py.
"""

from __future__ import annotations

import asyncio
import signal
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.submit import Client, numbered, stuffed
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MESSAGES = 40
TALKING = 2  # connections of the worker that is stopped
SLOW = 1.0  # seconds the peer takes for each message


@pytest.mark.slow
async def test_a_worker_finishes_running_deliveries_and_releases_the_rest(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    # A long lease, so that only the stop itself can give mail back.
    first = await system.worker(books.sink.port, "first", transport={"concurrency": TALKING})
    await books.submit(smtpd, numbered(MESSAGES, box=f"slow{SLOW}"))
    await system.until("SELECT count(*) = 0 FROM queue WHERE token IS NULL")
    await books.until_arrived(TALKING)
    done_before = await system.value("SELECT count(*) FROM archive")
    assert await first.stop() == 0

    # Given back means as if never claimed: no token, no lease, no try.
    left = await system.rows("SELECT count(*), count(token), count(lease_until), max(retry_count) FROM queue")
    done = await system.value("SELECT count(*) FROM archive WHERE result = 'success'")
    assert left == [(MESSAGES - done, 0, 0, 0)]
    assert done - done_before <= 6 * TALKING, "what was under way was finished, and no more was begun"
    assert first.said("daemon.stopped")

    second = await system.worker(books.sink.port, "second")
    await books.until_arrived(MESSAGES)
    await system.until_finished()
    assert str(books.account()) == f"accepted={MESSAGES} delivered={MESSAGES} lost=0 duplicated=0 altered=0"
    assert await system.rows("SELECT outcome, retry_count, count(*) FROM attempts GROUP BY 1, 2") == [
        ("delivered", 1, MESSAGES)
    ]
    assert second.said("claim.expired") == []


@pytest.mark.slow
async def test_stopping_under_load_loses_and_duplicates_no_mail(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, claim={"inflight": 200})
    messages = 1000
    submitting = asyncio.create_task(books.submit(smtpd, numbered(messages)))
    for quarter in (1, 2, 3):
        await books.until_arrived(quarter * messages // 4)
        assert await worker.stop() == 0
        assert await system.value("SELECT count(*) FROM queue WHERE token IS NOT NULL") == 0
        await worker.start()
    await submitting
    await books.until_arrived(messages)
    await system.until_finished()
    assert str(books.account()) == f"accepted={messages} delivered={messages} lost=0 duplicated=0 altered=0"
    assert await system.value("SELECT count(*) FROM attempts") == messages


async def test_a_hanging_peer_does_not_delay_the_stop_and_loses_no_mail(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, shutdown={"timeout": "1s"})
    await books.submit(smtpd, numbered(3, box="hangdot"))
    await eventually(lambda: len(books.sink.received) == 3, "the sink has all three")
    asked = monotonic()
    assert await worker.stop() == 0
    assert 1 <= monotonic() - asked < 60, "the peer hangs for ever"
    assert "3 recipients" in {line["on"] for line in worker.said("daemon.waiting")}
    assert await system.value("SELECT count(*) FROM queue WHERE status = 'DELIVER'") == 3


async def test_smtpd_finishes_the_message_and_closes_idle_sessions(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port)
    idle, sending = await Client.open(smtpd.address), await Client.open(smtpd.address)
    [sample] = numbered(1)
    [data, recipient] = await sending.begin(sample)
    assert (data[:3], recipient[:3]) == ("354", "250")
    content = stuffed(sample.content)
    sending.write(content[:40])
    smtpd.signal(signal.SIGTERM)
    assert (await idle.reply())[:9] == "421 4.3.2"
    with pytest.raises(ConnectionError):
        await Client.open(smtpd.address)

    sending.write(content[40:] + b".\r\n")
    final = await sending.reply()
    assert final.startswith("250 2.0.0 Queued as ")
    books.ledger.accept(sample.sender, sample.recipients[0], sample.content)
    assert (await sending.reply())[:9] == "421 4.3.2"
    assert await smtpd.ended() == 0
    await books.until_arrived(1)
    await system.until_finished()
    assert books.account().clean
    for client in (idle, sending):
        await client.close()


async def test_smtpd_commits_received_messages_when_it_stops_under_load(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port)
    messages = 600
    submitting = asyncio.create_task(books.submit(smtpd, numbered(messages)))
    await eventually(lambda: books.accepted >= messages // 2, "half of it is accepted")
    assert await smtpd.stop() == 0
    await smtpd.start()
    await submitting
    await books.until_arrived(books.accepted)
    await system.until_finished()
    account = books.account()
    assert (account.lost, account.duplicated, account.altered) == (0, 0, 0)
    assert books.refusals() <= {"421"}
    # Every committed message was answered.
    assert books.ledger.early == {}
