"""test_deadletters — mail that finishes without success is announced, logged and listed, and can be requeued

Owns: proofs about the dead_message channel, the server's log, dead_letters_requeue, and `pillarbox deadletters`.
See: docs/reference/results.md; tests/integration/commands/test_watch_deadletters.py.
"""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scripts import cli
from shared.mail.results import DEAD, RESULTS
from tests.fixtures.database.results import DELIVERED, FAILED, claim, finished, running_recorder
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from uuid import UUID

    from tests.fixtures.database.factory import Factory

RECORDED = {"success": DELIVERED, "rejected": FAILED, "failed": FAILED, "expired": FAILED}


@pytest.fixture
def config(database: str, tmp_path: Path) -> Path:
    """A folder of configuration that names the test's own database."""
    folder = tmp_path / "config"
    folder.mkdir()
    environment = {"environment": {"database": {"uri": database}}}
    for name in ("smtpd", "queued"):
        (folder / f"{name}.yaml").write_text(json.dumps(environment), encoding="utf-8")  # JSON is YAML
    return folder


async def one_of_each(factory: Factory) -> dict[str, int]:
    """A recipient finished with each result, in the ways they really finish; its id by result."""
    ids: dict[str, int] = {}
    factory.rows(len(RECORDED), domain="dead.example")
    claimed = await claim(factory.uri)
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(c, RECORDED[r], r) for c, r in zip(claimed, RECORDED, strict=True)])
        await recorder.drained()
    ids.update({r: c.id for c, r in zip(claimed, RECORDED, strict=True)})
    ids["deleted"], ids["bounced"] = factory.row(status="DELETE"), factory.row(status="BOUNCE")
    ids["lock_expired"] = factory.row()
    factory.lease([ids["lock_expired"]], ends=timedelta(seconds=-1))
    factory.sql("UPDATE pillarbox.queue SET lost_count = 2 WHERE status = 'DELIVER'")
    assert factory.one("SELECT pillarbox.maintain_hold_poison(now(), 3, 10)") == 1
    factory.move([ids["lock_expired"]], "DELETE")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    return ids


def dead(
    factory: Factory, count: int = 1, *, result: str = "failed", domain: str = "example.com", days: int = 0
) -> list[int]:
    """So many dead letters, each with a body of its own."""
    ids = [factory.row(domain=domain, partid="3") for _ in range(count)]
    factory.sql(
        """WITH gone AS (DELETE FROM pillarbox.queue WHERE id = ANY(%(ids)s) RETURNING *)
           INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderlocalpart,
                                          senderdomain, recipientlocalpart, recipientdomain, size, metadata,
                                          transportid, priority,
                                          retry_count, last_error, worker)
           SELECT id, messages__id, actionid, now() - %(age)s, %(result)s, ts, senderlocalpart, senderdomain,
                  recipientlocalpart, recipientdomain, size, metadata, transportid, priority,
                  3, '550 no', 'w' FROM gone""",
        ids=ids,
        result=result,
        age=timedelta(hours=23 * days),
    )
    return ids


async def test_each_way_to_fail_is_announced_and_is_in_the_servers_log(factory: Factory, superuser: Factory) -> None:
    log = Path(superuser.one("SHOW data_directory")).parent / "postgres.log"
    if not log.exists():
        pytest.skip("the log of this server is not ours to read")
    before = log.stat().st_size
    with psycopg.connect(factory.uri, autocommit=True) as listening:
        listening.execute("LISTEN dead_message")
        ids = await one_of_each(factory)
        heard = [n.payload for n in listening.notifies(timeout=PATIENCE, stop_after=len(DEAD))]
        heard += [n.payload for n in listening.notifies(timeout=0.2)]
    assert {row.result: row.id for row in factory.archive()} == ids
    assert set(ids) == set(RESULTS)
    assert sorted(heard) == sorted(str(ids[result]) for result in DEAD)
    database = factory.one("SELECT current_database()")
    said = [
        line.partition("WARNING:")[2].strip()
        for line in log.read_bytes()[before:].decode().splitlines()
        if f"@{database} WARNING:" in line and "pillarbox:" in line
    ]
    # One line for each statement that finished some.
    names = ", ".join(f"{ids[r]} r{n}@dead.example {r}" for n, r in enumerate(RECORDED, start=1) if RESULTS[r].dead)
    assert said == [
        f"pillarbox: 3 dead: {names}",
        f"pillarbox: 1 dead: {ids['lock_expired']} r1@example.com lock_expired",
    ]


