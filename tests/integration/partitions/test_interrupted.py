"""test_interrupted — after a kill at any step, a wait or new mail, the same command finishes

Owns: the crash table of sql/README.md, "Repartitioning", and changes while rows are copied.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from operate.partitions import run as partitions_run
from operate.partitions.audit import read_faults
from operate.partitions.plan import LOCK_TIMEOUT
from shared.errors import PillarboxError
from tests.fixtures.database.partitions import (
    apply,
    assert_no_traces,
    bounds,
    configure,
    contents,
    leaves,
    pillarbox,
    planned,
    take,
)
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from operate.partitions.layout import Layout
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.servers.postgres import ServerUnderTest

# One splits the leaf 123 alone; the other takes 7 out of the default leaf and gives 4 to it.
SPLIT: Layout = {"123": frozenset("1"), "b": frozenset("23"), "456": frozenset("456")}
THROUGH_DEFAULT: Layout = {"123": frozenset("123"), "456": frozenset("56"), "late": frozenset("7")}
THROUGH_DEFAULT_LEAVES = {f"queue_def_{suffix}" for suffix in [*THROUGH_DEFAULT, "def"]}
COLUMNS = "(messages__id, recipientlocalpart, recipientdomain, metadata)"


@pytest.fixture
def mail(factory: Factory) -> dict[str | None, list[int]]:
    """Recipients by partition id, some of them leased."""
    made = {partid: factory.rows(30, partid=partid) for partid in ("1", "2", "3", "4", "7", "8", None)}
    for ids in made.values():
        factory.lease(ids[:10], ends=timedelta(minutes=5))
    return made


@pytest.mark.parametrize("wanted", [SPLIT, THROUGH_DEFAULT], ids=["split", "default"])
async def test_a_kill_after_any_step_leaves_the_queue_whole_and_the_same_command_finishes(
    factory: Factory, mail: dict[str | None, list[int]], wanted: Layout
) -> None:
    whole, original = contents(factory), bounds(factory)
    steps = await planned(factory.uri, wanted)
    assert len(steps) > 8
    for number in range(len(steps)):
        await take(factory.uri, steps[:number])
        assert contents(factory) == whole
        assert bounds(factory) == original
        factory.rows(2, partid="2")  # mail goes on
        factory.rows(2, partid="7")
        whole = contents(factory)
        left = steps[:number] and number < len(steps)
        async with partitions_run.connected(factory.uri) as connection:
            assert bool((await partitions_run.read_state(connection)).leftovers) == bool(left)
        # The first steps of the same command; the rest is proven below.
        if left:
            resumed = await planned(factory.uri, wanted)
            clearing = [step for step in resumed if "interrupted" in step.why or "back" in step.why]
            assert clearing == resumed[: len(clearing)]
            await take(factory.uri, clearing)
            assert_no_traces(factory)
    await take(factory.uri, steps[:-1])
    assert await apply(factory.uri, wanted) == 1
    assert contents(factory) == whole
    assert_no_traces(factory)
    assert await apply(factory.uri, wanted) == 0


async def test_changes_to_rows_during_the_copy_apply_to_the_copies(
    factory: Factory, mail: dict[str | None, list[int]]
) -> None:
    *before, switch = await planned(factory.uri, THROUGH_DEFAULT)
    first_copy = next(number for number, step in enumerate(before) if step.repeat)
    await take(factory.uri, before[: first_copy + 1])
    meddle(factory, mail)
    await take(factory.uri, before[first_copy + 1 :])
    meddle(factory, {partid: ids[15:] for partid, ids in mail.items()})
    whole = contents(factory)
    await take(factory.uri, [switch])
    assert contents(factory) == whole
    assert leaves(factory)["queue_def_late"] == {"7"}
    assert "4" in leaves(factory)["queue_def_def"]
    assert_no_traces(factory)


def meddle(factory: Factory, mail: dict[str | None, list[int]]) -> None:
    """Everything that daemons, operators and applications do to rows, through the root and past it."""
    for partid in ("4", "7", "8", None):
        ids = mail[partid]
        factory.lease(ids[1:3], ends=timedelta(minutes=1))
        factory.sql("UPDATE pillarbox.queue SET lease_until = lease_until + '1 min' WHERE id = %(i)s", i=ids[3])
        factory.sql("DELETE FROM pillarbox.queue WHERE id = ANY(%(i)s)", i=ids[4:6])
        factory.move(ids[6:8], "HOLD")
        factory.move(ids[7:8], "DELIVER")
        factory.move(ids[8:9], "BOUNCE")
        factory.rows(3, partid=partid)
    # Between leaves that are copied, and out of and into them.
    for one, other in (("4", "7"), ("7", "8"), ("8", "4"), ("1", "7"), ("4", "1")):
        factory.sql(
            "UPDATE pillarbox.queue SET metadata = jsonb_build_object('_partid', %(p)s::text) WHERE id = %(i)s",
            i=mail[one][9],
            p=other,
        )
    message = factory.message()
    with factory.another() as session:
        session.execute("SELECT set_config('search_path', 'pillarbox', false)")
        with session.cursor().copy(f"COPY pillarbox.queue {COLUMNS} FROM STDIN".encode()) as copy:
            for number in range(50):
                copy.write_row((message, f"c{number}", "example.com", f'{{"_partid": "{4 + number % 5}"}}'))
        session.execute("DELETE FROM pillarbox.queue_def_def WHERE recipientlocalpart = 'c3'")
        session.commit()


async def test_an_older_transaction_is_waited_for_without_blocking_others(
    factory: Factory, mail: dict[str | None, list[int]]
) -> None:
    with factory.another() as session:
        session.execute("DELETE FROM pillarbox.queue WHERE id = ANY(%s)", (mail["2"][10:12],))
        running = asyncio.create_task(apply(factory.uri, SPLIT))
        for _ in range(20):
            # A row that waits longer is an error: only the repartitioning can block it.
            factory.sql(f"SET lock_timeout = {2 * LOCK_TIMEOUT}")
            await asyncio.to_thread(factory.rows, 1, partid="2")
        assert not running.done()
        factory.sql("RESET lock_timeout")
        session.commit()
    whole = contents(factory)
    assert await running == 1
    assert contents(factory) == whole
    assert_no_traces(factory)


async def test_unavailable_locks_are_given_up_and_their_holder_named(
    factory: Factory, mail: dict[str | None, list[int]]
) -> None:
    whole, original = contents(factory), bounds(factory)
    with factory.another("nightly report") as session:
        session.execute("LOCK TABLE ONLY pillarbox.queue_def_123 IN ROW EXCLUSIVE MODE")
        with pytest.raises(PillarboxError, match=r"within 0 s: locks are held by pid \d+ \(nightly report, idle in"):
            await apply(factory.uri, SPLIT, patience=0.3)
    assert (contents(factory), bounds(factory)) == (whole, original)
    assert_no_traces(factory)
    assert await apply(factory.uri, SPLIT) == 1
    assert_no_traces(factory)


async def test_a_kill_while_the_switch_waits_makes_all_of_it_or_nothing(
    server: ServerUnderTest, factory: Factory, mail: dict[str | None, list[int]], tmp_path: Path
) -> None:
    whole, original = contents(factory), bounds(factory)
    configure(tmp_path, factory.uri, {name: sorted(ids) for name, ids in THROUGH_DEFAULT.items()})
    with factory.another() as session:
        session.execute("LOCK TABLE ONLY pillarbox.queue_def IN ROW EXCLUSIVE MODE")
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scripts.cli", "partitions", "apply", "--yes", "--config", str(tmp_path)),
            stdout=asyncio.subprocess.DEVNULL,
        )
        await eventually(lambda: factory.waiting("pillarbox partitions"), "the switch waits for its lock")
        running.kill()
        await running.wait()
    # PostgreSQL has the whole switch in one message. Over TCP it may get its lock before it learns that the command is
    # dead; over a Unix socket it learns that first.
    if server.kind == "container" and set(bounds(factory)) == THROUGH_DEFAULT_LEAVES:
        assert contents(factory) == whole
    else:
        assert (contents(factory), bounds(factory)) == (whole, original)
    assert await asyncio.to_thread(pillarbox, tmp_path, "apply", "--yes") == 0
    assert contents(factory) == whole
    assert set(bounds(factory)) == THROUGH_DEFAULT_LEAVES
    assert_no_traces(factory)


async def test_ctrl_c_removes_the_temporary_schema(factory: Factory, mail: dict[str | None, list[int]]) -> None:
    with factory.another() as session:
        session.execute("LOCK TABLE ONLY pillarbox.queue_def IN ROW EXCLUSIVE MODE")
        running = asyncio.create_task(apply(factory.uri, SPLIT))
        await eventually(lambda: factory.waiting("pillarbox partitions"), "the switch waits for its lock")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert_no_traces(factory)
    assert set(bounds(factory)) == {f"queue_def_{suffix}" for suffix in [*LEAVES, "def"]}


@pytest.mark.parametrize("ids", [3, 150])
@pytest.mark.parametrize("through_default", [False, True])
async def test_no_row_is_read_under_the_exclusive_lock(factory: Factory, ids: int, *, through_default: bool) -> None:
    """Else the lock would last the longer the more mail waits: PostgreSQL proves each bound from its CHECK."""
    many = [f"x{number}" for number in range(ids)]
    await apply(factory.uri, {"many": frozenset(many), "b": frozenset({"b1", "b2"})})
    factory.rows(5, partid="x1")
    factory.rows(5, partid="c")
    wanted = {"half": frozenset(many[::2]), "rest": frozenset(many[1::2]), "b": frozenset({"b1", "b2"})}
    *before, switch = await planned(factory.uri, wanted | ({"c": frozenset("c")} if through_default else {}))
    await take(factory.uri, before)
    said: list[str] = []
    async with partitions_run.connected(factory.uri) as connection:
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        await connection.execute("SET client_min_messages = debug1")
        await partitions_run.take(connection, [switch], lambda _: None)
        await connection.execute("RESET client_min_messages")
        assert await read_faults(connection) == []
    assert [text for text in said if text.startswith(("verifying table", "building index", "rewriting table"))] == []
    assert len([text for text in said if "implied by existing constraints" in text]) >= 2
    assert_no_traces(factory)


async def test_submitters_can_submit_while_changes_are_recorded(
    factory: Factory, mail: dict[str | None, list[int]], administrator: str
) -> None:
    *before, switch = await planned(factory.uri, SPLIT)
    await take(factory.uri, before)
    message = factory.message()
    with psycopg.connect(administrator) as session:
        session.execute("SET ROLE pillarbox_smtpd")
        session.execute(
            """INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, metadata)
               VALUES (%s, 'r', 'example.com', '{"_partid": "2"}')""",
            (message,),
        )
    whole = contents(factory)
    await take(factory.uri, [switch])
    assert contents(factory) == whole
    assert factory.bodies()[message].refcount == 1
