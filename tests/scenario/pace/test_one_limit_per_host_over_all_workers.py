"""test_one_limit_per_host_over_all_workers — `concurrencyper: host`: the host never has more connections than the limit

Owns: the proof, by the sink's count of open connections, used or cached: with three workers, one of which is
    killed and restarted; and that a limit per worker does not limit the host and does not query PostgreSQL.
See: queued/pacing/pace_host.py; docs/explanation/pacing.md, "One limit for a host".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, LiteralString

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import Daemon, System

LIMIT, MESSAGES = 4, 200
WORKERS = ("one", "two", "three")
CLAIM = {"lease": "4s", "poll": "300ms", "batch": 20, "inflight": 20}
HELD: LiteralString = "SELECT sum(slots) FROM pace_shares WHERE worker LIKE %s AND expires > clock_timestamp()"


async def start(system: System, books: Books, name: str, per: str) -> Daemon:
    transport: dict[str, Any] = {
        "concurrency": LIMIT,
        "concurrencyper": per,
        "feedback": {"initial": LIMIT},
        "pooling": {"idle": "5s"},
    }
    return await system.worker(books.sink.port, name, claim=CLAIM, transport=transport)


async def test_the_limit_holds_while_a_worker_is_killed_and_restarted(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    started = await asyncio.gather(*(start(system, books, name, "host") for name in WORKERS))
    workers = {daemon.name: daemon for daemon in started}
    await books.submit(smtpd, numbered(MESSAGES, box="slow0.1"))
    await eventually(lambda: books.arrivals >= MESSAGES // 5, "a fifth has arrived")
    [(victim, held)] = await system.rows(
        "SELECT split_part(worker, '@', 1), slots FROM pace_shares WHERE slots > 0 ORDER BY slots DESC LIMIT 1"
    )
    await workers[victim].kill()
    assert await system.value(HELD, f"{victim}@%") > 0, "a dead worker's slots are unused until they lapse"
    assert await system.value(HELD, "%") <= LIMIT
    await eventually(lambda: books.sink.open_connections <= LIMIT - held, "the connections of the dead are gone")
    await system.rows("UPDATE pace_shares SET expires = now() WHERE worker LIKE %s", f"{victim}@%")  # 30 s pass
    await workers[victim].start()
    await eventually(lambda: len(books.ledger.arrived) == MESSAGES, "everything has arrived")
    await system.until_finished()
    assert books.sink.most_connections == LIMIT
    shares = await system.rows("SELECT DISTINCT split_part(worker, '@', 1) FROM attempts WHERE outcome = 'delivered'")
    assert len(shares) > 1, "one worker delivered everything, so this test proves little"


async def test_with_concurrencyper_worker_limits_are_per_worker_and_not_shared(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await asyncio.gather(*(start(system, books, name, "worker") for name in WORKERS))
    await books.submit(smtpd, numbered(MESSAGES, box="slow0.1"))
    await eventually(lambda: len(books.ledger.arrived) == MESSAGES, "everything has arrived")
    await system.until_finished()
    assert books.sink.most_connections > LIMIT
    assert await system.value("SELECT count(*) = 0 FROM pace_limits")
