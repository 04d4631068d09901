"""test-erase — an erased person is nowhere in PostgreSQL and the lake, which still agree; also after kills"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from argparse import Namespace
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg
import pytest
from pyarrow import parquet

from operate.erase import Person
from scripts.analytics.lake import catalog, unreferenced
from scripts.commands import erase
from shared.postgres import acting, database
from tests.fixtures.analytics.lake import ask, exported, in_lake, known, same, today

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

_NAME: Final = "Quillfeather"
_ADDRESS: Final = f"{_NAME}@People.example"
_SPELLED: Final = _ADDRESS.lower()
_ANOTHER: Final = f"x{_ADDRESS}"  # whose address ends like the person's
_COUNTED: Final = {
    "attempts": "SELECT count(*) FROM pillarbox.attempts",
    "archive": "SELECT count(*) FROM pillarbox.archive",
}
_ARCHIVE: Final = """
INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, saslusername, senderlocalpart,
                               senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, priority,
                               retry_count, last_error, subject)
VALUES (nextval('pillarbox.queue_id_seq'), %(message)s, 1, %(at)s, 'success', %(at)s, %(user)s,
        split_part(%(sender)s, '@', 1), split_part(%(sender)s, '@', 2), split_part(%(to)s, '@', 1),
        split_part(%(to)s, '@', 2), 9, %(metadata)s, 'default', 0, 1, %(error)s, %(subject)s)
RETURNING id
"""
_ATTEMPT: Final = """
INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid, recipientdomain,
                                size, outcome, scope, reply_text, conversation, duration)
VALUES (%(at)s, %(id)s, %(message)s, 1, 1, 'w', 'default', 'people.example', 1, 'deferred', 'us', %(reply)s,
        %(conversation)s, '1 s')
"""
_BESIDE: Final = """
INSERT INTO pillarbox.messages (id, size, content) VALUES (%(message)s, 9, %(body)s);
INSERT INTO pillarbox.released (messages__id, ts) VALUES (%(message)s, now());
INSERT INTO pillarbox.milestones (kind, queue__id, messages__id, detail)
VALUES ('bounced', %(id)s, %(message)s, jsonb_build_object('to', %(address)s::text));
INSERT INTO pillarbox.notices (kind, messages__id, queue__id, senderlocalpart, senderdomain, recipientlocalpart,
                               recipientdomain, arrived)
VALUES ('failed', %(message)s, %(id)s, 'news', 'sender.example', split_part(%(address)s, '@', 1),
        split_part(%(address)s, '@', 2), now());
INSERT INTO pillarbox.suppressions (target, reason, source)
VALUES (lower(%(address)s), 'bounced: ' || %(address)s, 'bounce');
INSERT INTO pillarbox.reports (since, until, section, made, origin, more, columns, rows)
VALUES (now() - interval '1 day', now(), 'suppression', now(), 'lake', false, '["recipientlocalpart"]',
        jsonb_build_array(
            jsonb_build_object('recipientlocalpart', split_part(%(address)s, '@', 1),
                               'recipientdomain', split_part(%(address)s, '@', 2)),
            jsonb_build_object('recipientlocalpart', 'other', 'last_reply', 'no ' || %(address)s || ', none')));
INSERT INTO pillarbox.audit (ts, verb, condition, argument, reason, wanted)
VALUES (%(at)s, 'hold', 'recipient=' || %(address)s, jsonb_build_object('to', %(address)s::text),
        'asked by ' || %(address)s, 1);
INSERT INTO pillarbox.audit_settings (audit__id, noun, key, after)
SELECT max(id), 'suppressions', lower(%(address)s), jsonb_build_object('target', lower(%(address)s))
  FROM pillarbox.audit;
"""

#: For each line it reads, forks an erasure that kills itself after so many steps, and answers with its wait status.
#: Forked, because each new Python would load Arrow again.
_PROGRAM: Final = """
import json, os, signal, sys
from pathlib import Path
from tests.analytics.test_erase import Named, run

for line in sys.stdin:
    uri, lake, steps = json.loads(line)
    child = os.fork()
    if not child:
        heard = 0

        def at(step):
            global heard
            heard += 1
            if heard > steps:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.stdout = sys.stderr
        os._exit(run(Named(uri, Path(lake), {}), at))
    print(os.waitpid(child, 0)[1], flush=True)
"""


@dataclass(frozen=True, slots=True)
class Named:
    """A database and a lake with a person, and how many rows of each table are not the person's."""

    uri: str
    lake: Path
    others: dict[str, int]


def fill(uri: str) -> None:
    """Name the person in every table, on closed days and today, of own mail and of others."""
    with psycopg.connect(uri, autocommit=True) as connection:
        for days_ago in (0, 1, 2):
            at = datetime.combine(today() - timedelta(days=days_ago), datetime.min.time(), UTC) + timedelta(hours=9)
            plain = {
                "at": at,
                "user": None,
                "sender": "news@sender.example",
                "error": None,
                "metadata": "{}",
                "subject": "x",
            }

            def archive(connection: Any = connection, plain: dict[str, Any] = plain, **more: Any) -> dict[str, Any]:
                values = plain | {"message": uuid4()} | more
                [found] = connection.execute(_ARCHIVE.encode(), values).fetchone()
                return values | {"id": found, "address": _ADDRESS, "body": b"Subject: x\r\n\r\nx\r\n"}

            received = archive(to=_ADDRESS)
            sent = archive(to="other@o.example", sender=_SPELLED)
            other = archive(
                to="other@o.example",
                user=_SPELLED,
                error=f"no <{_ADDRESS}> {_ADDRESS} {_ADDRESS}; {_ANOTHER} stays",
                metadata=json.dumps({"to": _ADDRESS}),
                subject=f"to {_ADDRESS}",
            )
            for row, reply, conversation in (
                (received, "later", None),
                (received, "x" * 70_000, None),
                (sent, "later", None),
                (other, f"<{_ADDRESS}>: later", f"RCPT TO:<{_SPELLED}>"),
                (other, f"{_ADDRESS} " + "x" * 70_000, None),
            ):
                connection.execute(_ATTEMPT.encode(), row | {"reply": reply, "conversation": conversation})
        assert received["at"] < datetime.now(UTC) - timedelta(days=1)
        psycopg.ClientCursor(connection).execute(_BESIDE.encode(), received)


