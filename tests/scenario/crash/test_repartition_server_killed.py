"""test_repartition_server_killed — PostgreSQL dies at five steps of a repartitioning under load: no mail is lost

Owns: R5 of the crash table in sql/README.md, "Repartitioning", with real daemons, which are never restarted.
See: tests/integration/partitions/test_server_killed.py for every step, row by row.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shared.errors import PillarboxError
from shared.postgres.migrate import migrate
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.daemons.system import System
from tests.fixtures.database.factory import Factory
from tests.fixtures.database.partitions import assert_no_traces, bounds, configure, pillarbox
from tests.fixtures.servers.killable import POINTS, Ambush, Killable, killable, small_steps
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripts.demo.sample_mail import Sample
    from tests.fixtures.daemons.submit import Books

SESSIONS = 3
BETWEEN = 60  # messages that must arrive between two kills, and between a start and the repartitioning after it
WAITING = 700  # recipients that are not due, so that there is something to copy
# Partition 4 moves to the default leaf and back.
LAYOUTS = ({"123": ["1", "2", "3"], "56": ["5", "6"]}, LEAVES)
ORDER = ("plan", "copy", "catch-up", "switch", "drop")


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
async def test_no_mail_is_lost_at_any_step(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with killable() as server:
        migrate(server.uri, LEAVES)
        system = System(server.uri, tmp_path)
        try:
            await kill_at_each_step(system, books, server, tmp_path, monkeypatch, capsys)
        finally:
            await system.close()
        assert system.faults() == []


async def kill_at_each_step(
    system: System,
    books: Books,
    server: Killable,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with server.session() as session:
        factory = Factory(server.uri, session)
        message = factory.message()
        for partid in ("1", "2", "3", "4", "5", "6", None):
            factory.rows(WAITING // 7, message=message, partid=partid, due=timedelta(days=1))
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, claim={"inflight": 200})
    pids = (smtpd.pid, worker.pid)
    tap = Tap()
    submitting = asyncio.create_task(books.submit(smtpd, tap, SESSIONS))
    for number, point in enumerate(ORDER):
        named = LAYOUTS[number % 2]
        await books.until_arrived(books.arrivals + BETWEEN)
        with monkeypatch.context() as patched:
            small_steps(patched, 100)
            raised = await Ambush(server, POINTS[point]).run({name: frozenset(ids) for name, ids in named.items()})
        # Backends outlive their postmaster by a moment: the blocking one may end first and let the step finish.
        assert raised is None or isinstance(raised, PillarboxError), point
        await asyncio.to_thread(server.start)
        await books.until_arrived(books.arrivals + BETWEEN)
        configure(folder, server.uri, named)
        assert await asyncio.to_thread(pillarbox, folder, "apply", "--yes") == 0
        capsys.readouterr()
        assert await asyncio.to_thread(pillarbox, folder, "show", "--json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["faults"], shown["interrupted"], shown["as_configured"]) == ([], False, True), point
    await books.until_arrived(books.arrivals + BETWEEN)
    tap.open = False
    await submitting
    await system.until("SELECT count(*) = %s FROM queue", WAITING)
    await books.until_arrived(books.accepted)

    assert (smtpd.pid, worker.pid) == pids
    assert books.refusals() <= {"451"}
    account = books.account()
    assert (account.lost, account.altered) == (0, 0)
    # Delivered, but the result was lost with the server: such mail is sent again when its lease expires.
    assert account.duplicated <= await system.value("SELECT count(*) FROM attempts WHERE outcome = 'lease_expired'")
    with server.session() as session:
        factory = Factory(server.uri, session)
        assert_no_traces(factory)
        assert set(bounds(factory)) == {"queue_def_123", "queue_def_56", "queue_def_def"}
        assert len({row.id for row in factory.queue()}) == WAITING
        assert factory.bodies()[message].refcount == WAITING
