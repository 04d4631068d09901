"""test_queue_interrupted — a command that is killed within a batch, or runs beside another, does nothing twice

Owns: rows A1 to A3 of sql/README.md, "Acting on the queue": the instant is known because a lock of the test's holds the
    command there. Nothing here waits for time.
See: tests/scenario/operation/test_operators_beside_mail.py for the same while mail flows.
"""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.database.operating import ROOT, killed, printed_by
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.operating import Pillarbox

HELD = 3000  # three batches
LOCK = b"SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE"


def by_status(factory: Factory) -> dict[str, int]:
    return {row.status: row.n for row in factory.sql("SELECT status, count(*) AS n FROM pillarbox.queue GROUP BY 1")}


def audit(factory: Factory) -> list[tuple[str, int, int, int, bool]]:
    return [
        (row.verb, row.wanted, row.done, row.skipped, row.finished is not None)
        for row in factory.sql("SELECT * FROM pillarbox.audit ORDER BY id")
    ]


async def until_it_waits(factory: Factory, *processes: Process) -> None:
    """Until each of these commands waits for a lock."""
    await eventually(
        lambda: len(factory.waiting("pillarbox queue")) == len(processes),
        "the commands wait for the lock",
        limit=60,
    )
    assert all(process.returncode is None for process in processes)


@pytest.mark.parametrize("verb", ["release", "delete", "bounce"])
async def test_killed_within_a_batch_the_same_command_does_the_rest(
    factory: Factory, pillarbox: Pillarbox, verb: str
) -> None:
    ids = factory.rows(HELD, status="HOLD")
    left = {"release": "DELIVER", "delete": "DELETE", "bounce": "BOUNCE"}[verb]
    with factory.another() as other:
        other.execute(LOCK, (ids[1500],))
        process = await pillarbox.start(verb, "state=HOLD", "--yes")
        await until_it_waits(factory, process)
        await killed(process)
    await eventually(lambda: not factory.waiting("pillarbox queue"), "its backend is gone")
    assert by_status(factory) == {left: 1000, "HOLD": 2000}
    assert audit(factory) == [(verb, HELD, 1000, 0, False)]
    assert factory.one("SELECT count(*) FROM pillarbox.audit_rows") == 1000

    rest = await pillarbox.done(verb, "state=HOLD", "--yes")
    assert (rest["wanted"], rest["done"], rest["skipped"], rest["gone"]) == (2000, 2000, 0, 0)
    assert by_status(factory) == {left: HELD}
    assert factory.one("SELECT count(DISTINCT queue__id) FROM pillarbox.audit_rows") == HELD
    assert all(body.refcount == body.counted == HELD for body in factory.bodies().values())


async def test_repeating_a_killed_copy_makes_no_duplicates(factory: Factory, pillarbox: Pillarbox) -> None:
    words = ("release", "state=HOLD", "--copy", "--to", "audit@copies.example", "--yes")
    ids = factory.rows(HELD, status="HOLD")
    for stop, copied in ((1500, 1000), (2500, 2000)):
        with factory.another() as other:
            other.execute(LOCK, (ids[stop],))
            process = await pillarbox.start(*words)
            await until_it_waits(factory, process)
            await killed(process)
        await eventually(lambda: not factory.waiting("pillarbox queue"), "its backend is gone")
        assert by_status(factory)["DELIVER"] == copied
    rest = await pillarbox.done(*words)
    assert (rest["done"], rest["skipped"], rest["gone"]) == (1000, 2000, 0)
    copies = factory.sql("SELECT metadata->>'_copyof' AS of FROM pillarbox.queue WHERE status = 'DELIVER'")
    assert sorted(int(copy.of) for copy in copies) == ids
    # Once it has come to its end, the same words mean copies of everything again.
    assert (await pillarbox.done(*words))["done"] == HELD


async def test_two_operators_at_the_same_rows_change_each_once(factory: Factory, pillarbox: Pillarbox) -> None:
    ids = factory.rows(HELD, status="HOLD")
    with factory.another() as other:
        other.execute(LOCK, (ids[0],))
        both = [await pillarbox.start(verb, "state=HOLD", "--yes") for verb in ("release", "delete")]
        await until_it_waits(factory, *both)
    release, delete = await asyncio.gather(*map(printed_by, both))
    assert release["done"] + delete["done"] == HELD
    for each in (release, delete):
        assert each["done"] + each["skipped"] + each["gone"] == each["wanted"] == HELD
    found = by_status(factory)
    assert (found.get("DELIVER", 0), found.get("DELETE", 0)) == (release["done"], delete["done"])
    assert factory.one("SELECT count(DISTINCT queue__id) FROM pillarbox.audit_rows") == HELD
    assert factory.one("SELECT sum(done) FROM pillarbox.audit") == HELD
    assert all(body.refcount == body.counted for body in factory.bodies().values())