@pytest.fixture
def named(history_database: str, tmp_path: Path) -> Named:
    """A person in a database and its lake."""
    others = {table: ask(history_database, counted) for table, counted in _COUNTED.items()}
    fill(history_database)
    lake = tmp_path / "lake"
    exported(history_database, lake)
    exported(history_database, lake, compact=True)
    assert any(day.quarantined for day in known(lake, "attempts"))
    return Named(history_database, lake, others)


def run(named: Named, at: Callable[[str], None] = lambda _: None, *, suppress: bool = False) -> int:
    """One run of the command, after its options were read."""
    options = Namespace(
        yes=True,
        dry_run=False,
        json=True,
        queued=False,
        suppress=suppress,
        no_lake=False,
        reason=f"asked by {_ADDRESS}",
    )
    lake = catalog.opened(str(named.lake))

    async def once() -> int:
        connection = await acting.connect(named.uri, "erase")
        async with connection:
            return await erase.erased(connection, options, Person.of(_ADDRESS), lake, at)

    with lake.alone():
        return asyncio.run(once())


def gone(named: Named) -> None:
    """Fail where the person is named, or where PostgreSQL and the lake differ."""
    with psycopg.connect(named.uri, autocommit=True) as connection:
        tables = [
            row[0]
            for row in connection.execute(
                "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = 'pillarbox' AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
            ).fetchall()
        ]
        assert {"pillarbox.archive", "pillarbox.audit", "pillarbox.reports"} <= set(tables)
        for table in tables:
            asked = f"SELECT t::text FROM {table} t WHERE replace(lower(t::text), %s, '') LIKE %s"  # noqa: S608 - ours
            rows = connection.execute(asked.encode(), (_ANOTHER.lower(), f"%{_NAME.lower()}%")).fetchall()
            assert not rows, (table, rows)
        assert connection.execute("SELECT count(*) FROM pillarbox.messages").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM pillarbox.erasure_rows").fetchone() == (0,)

    lake = catalog.opened(str(named.lake))
    for table in lake.tables():
        assert unreferenced.listed(table, timedelta(0)) == []
        assert len(table.metadata.snapshots) == 1
        for manifest in table.metadata.snapshots[0].manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                bounds = (entry.data_file.lower_bounds or {}) | (entry.data_file.upper_bounds or {})
                assert not any(_NAME.lower().encode() in octets.lower() for octets in bounds.values()), table.name()
    for file in named.lake.rglob("*.parquet"):
        for row in parquet.read_table(file, partitioning=None).to_pylist():
            said = str(row).lower().replace(_ANOTHER.lower(), "")
            assert _NAME.lower() not in said, (file, said)

    same(named.uri, named.lake)
    again = exported(named.uri, named.lake)
    assert (again.exported, again.refused) == ([], [])


def test_an_erased_person_is_nowhere_and_the_lake_still_equals_postgresql(
    named: Named, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(named) == 0

    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    gone(named)
    left = {table: ask(named.uri, counted) for table, counted in _COUNTED.items()}
    assert left == {"attempts": named.others["attempts"] + 6, "archive": named.others["archive"] + 3}
    assert record["lake"]["deleted"] == 2 * (2 + 3)  # of two closed days: archive, attempts with one in the quarantine
    assert record["queued"] == 0
    assert record["bodies"] == 1
    error = ask(named.uri, "SELECT last_error FROM pillarbox.archive WHERE last_error LIKE '%stays' LIMIT 1")
    assert error == f"no <(erased)> (erased) (erased); {_ANOTHER} stays"
    assert error in in_lake(named.lake, "archive")["last_error"].to_pylist()
    audit = ask(named.uri, "SELECT to_jsonb(a) FROM pillarbox.audit a ORDER BY id DESC LIMIT 1")
    assert (audit["verb"], audit["reason"], audit["done"]) == ("erase", "asked by (erased)", 6)
    assert audit["condition"].startswith("erased:")
    assert audit["finished"] is not None


def test_a_suppressed_person_stays_suppressed(named: Named) -> None:
    run(named)
    assert asyncio.run(_listed(named.uri)) == ({_SPELLED: "bounced: (erased)"}, 1)


async def _listed(uri: str) -> tuple[dict[str, str], int]:
    async with await acting.connect(uri, "test") as connection:
        rows = await database.fetch(
            connection, "suppression_among", now=None, targets=[_SPELLED, "other@o.example", "people.example"]
        )
        listed = await database.fetch(connection, "suppression_listed", value=_SPELLED)
    return {row.target: row.reason for row in rows if row.target is not None}, len(listed)


def test_an_erasure_that_is_killed_at_any_step_is_done_by_the_same_command(named: Named) -> None:
    """The kill is SIGKILL, from inside; each time a step later, so that each run finds what the one before left."""
    words = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        steps, answer = 0, signal.SIGKILL.value
        while answer == signal.SIGKILL:
            print(json.dumps((named.uri, str(named.lake), steps)), file=program.stdin, flush=True)
            answer, steps = int(program.stdout.readline()), steps + 1
        program.stdin.close()
    assert answer == 0
    assert steps > 20  # days of three tables, commits, snapshots, files
    gone(named)
