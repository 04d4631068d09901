"""test_predecessors — a worker that is started again takes what its killed predecessor had claimed, at once

Owns: proofs about queued.claiming.predecessors and the part {ended} of claim.sql.
See: tests/scenario/crash/test_worker_killed_mid_run.py for whole workers; sql/README.md, "Crash table", 7.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from queued.claiming.claim import Claimer
from queued.claiming.predecessors import succeeding
from shared.config.queued.settings import Claim
from shared.postgres import database as db
from shared.postgres.presence import Identity

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

AN_HOUR = timedelta(hours=1)
# Enters as a worker, says so, and waits to be killed.
_WORKER = """
import sys, pathlib, signal
from queued.claiming.predecessors import succeeding
from shared.postgres.presence import Identity
with succeeding(pathlib.Path(sys.argv[1]), Identity("w", "host", 7, sys.argv[2])) as ended:
    print(*ended, "entered", flush=True)
    signal.pause()
"""


def me(mark: str = "me") -> Identity:
    return Identity("w", "host", 8, mark)


def entered(var: Path, mark: str) -> subprocess.Popen[str]:
    """A process that is this worker."""
    made = subprocess.Popen([sys.executable, "-c", _WORKER, str(var), mark], stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    assert made.stdout.readline().endswith("entered\n")
    return made


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_only_processes_that_ended_are_named(tmp_path: Path, heard: Heard) -> None:
    first = entered(tmp_path, "first")
    os.kill(first.pid, signal.SIGSTOP)
    with succeeding(tmp_path, me()) as ended:
        assert ended == [], "a process that is suspended counts as ended"
    assert heard.all("claim.no_successor")
    killed(first)
    second = entered(tmp_path, "second")
    with succeeding(tmp_path, me()) as ended:
        assert ended == [], "a process that runs counts as ended"
    killed(second)
    with succeeding(tmp_path, me()) as ended:
        assert ended == ["w@host:7-first", "w@host:7-second"]
    with succeeding(tmp_path, me("next")) as ended:
        assert ended == ["w@host:7-first", "w@host:7-second", "w@host:8-me"]


def test_another_worker_and_another_host_have_their_own(tmp_path: Path) -> None:
    with succeeding(tmp_path, me()):
        pass
    for other in (Identity("v", "host", 8, "x"), Identity("w", "elsewhere", 8, "x")):
        with succeeding(tmp_path, other) as ended:
            assert ended == []


def test_of_many_the_last_are_named(tmp_path: Path) -> None:
    for number in range(20):
        with succeeding(tmp_path, me(f"{number}")) as ended:
            assert ended == [f"w@host:8-{each}" for each in range(max(0, number - 8), number)]


def test_what_is_no_name_of_this_worker_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "w@host").write_bytes(b"\xff\x00\nother@host:1-x\n\nw@host:0-\x00\nw@host:1-x\nw@hos")
    with succeeding(tmp_path, me()) as ended:
        assert ended == ["w@host:1-x"]


@pytest.mark.parametrize("how", ["a file in place of the folder", "a folder in place of the file", "a link"])
def test_where_no_file_can_be_kept_the_worker_runs_all_the_same(tmp_path: Path, heard: Heard, how: str) -> None:
    folder = tmp_path / "workers"
    if how.startswith("a file"):
        folder.write_text("")
    else:
        folder.mkdir()
        if how == "a link":
            (folder / "w@host").symlink_to("/dev/full")
        else:
            (folder / "w@host").mkdir()
    with succeeding(tmp_path, me()) as ended:
        assert ended == []
    assert heard.all("claim.no_successor")


async def test_its_claims_are_taken_as_lost_ones(factory: Factory) -> None:
    mine, others = factory.rows(2), factory.rows(2)
    factory.lease(mine, ends=AN_HOUR, worker="w@host:7-'gone\\%s")
    factory.lease(others, ends=AN_HOUR, worker="w@host:9-alive")
    claimer = Claimer("true", "w@host:8-me", Claim.model_validate({"poll": "1ms"}), ["w@host:7-'gone\\%s"])
    async with await db.connect(factory.uri, "claimer") as connection:
        assert [c.id for c in await claimer.take(connection, 1)] == mine[:1]
        assert [c.id for c in await claimer.take(connection, 9)] == mine[1:], "one of them was forgotten"
        assert await claimer.take(connection, 9) == []
    assert [(row.retry_count, row.lost_count) for row in factory.queue(*mine)] == [(2, 1)] * 2
    assert [(row.queue__id, row.outcome, row.uncertain) for row in factory.attempts()] == [
        (id_, "lease_expired", True) for id_ in mine
    ]


async def test_what_was_lost_before_waits_for_its_lease(factory: Factory) -> None:
    """Else a message that kills its worker would do so as fast as the worker can be started."""
    ids = factory.rows(2)
    factory.lease(ids, ends=AN_HOUR, worker="w@host:7-gone")
    factory.sql("UPDATE pillarbox.queue SET lost_count = 1 WHERE id = %(id)s", id=ids[0])
    async with await db.connect(factory.uri, "claimer") as connection:
        claimer = Claimer("true", "w@host:8-me", Claim.model_validate({"poll": "1ms"}), ["w@host:7-gone"])
        assert [c.id for c in await claimer.take(connection, 9)] == ids[1:]


async def test_mail_on_hold_stays_there(factory: Factory) -> None:
    ids = factory.rows(1)
    factory.lease(ids, ends=AN_HOUR, worker="w@host:7-gone")
    factory.move(ids, "HOLD")
    async with await db.connect(factory.uri, "claimer") as connection:
        assert await Claimer("true", "w@host:8-me", Claim(), ["w@host:7-gone"]).take(connection, 9) == []
