"""test_retention — mail held for long enough is deleted, reported, and has its row in the archive

Owns: proofs about `pillarbox retention`: rules, preview, exact counts, rights, and old rows of audit.
See: docs/how-to/review/keep-and-delete.md; Halon's queue manual, 3.3.1.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scripts import delete_release1
from tests.fixtures.database.operating import Pillarbox, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

RELEASE1 = "mailquarantine:release1"


@pytest.fixture
def retention(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pillarbox:
    """`pillarbox retention` with a day for one quarantine, and nothing said of others."""
    quarantines = [{"id": RELEASE1, "retention": "1d"}, {"id": "abuse"}]
    folder = write_config(tmp_path / "kept", database, quarantines=quarantines)
    return Pillarbox(folder, capsys, "retention")


def held(factory: Factory, quarantine: str | None, days: float, count: int = 1, *, since: float | None = None) -> Any:
    """Recipients received so many days ago, and held from then on, or since so many days ago."""
    ids = factory.rows(count, status="HOLD", received=datetime.now(UTC) - timedelta(days=days))
    at = None if since is None else (datetime.now(UTC) - timedelta(days=since)).isoformat()
    factory.sql(
        """UPDATE pillarbox.queue SET metadata = metadata || jsonb_strip_nulls(jsonb_build_object(
                  '_quarantineid', %(quarantine)s::text, '_heldat', %(at)s::text)) WHERE id = ANY (%(ids)s)""",
        quarantine=quarantine,
        at=at,
        ids=ids,
    )
    return ids


def statuses(factory: Factory) -> dict[int, str]:
    return {row.id: row.status for row in factory.queue()}


def test_expired_held_mail_is_deleted_with_audit_and_archive_rows(factory: Factory, retention: Pillarbox) -> None:
    old, young = held(factory, RELEASE1, 2, 3), held(factory, RELEASE1, 0.5, 2)
    others = [*held(factory, "abuse", 400), *held(factory, None, 400), factory.row()]
    assert "3" in retention.run("--dry-run")
    assert "nothing was changed" in retention.said
    assert "DELETE" not in statuses(factory).values()
    first, rest, _ = retention.lines("--dry-run")
    assert (first["quarantine"], first["keep"], first["recipients"]) == (RELEASE1, "1d", 3)
    assert rest == {"quarantine": None, "keep": None}

    [done, _] = retention.lines("--yes")
    assert (done["done"], done["gone"]) == (3, 0)
    assert {id_ for id_, status in statuses(factory).items() if status == "DELETE"} == set(old)
    noted = factory.sql("SELECT * FROM pillarbox.audit")[0]
    assert (noted.verb, noted.wanted, noted.done, noted.finished is not None) == ("retention", 3, 3, True)
    assert noted.condition == f"state=HOLD quarantine={RELEASE1} held>1d age>1d"
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    assert [(row.id, row.result) for row in factory.archive()] == [(id_, "deleted") for id_ in old]
    assert set(statuses(factory)) == {*young, *others}
    assert "no held mail is older than its retention" in retention.run("--yes")


def test_the_default_retention_applies_where_none_is_configured(
    factory: Factory, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quarantines = [{"id": RELEASE1, "retention": "90d"}, {"id": "abuse"}]
    sections = {"quarantines": quarantines, "retention": {"default": "30d"}}
    retention = Pillarbox(write_config(tmp_path / "c", database, **sections), capsys, "retention")
    kept = [*held(factory, RELEASE1, 60), *held(factory, "abuse", 20)]
    gone = [*held(factory, RELEASE1, 100), *held(factory, "abuse", 40), *held(factory, None, 40)]
    assert [answer["done"] for answer in retention.lines("--yes")] == [1, 2]
    assert {id_ for id_, status in statuses(factory).items() if status == "HOLD"} == set(kept)
    assert {id_ for id_, status in statuses(factory).items() if status == "DELETE"} == set(gone)


def test_old_mail_that_was_held_today_is_not_deleted_today(
    factory: Factory, retention: Pillarbox, pillarbox: Pillarbox
) -> None:
    waiting = factory.row(received=datetime.now(UTC) - timedelta(days=4), tries=3)
    lately, long = held(factory, RELEASE1, 9, since=0.5), held(factory, RELEASE1, 9, since=2)
    pillarbox.json("hold", f"id={waiting}", "--quarantine", RELEASE1, "--yes")
    assert "_heldat" in factory.queue(waiting)[0].metadata
    assert retention.lines("--yes")[0]["done"] == 1
    found = statuses(factory)
    assert (found[waiting], found[lately[0]], found[long[0]]) == ("HOLD", "HOLD", "DELETE")
    pillarbox.json("release", f"id={waiting}", "--yes")
    assert "_heldat" not in factory.queue(waiting)[0].metadata


def test_the_manuals_own_example_is_a_script_that_runs_as_a_reviewer(
    factory: Factory, logins: Logins, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_config(tmp_path / "config", logins.uri("reviewer"))
    old, young, other = (held(factory, name, days)[0] for name, days in ((RELEASE1, 2), (RELEASE1, 0), ("two", 2)))
    factory.sql("INSERT INTO pillarbox.audit (ts, verb, condition, wanted) VALUES ('2020-01-01', 'hold', '', 0)")
    assert delete_release1.main(["--json", "--config", str(folder)]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (answer["quarantine"], answer["done"]) == (RELEASE1, 1)
    assert statuses(factory) == {old: "DELETE", young: "HOLD", other: "HOLD"}
    # All rules at once do not trip over what a reviewer may not forget.
    assert Pillarbox(folder, capsys, "retention").lines("--yes") == [{"quarantine": None, "keep": None}]
    assert factory.one("SELECT count(*) FROM pillarbox.audit WHERE ts < '2021-01-01'") == 1


def test_a_login_without_rights_gets_one_line(
    factory: Factory, logins: Logins, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held(factory, RELEASE1, 2)
    retention = Pillarbox(write_config(tmp_path / "c", logins.uri("analyst")), capsys, "retention")
    retention.run("--quarantine", RELEASE1, "--age", "1d", "--yes")
    assert retention.status == 1
    assert retention.refused.count("\n") == 1
    assert "permission denied" in retention.refused
    assert "grant-roles" in retention.refused
    assert "DELETE" not in statuses(factory).values()


def test_reviewers_cannot_undo_commands_of_others(factory: Factory, logins: Logins) -> None:
    factory.sql("INSERT INTO pillarbox.audit (verb, condition, wanted, done) VALUES ('hold', '', 7, 7)")
    with logins.session("reviewer") as reviewer:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reviewer.execute("UPDATE audit SET done = 0")
        assert reviewer.execute("SELECT done FROM audit").fetchall() == [(7,)]


def test_old_commands_are_deleted_with_their_undo_rows(
    factory: Factory, retention: Pillarbox, pillarbox: Pillarbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operate.queue.act.BATCH", 3)
    factory.rows(8)
    audit = pillarbox.json("priority", "--to", "3", "--all", "--yes")["audit"]
    undone = pillarbox.json("undo", str(audit), "--yes")["audit"]
    assert factory.one("SELECT count(*) FROM pillarbox.audit_rows") == 16
    factory.sql("UPDATE pillarbox.audit SET ts = ts - interval '366 days' WHERE id = %(id)s", id=audit)
    assert retention.lines("--dry-run")[-1]["commands"] == 0, "what undid it is remembered, and names it"
    factory.sql("UPDATE pillarbox.audit SET ts = ts - interval '366 days' WHERE id = %(id)s", id=undone)
    assert retention.lines("--dry-run")[-1] == {"table": "audit", "keep": "365d", "commands": 2}
    assert retention.lines("--yes")[-1]["done"] == 2
    assert factory.one("SELECT count(*) FROM pillarbox.audit_rows") == 0
    assert [row.verb for row in factory.sql("SELECT verb FROM pillarbox.audit")] == ["retention"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--age", "1d"], "--age requires --quarantine"),
        (["--quarantine", "abuse"], 'no retention is set for "abuse"; allowed: --age'),
        (["--quarantine", ""], "is not a valid quarantine id"),
    ],
)
def test_an_implausible_command_is_refused(retention: Pillarbox, words: list[str], said: str) -> None:
    retention.run(*words, "--yes")
    assert retention.status == 1
    assert said in retention.refused


def test_one_quarantine_uses_its_own_retention_or_the_given_age(factory: Factory, retention: Pillarbox) -> None:
    held(factory, RELEASE1, 2)
    held(factory, "abuse", 2)
    [answer] = retention.lines("--quarantine", RELEASE1, "--dry-run")
    assert (answer["keep"], answer["recipients"]) == ("1d", 1)
    [answer] = retention.lines("--quarantine", "abuse", "--age", "36h", "--yes")
    assert (answer["keep"], answer["done"]) == ("1d12h", 1)
