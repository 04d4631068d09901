"""test_operators_beside_mail — held mail is listed, grouped, half released and half deleted while other mail flows

Owns: the guarantees of `pillarbox queue` on a long queue: time bounds, exact counts in audit, archive and sink; a
    command killed midway; two commands and a worker at the same time. PILLARBOX_TEST_HELD is the number of
    held recipients: `make test-operators` uses 100000.
See: docs/explanation/operating-at-size.md; sql/README.md, "Acting on the queue".
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures.daemons.submit import DOMAINS, Tap
from tests.fixtures.database.operating import Pillarbox, killed, printed_by, write_config
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

HELD = int(os.environ.get("PILLARBOX_TEST_HELD", "5000"))
HALF = HELD // 2
BOUND = 60 + HELD / 1000  # seconds for each command, its start and a busy machine included
SESSIONS = 2

# Every second one is in quarantine keep, the others in drop; domains as in tests/fixtures/daemons/submit.py.
_BODIES = r"""
INSERT INTO messages (id, size, content)
SELECT md5(n::text)::uuid, length(content), content
  FROM (SELECT n, convert_to(format(E'Subject: held %%s\r\n\r\nThis is number %%s.\r\n', n, n), 'UTF8') AS content
          FROM generate_series(1, %s) AS n) AS made
"""
_ROWS = """
INSERT INTO queue (messages__id, status, senderlocalpart, senderdomain, recipientlocalpart, recipientdomain, size,
                   metadata)
SELECT md5(n::text)::uuid, 'HOLD', 'h-' || n, 'origin.example', 'r', (%s::text[])[1 + n %% %s], 60,
       jsonb_build_object('_partid', (1 + n %% 6)::text,
                          '_quarantineid', CASE n %% 2 WHEN 0 THEN 'keep' ELSE 'drop' END)
  FROM generate_series(1, %s) AS n
