"""test_webhooks_survive_their_worker — kill -9 of the worker that brings events loses none, and invents none

Owns: the row W2 of the crash table of webhooks, with real daemons and mail that flows.
See: sql/README.md, "Webhooks".
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.queue.hooked import SECRET
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System
    from tests.fixtures.peers.web.hooks import Hooks

MESSAGES = 60


async def test_the_next_worker_brings_the_rest(
    system: System, books: Books, hooks: Callable[[], Awaitable[Hooks]], tmp_path: Path
) -> None:
    taker = await hooks()
    (tmp_path / "secret").write_text(SECRET)
    endpoint = {
        "id": "app",
        "url": taker.url,
        "events": ["accepted", "delivered"],
        "secrets": [f"file:{tmp_path}/secret"],
        "private": True,
        "batch": 5,
    }
    webhooks = {"endpoints": [endpoint]}
    smtpd = await system.smtpd()
    system.environment = {"PILLARBOX_FAIL": "webhook.taken:kill:4"}
    # What it has claimed when it dies is due again after its lease.
    first = await system.worker(books.sink.port, "first", claim={"lease": "6s"}, webhooks=webhooks)
    await system.until("SELECT count(*) = 1 FROM webhooks")
    submitting = asyncio.create_task(books.submit(smtpd, numbered(MESSAGES)))
    await first.ended()
    system.environment = {}
    await system.rows("UPDATE locks SET until = now() WHERE name = 'webhooks' RETURNING 1")  # its lease is over
    await system.worker(books.sink.port, "second", webhooks=webhooks)
    await submitting
    await books.until_arrived(MESSAGES)
    await system.until_finished()

    def events() -> set[tuple[int, str]]:
        return {(event["data"]["id"], event["type"]) for event in taker.taken}

    await eventually(lambda: len(events()) >= 2 * MESSAGES, "every event came")
    finished = {row[0] for row in await system.rows("SELECT id FROM archive")}
    assert events() == {(row, kind) for row in finished for kind in ("accepted", "delivered")}
    assert len({event["id"] for event in taker.taken}) == 2 * MESSAGES  # one id for each, however often it came
    for row in finished:
        kinds = [event["type"] for event in taker.taken if event["data"]["id"] == row]
        assert kinds.index("accepted") < kinds.index("delivered")
    assert max(Counter(event["id"] for event in taker.taken).values()) == 2