async def test_the_same_copying_command_twice_at_once_copies_each_once(factory: Factory, pillarbox: Pillarbox) -> None:
    ids = factory.rows(HELD, status="HOLD")
    with factory.another() as other:
        other.execute(LOCK, (ids[0],))
        both = [await pillarbox.start("release", "state=HOLD", "--copy", "--yes") for _ in range(2)]
        await until_it_waits(factory, *both)
    first, second = await asyncio.gather(*map(printed_by, both))
    assert first["done"] + second["done"] == by_status(factory)["DELIVER"] == HELD


async def test_a_killed_undo_continues_where_it_stopped(factory: Factory, pillarbox: Pillarbox) -> None:
    ids = factory.rows(HELD, tries=1)
    done = await pillarbox.done("hold", "--all", "--quarantine", "q", "--reason", "odd", "--yes")
    with factory.another() as other:
        other.execute(LOCK, (ids[1500],))
        process = await pillarbox.start("undo", str(done["audit"]), "--yes")
        await until_it_waits(factory, process)
        await killed(process)
    await eventually(lambda: not factory.waiting("pillarbox queue"), "its backend is gone")
    assert by_status(factory) == {"DELIVER": 1000, "HOLD": 2000}
    told_again = await pillarbox.done("undo", str(done["audit"]), "--yes")
    assert (told_again["done"], told_again["gone"]) == (2000, 1000)
    assert by_status(factory) == {"DELIVER": HELD}
    assert {key for row in factory.queue() for key in row.metadata} == {"_partid"}


async def test_rows_finished_by_a_worker_meanwhile_are_not_counted(factory: Factory, pillarbox: Pillarbox) -> None:
    ids = factory.rows(10)
    with factory.another() as other:
        other.execute(b"DELETE FROM pillarbox.queue WHERE id = ANY (%s)", (ids[2:5],))
        process = await pillarbox.start("hold", "state=ACTIVE", "--yes")
        await until_it_waits(factory, process)
        other.commit()
        result = await printed_by(process)
    assert (result["wanted"], result["done"], result["skipped"], result["gone"]) == (10, 7, 0, 3)
    assert by_status(factory) == {"HOLD": 7}


@pytest.mark.parametrize("verb", ["release", "delete"])
async def test_ctrl_c_says_what_was_done_and_how_to_go_on(factory: Factory, pillarbox: Pillarbox, verb: str) -> None:
    ids = factory.rows(HELD, status="HOLD")
    with factory.another() as other:
        other.execute(LOCK, (ids[1500],))
        process = await pillarbox.start(verb, "state=HOLD", "--yes")
        await until_it_waits(factory, process)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            said, refused = await process.communicate()
    assert (process.returncode, said) == (130, b"")
    assert refused.decode() == (
        f"pillarbox: interrupted: {verb}d 1000 of 3000 recipients; audit 1 has the exact number; "
        "`pillarbox queue undo 1` changes them back, the same command does the rest\n"
    )
    assert audit(factory) == [(verb, HELD, 1000, 0, False)]
    assert (await pillarbox.done("undo", "1", "--yes"))["done"] == 1000
    assert by_status(factory)["HOLD"] == HELD


@pytest.mark.parametrize(("answer", "done"), [(b"y\n", True), (b"n\n", False), (b"Ctrl-C", False)])
async def test_at_a_terminal_it_asks(factory: Factory, pillarbox: Pillarbox, answer: bytes, *, done: bool) -> None:
    factory.rows(2, status="HOLD")
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.cli", "queue", "release", "--all", "--config", str(pillarbox.config)),
        stdin=theirs,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        asked = await process.stdout.readuntil(b"do this? [y/N] ")
        assert b"r1@example.com" in asked
        if answer == b"Ctrl-C":
            process.send_signal(signal.SIGINT)
        else:
            os.write(ours, answer)
        said, refused = await process.communicate()
    os.close(ours)
    os.close(theirs)
    if done:
        assert (process.returncode, said) == (0, b"released 2 of 2 recipients; audit 1\n")
    else:
        assert process.returncode == (130 if answer == b"Ctrl-C" else 1)
        assert refused.lstrip() == b"pillarbox: release: nothing was changed\n"
    assert by_status(factory) == {"DELIVER" if done else "HOLD": 2}