async def test_the_list_shows_each_dead_letter_by_its_result(
    factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = await one_of_each(factory)
    answer = await asyncio.to_thread(command, config, capsys, "list")
    assert {letter["result"]: letter["id"] for letter in answer} == {result: ids[result] for result in DEAD}
    assert await asyncio.to_thread(cli.main, ["deadletters", "list", "--config", str(config)]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == f"{', '.join(f'1 {result}' for result in sorted(DEAD))}; shown: {len(DEAD)}"


def test_filters(factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed = dead(factory, 3)
    [expired] = dead(factory, result="expired", domain="other.example")
    [old] = dead(factory, result="rejected", days=1)
    assert ids_of(command(config, capsys, "list")) == [expired, *reversed(failed), old]
    assert ids_of(command(config, capsys, "list", "--since", "1h")) == [expired, *reversed(failed)]
    assert ids_of(command(config, capsys, "list", "--domain", "OTHER.example")) == [expired]
    [abroad] = dead(factory, domain="xn--bcher-kva.example", days=1)
    assert ids_of(command(config, capsys, "list", "--domain", "Bücher.example")) == [abroad]
    assert ids_of(command(config, capsys, "list", "--result", "expired", "--result", "rejected")) == [expired, old]
    assert ids_of(command(config, capsys, "list", "--limit", "2")) == [expired, failed[-1]]


def test_the_table_shows_replies_as_plain_text(
    factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead(factory)
    factory.sql("UPDATE pillarbox.archive SET last_error = '[red]\x1b[31m' || chr(10) || 'x'")
    assert cli.main(["deadletters", "list", "--config", str(config)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "1 failed; shown: 1" in shown
    assert cli.main(["deadletters", "list", "--result", "expired", "--config", str(config)]) == 0
    assert capsys.readouterr().out == "none; shown: 0\n"


async def test_show_has_every_try(factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = await one_of_each(factory)
    shown = await asyncio.to_thread(command, config, capsys, "show", str(ids["failed"]))
    assert (shown["id"], shown["recipient"], shown["body"]) == (ids["failed"], "r3@dead.example", True)
    [attempt] = shown["attempts"]
    assert (attempt["outcome"], attempt["remote"]) == ("failed", "192.0.2.25:25")
    arguments = ["deadletters", "show", str(ids["failed"]), "--config", str(config)]
    assert await asyncio.to_thread(cli.main, arguments) == 0
    assert RESULTS["failed"].meaning[:20] in capsys.readouterr().out
    arguments = ["deadletters", "show", str(ids["success"]), "--config", str(config)]
    assert await asyncio.to_thread(cli.main, arguments) == 1
    assert "is not a dead letter" in capsys.readouterr().err


def test_requeue_previews_and_acts_with_yes(factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = dead(factory, 3)
    dead(factory, domain="other.example")
    assert cli.main(["deadletters", "requeue", "--domain", "example.com", "--dry-run", "--config", str(config)]) == 0
    assert "would requeue 3 dead letters\nnothing was changed" in capsys.readouterr().out
    assert factory.queue() == []
    message = factory.archive()[0].messages__id
    assert command(config, capsys, "show", str(message))["message"] == str(message)
    assert command(config, capsys, "requeue", str(message), "--dry-run")["ids"] == ids[:1]
    done = command(config, capsys, "requeue", "--domain", "example.com", "--yes")
    assert done == {"wanted": 3, "requeued": 3, "gone": 0}
    rows = factory.queue()
    assert [row.metadata["_requeued"] for row in rows] == [str(id_) for id_ in ids]
    assert {(row.status, row.retry_count, row.partid, row.leaf) for row in rows} == {
        ("DELIVER", 0, "3", "queue_def_123")
    }
    assert all(body.refcount == body.counted for body in factory.bodies().values())
    assert len(factory.archive()) == 4


def test_a_requeued_dead_letter_is_sent_once(
    factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [first] = dead(factory)
    assert requeue(factory, [first, first]) == (1, 0)
    assert requeue(factory, [first]) == (0, 0)
    assert len(factory.queue()) == 1
    factory.sql("UPDATE pillarbox.queue SET status = 'BOUNCE'")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    assert requeue(factory, [first]) == (0, 0)  # nor when the second try has finished
    assert command(config, capsys, "requeue", str(first), "--yes")["wanted"] == 0
    assert [row.requeued for row in factory.sql("SELECT requeued FROM pillarbox.dead_letters")] == [True]


def test_eight_sessions_requeue_a_dead_letter_once(factory: Factory) -> None:
    ids = dead(factory, 5)
    begun = threading.Barrier(8)
    answers: list[int] = []

    def ask() -> None:
        with psycopg.connect(factory.uri, autocommit=True) as session:
            begun.wait(20)
            [[requeued]] = session.execute("SELECT requeued FROM pillarbox.dead_letters_requeue(%s)", (ids,)).fetchall()
            answers.append(len(requeued))

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for each in asking:
        each.start()
    for each in asking:
        each.join(20)
    assert (len(answers), sum(answers)) == (8, 5)
    assert len(factory.queue()) == 5


def test_a_body_that_is_gone_is_counted_and_the_others_are_sent(
    factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead(factory, 2)
    [row, _] = factory.archive()
    factory.sql("DELETE FROM pillarbox.messages WHERE id = %(id)s", id=row.messages__id)
    done = command(config, capsys, "requeue", "--since", "1h", "--yes")
    assert done == {"wanted": 2, "requeued": 1, "gone": 1}


def test_more_than_a_batch(factory: Factory, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message: UUID = factory.message()
    factory.rows(2300, message=message)
    factory.sql(
        """WITH gone AS (DELETE FROM pillarbox.queue RETURNING *)
           INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                                          recipientdomain, size, transportid, priority, retry_count)
           SELECT id, messages__id, actionid, now(), 'failed', ts, recipientlocalpart, recipientdomain, size,
                  transportid, priority, 1 FROM gone"""
    )
    done = command(config, capsys, "requeue", "--result", "failed", "--yes")
    assert done == {"wanted": 2300, "requeued": 2300, "gone": 0}
    assert factory.bodies()[message].refcount == 2300


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["requeue", "--yes"], "give numbers or at least one of"),
        (["list", "--since", "yesterday"], "is not a duration"),
        (["list", "--limit", "0"], "is not a number from 1 to 1000000000"),
        (
            ["list", "--domain", "no domain"],
            '--domain: "no domain": bad domain; allowed: a domain, or an address literal',
        ),
        (["list", "--result", "success"], '"success" is unknown; allowed: rejected, failed, expired'),
    ],
)
def test_bad_input_is_one_clear_line(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    try:
        status = cli.main(["deadletters", *arguments, "--config", str(config)])
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status != 0
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def command(config: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run `pillarbox deadletters …` with --json; what it printed."""
    capsys.readouterr()
    assert cli.main(["deadletters", *arguments, "--json", "--config", str(config)]) == 0
    said = list(map(json.loads, capsys.readouterr().out.splitlines()))
    return said if arguments[0] == "list" else said[0]


def ids_of(answer: Any) -> list[int]:
    """The ids of the letters listed."""
    return [letter["id"] for letter in answer]


def requeue(factory: Factory, ids: list[int]) -> tuple[int, int]:
    """Call the function; how many it queued and how many bodies were gone."""
    [row] = factory.sql("SELECT * FROM pillarbox.dead_letters_requeue(%(ids)s)", ids=ids)
    return len(row.requeued), row.gone
