"""test_server_killed — kill -9 of PostgreSQL at any step of a repartitioning: the same command finishes

Owns: R5 of the crash table in sql/README.md, "Repartitioning"; mail flowing: test_repartition_server_killed.py.
See: test_interrupted.py for clients that are killed.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from queued.claiming.claim import Claimer
from shared.config.queued.settings import Claim
from shared.errors import PillarboxError
from shared.postgres import database
from shared.postgres.migrate import migrate
from tests.fixtures.database.factory import Factory
from tests.fixtures.database.partitions import assert_no_traces, bounds, configure, contents, leaves, pillarbox
from tests.fixtures.servers.killable import POINTS, Ambush, Killable, killable, small_steps
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from operate.partitions.layout import Layout

# 7 leaves the default leaf, 4 goes there: every leaf but one is copied.
WANTED: Layout = {"123": frozenset("123"), "456": frozenset("56"), "late": frozenset("7")}


@pytest.fixture(scope="module")
def own() -> Iterator[Killable]:
    """One server for all points: it survives each."""
    with killable() as server:
        migrate(server.uri, LEAVES)
        yield server


def fill(factory: Factory) -> None:
    """Mail in every state, in every partition."""
    for partid in ("1", "4", "5", "7", "8", None):
        ids = factory.rows(25, partid=partid)
        factory.lease(ids[:5], ends=timedelta(minutes=5))
        factory.move(ids[5:8], "HOLD")
        factory.move(ids[8:9], "BOUNCE")
        factory.rows(5, partid=partid, due=timedelta(hours=1), tries=3)


@pytest.mark.parametrize("point", POINTS)
async def test_no_row_is_lost_or_duplicated_and_the_same_command_finishes(
    own: Killable, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path, own.uri, LEAVES)
    assert await asyncio.to_thread(pillarbox, tmp_path, "apply", "--yes") == 0
    with own.session() as session:
        factory = Factory(own.uri, session)
        fill(factory)
        whole, before = contents(factory), bounds(factory)
    with monkeypatch.context() as patched:
        small_steps(patched, 10)
        raised = await Ambush(own, POINTS[point]).run(WANTED)
    assert isinstance(raised, PillarboxError)
    assert "\n" not in str(raised)

    await asyncio.to_thread(own.start)
    with own.session() as session:
        factory = Factory(own.uri, session)
        assert (contents(factory), bounds(factory)) == (whole, before)
        # Mail continues before the command is repeated.
        await work(factory)
        whole = contents(factory)
        configure(tmp_path, own.uri, {name: sorted(ids) for name, ids in WANTED.items()})
        assert await asyncio.to_thread(pillarbox, tmp_path, "apply", "--yes") == 0
        assert contents(factory) == whole
        assert leaves(factory)["queue_def_late"] == {"7"}
        assert {"4", "8", ""} <= leaves(factory)["queue_def_def"]
        assert_no_traces(factory)
        capsys.readouterr()
        assert await asyncio.to_thread(pillarbox, tmp_path, "show", "--json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["faults"], shown["interrupted"], shown["as_configured"]) == ([], False, True)
        await work(factory)


async def work(factory: Factory) -> None:
    """Rows come and are claimed in every leaf, and some go."""
    fresh = {id_ for partid in ("4", "7") for id_ in factory.rows(3, partid=partid)}
    connection = await database.connect(factory.uri, "claimer")
    try:
        taken = await Claimer("true", "worker", Claim()).take(connection, 10_000)
    finally:
        await connection.close()
    assert fresh <= {c.id for c in taken}
    assert len({c.id for c in taken}) == len(taken)
    factory.sql("DELETE FROM pillarbox.queue WHERE id = ANY(%(ids)s)", ids=[c.id for c in taken][::7])


async def test_a_committed_switch_survives_the_kill(own: Killable, tmp_path: Path) -> None:
    """Its rows were written into tables not yet visible; they must be as durable as others."""
    configure(tmp_path, own.uri, LEAVES)
    assert await asyncio.to_thread(pillarbox, tmp_path, "apply", "--yes") == 0
    with own.session() as session:
        factory = Factory(own.uri, session)
        fill(factory)
        whole = contents(factory)
        configure(tmp_path, own.uri, {name: sorted(ids) for name, ids in WANTED.items()})
        assert await asyncio.to_thread(pillarbox, tmp_path, "apply", "--yes") == 0
        own.kill()
    await asyncio.to_thread(own.start)
    with own.session() as session:
        factory = Factory(own.uri, session)
        assert contents(factory) == whole
        assert set(bounds(factory)) == {"queue_def_123", "queue_def_456", "queue_def_late", "queue_def_def"}
        assert_no_traces(factory)