"""


class Timed:
    """Runs commands and records the time of each."""

    def __init__(self, pillarbox: Pillarbox) -> None:
        self.pillarbox = pillarbox
        self.took: dict[str, float] = {}

    async def done(self, name: str, *words: str) -> Any:
        """Run a command to its end; its JSON output."""
        began = monotonic()
        found = await self.pillarbox.done(*words)
        self.took[name] = monotonic() - began
        return found

    async def listed(self, verb: str, *words: str) -> list[Any]:
        """List everything that matches; a line of JSON for each."""
        began = monotonic()
        process = await self.pillarbox.start(verb, *words)
        said, refused = await process.communicate()
        assert process.returncode == 0, refused.decode()
        self.took[verb] = monotonic() - began
        return [json.loads(line) for line in said.splitlines()]


@pytest.mark.slow
async def test_releasing_half_and_deleting_half_beside_mail_has_exact_counts(
    system: System, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await hold(system, books)
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port)
    timed = Timed(Pillarbox(write_config(tmp_path / "config", system.uri), capsys, "queue"))
    tap = Tap()
    submitting = asyncio.create_task(books.submit(smtpd, tap, SESSIONS))
    await books.until_arrived(50)

    assert len(await timed.listed("list", "state=HOLD", "--limit", str(HELD))) == HELD
    groups = await timed.listed("group", "quarantine", "state=HOLD")
    assert {(group["value"]["quarantine"], group["recipients"]) for group in groups} == {("keep", HALF), ("drop", HALF)}

    await release_and_be_killed(system, timed)
    first = await system.value("SELECT done FROM audit")
    assert 0 < first < HALF
    rest, deleted = await asyncio.gather(
        timed.done("release", "release", "state=HOLD", "quarantine=keep", "--yes"),
        timed.done("delete", "delete", "state=HOLD", "quarantine=drop", "--yes"),
    )
    assert (rest["done"], rest["skipped"], rest["gone"]) == (HALF - first, 0, 0)
    assert (deleted["done"], deleted["skipped"], deleted["gone"]) == (HALF, 0, 0)

    began = monotonic()
    await books.until_arrived(books.arrivals + 20)  # mail flows meanwhile
    tap.open = False
    await submitting
    await system.until_finished(limit=60 + HELD / 50)
    timed.took["delivered"] = monotonic() - began
    await eventually(lambda: books.arrivals >= books.accepted, "everything accepted has arrived")
    assert str(books.account()) == f"accepted={books.accepted} delivered={books.accepted} lost=0 duplicated=0 altered=0"
    assert books.ledger.early == {}, "nothing that was deleted has arrived"
    assert books.refusals() == set()
    await the_books_of_the_database_agree(system, books)
    for event in ("claim.lost", "claim.expired", "claim.failed", "result.unrecorded"):
        assert worker.said(event) == [], event
    # On a busy machine a call that takes too long is ended, and the next one is smaller.
    failed = [said for said in worker.said("maintain.failed") if "statement timeout" not in said["error"]]
    assert failed == []
    for name in ("list", "group", "release", "delete"):
        assert timed.took[name] < BOUND, timed.took
    figures = " ".join(f"{name}_s={seconds:.1f}" for name, seconds in timed.took.items())
    sys.stdout.write(f"held={HELD} {figures} flowed={books.accepted - HALF}\n")


async def hold(system: System, books: Books) -> None:
    """Hold mail as a policy would; mail to be released counts as accepted."""
    await system.rows(_BODIES, HELD)
    await system.rows(_ROWS, list(DOMAINS), len(DOMAINS), HELD)
    await system.rows("ANALYZE queue")
    for n in range(2, HELD + 1, 2):
        content = f"Subject: held {n}\r\n\r\nThis is number {n}.\r\n".encode()
        books.ledger.accept(f"h-{n}@origin.example", f"r@{DOMAINS[n % len(DOMAINS)]}", content)


async def release_and_be_killed(system: System, timed: Timed) -> None:
    """Release one quarantine, and kill the command within a batch midway, where our lock blocks it."""
    with psycopg.connect(system.uri) as other:
        other.execute(
            """SELECT FROM pillarbox.queue
                WHERE status = 'HOLD' AND id = (SELECT id FROM pillarbox.queue WHERE metadata->>'_quarantineid' = 'keep'
                                                 ORDER BY id OFFSET %s LIMIT 1) FOR UPDATE""",
            (HALF * 2 // 3,),
        )
        process = await timed.pillarbox.start("release", "state=HOLD", "quarantine=keep", "--yes")
        await system.until(
            """SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()
                  AND application_name = 'pillarbox queue' AND %s = ANY (pg_blocking_pids(pid))""",
            other.info.backend_pid,
            limit=BOUND,
        )
        await killed(process)
        other.rollback()


async def the_books_of_the_database_agree(system: System, books: Books) -> None:
    """Audit, archive and bodies have each recipient once."""
    counted = dict(await system.rows("SELECT verb, sum(done)::bigint FROM audit GROUP BY 1"))
    assert counted == {"release": HALF, "delete": HALF}
    assert await system.value("SELECT count(*) = count(DISTINCT queue__id) FROM audit_rows")
    assert await system.value("SELECT count(*) FROM audit_rows") == HELD
    results = dict(await system.rows("SELECT result, count(*) FROM archive GROUP BY 1"))
    assert results == {"deleted": HALF, "success": books.accepted}
    assert await system.value("SELECT count(*) FROM refcounts") == 0


async def test_undoing_a_command_beside_a_worker_loses_and_duplicates_no_mail(
    system: System, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port)
    pillarbox = Pillarbox(write_config(tmp_path / "config", system.uri), capsys, "queue")
    tap = Tap()
    submitting = asyncio.create_task(books.submit(smtpd, tap, SESSIONS))
    undone = []
    for _ in range(3):
        await books.until_arrived(books.arrivals + 30)
        held = await pillarbox.done("hold", "--all", "--yes")
        both = await asyncio.gather(
            *(pillarbox.start("undo", str(held["audit"]), "--yes"), pillarbox.start("release", "state=HOLD", "--yes"))
        )
        undone += [await printed_by(process) for process in both]
        assert held["done"] + held["skipped"] + held["gone"] == held["wanted"]
    tap.open = False
    await submitting
    await pillarbox.done("release", "state=HOLD", "--yes")
    await system.until_finished()
    await books.until_arrived(books.accepted)
    assert str(books.account()) == f"accepted={books.accepted} delivered={books.accepted} lost=0 duplicated=0 altered=0"
    assert await system.value("SELECT sum(done) FROM audit") == await system.value("SELECT count(*) FROM audit_rows")
