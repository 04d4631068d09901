"""test_settings_undo — suspends, suppressions and schedules are changed with preview, audit and undo, by command

Owns: proofs about operate/settings through scripts/commands and `pillarbox queue undo`.
See: sql/README.md, "Changing settings"; tests/integration/schema/test_settings_restored.py for sequences.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.database.operating import Pillarbox, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

ADD = ("suspend", "add", "--destination", "example.com", "--reason", "they ask")
DAILY = ("schedule", "add", "daily", "--every", "0 9 * * *", "--from", "a@a.example", "--to", "b@b.example")


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pillarbox:
    """`pillarbox` on the test's own database."""
    (tmp_path / "mail.eml").write_bytes(b"Subject: report\n\nbody\n")
    return Pillarbox(write_config(tmp_path / "config", database), capsys)


def daily(command: Pillarbox, tmp_path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = command.json(*DAILY, "--file", str(tmp_path / "mail.eml"))
    return answer


def test_a_preview_shows_what_would_change_and_changes_nothing(
    command: Pillarbox, factory: Factory, tmp_path: Path
) -> None:
    said = command.run(*ADD, "--dry-run")
    assert "added" in said
    assert 'selection={"destination": ["example.com"]}' in said
    assert said.endswith("suspend add: 1 of 1 setting\nnothing was changed\n")
    preview = command.json("suppress", "add", "b.example", "a.example", "--dry-run")
    assert (preview["wanted"], preview["changed"]) == (2, 2)
    assert [(each["key"], each["before"], each["after"]["source"]) for each in preview["sample"]] == [
        ("a.example", None, "operator"),
        ("b.example", None, "operator"),
    ]
    mail = ("--file", str(tmp_path / "mail.eml"))
    assert command.json(*DAILY, *mail, "--dry-run")["sample"][0]["after"]["cron"] == "0 9 * * *"
    at = "2099-01-01T09:00"
    once = ("schedule", "add", "--at", at, "--from", "a@a.example", "--to", "b@b.example", *mail, "--dry-run")
    assert "to b@b.example would be sent 2099-01-01 09:00:00 UTC; nothing was queued" in command.run(*once)
    assert command.json(*once)["recipients"] == ["b@b.example"]
    for table in ("suspends", "suppressions", "schedules", "audit", "audit_settings", "queue", "messages"):
        assert factory.sql(f"SELECT FROM pillarbox.{table}") == [], table
    command.json(*ADD)
    assert command.json("suspend", "remove", "--all", "--dry-run")["sample"][0]["after"] is None
    assert command.run("suspend", "list").startswith("id")


def test_a_suspend_comes_back_with_its_number_and_its_mail_goes_again_when_it_is_undone(
    command: Pillarbox, factory: Factory
) -> None:
    added = command.json(*ADD, "--for", "2h")
    [before] = factory.sql("SELECT * FROM pillarbox.suspends")
    removed = command.json("suspend", "remove", str(before.id), "--reason", "a mistake")
    [row] = command.lines("queue", "audit", str(removed["audit"]))
    assert (row["verb"], row["condition"], row["reason"]) == ("suspend remove", str(before.id), "a mistake")
    assert (row["wanted"], row["done"], row["skipped"], row["finished"] is not None) == (1, 1, 0, True)
    undo = ("queue", "undo", str(removed["audit"]))
    assert command.json(*undo, "--dry-run")["sample"][0]["before"] is None
    assert factory.sql("SELECT FROM pillarbox.suspends") == []
    assert command.run(*undo, "--yes").startswith("changed back 1 of 1 setting; audit ")
    assert factory.sql("SELECT * FROM pillarbox.suspends") == [before]
    command.run(*undo, "--yes")
    assert f"queue undo: audit {removed['audit']} was undone at " in command.refused

    mail = factory.row(due=timedelta(minutes=9))
    factory.sql("UPDATE pillarbox.queue SET last_error = 'waiting: suspended: they ask'")
    done = command.json("queue", "undo", str(added["audit"]), "--yes")
    assert (done["done"], factory.sql("SELECT FROM pillarbox.suspends")) == (1, [])
    assert factory.one("SELECT next_retry <= now() FROM pillarbox.queue WHERE id = %(id)s", id=mail)
    command.run("queue", "undo", str(done["audit"]), "--yes")
    assert 'is "undo", which cannot be undone' in command.refused


def test_of_several_suspends_all_are_removed_or_none(command: Pillarbox, factory: Factory) -> None:
    first = command.json(*ADD)["id"]
    command.run("suspend", "remove", str(first), "77", "78")
    assert command.status == 1
    assert command.refused == (
        "pillarbox: suspend remove: suspends 77, 78 do not exist; nothing was removed; "
        "allowed: those of `suspend list`\n"
    )
    assert [row.id for row in factory.sql("SELECT id FROM pillarbox.suspends")] == [first]
    assert factory.one("SELECT count(*) FROM pillarbox.audit") == 1
    other = command.json("suspend", "add", "--all", "--reason", "a storm")["id"]
    assert command.json("suspend", "remove", str(other), str(first))["removed"] == [first, other]


def test_what_was_changed_since_is_left_and_named(command: Pillarbox, factory: Factory) -> None:
    added = command.json("suppress", "add", "a.example", "b.example", "c.example")
    command.run("suppress", "remove", "a.example")
    command.run("suppress", "add", "b.example", "--reason", "another one")
    factory.sql("UPDATE pillarbox.suppressions SET count = 7, evidence = gen_random_uuid()")  # reports came
    undo = ("queue", "undo", str(added["audit"]))
    assert "undo suppress add: 1 of 3 settings; a.example, b.example changed since and left" in command.run(
        *undo, "--dry-run"
    )
    done = command.json(*undo, "--yes")
    assert (done["done"], done["skipped"], done["left"]) == (1, 2, ["a.example", "b.example"])
    assert [(row.target, row.reason) for row in factory.sql("SELECT target, reason FROM pillarbox.suppressions")] == [
        ("b.example", "another one")
    ]
    [row] = command.lines("queue", "audit", str(done["audit"]))
    assert (row["verb"], row["undoes"], row["done"], row["skipped"]) == ("undo", added["audit"], 1, 2)


def test_an_undone_suppression_is_again_what_a_report_made_it(command: Pillarbox, factory: Factory) -> None:
    factory.sql(
        "INSERT INTO pillarbox.suppressions (target, reason, source, since, expires, count, active)"
        " VALUES ('a.example', 'mailbox full', 'bounce', now() - interval '1 day', now() + interval '1 day', 2, false)"
    )
    [before] = factory.sql("SELECT * FROM pillarbox.suppressions")
    added = command.json("suppress", "add", "a.example")
    factory.sql("UPDATE pillarbox.suppressions SET count = 3")
    command.run("queue", "undo", str(added["audit"]), "--yes")
    assert factory.sql("SELECT * FROM pillarbox.suppressions") == [before._replace(count=3)]


def test_an_undone_schedule_is_sent_from_now_on_and_has_its_message(
    command: Pillarbox, factory: Factory, tmp_path: Path
) -> None:
    daily(command, tmp_path)
    disabled = command.json("schedule", "disable", "daily", "--reason", "holidays")
    factory.sql("UPDATE pillarbox.schedules SET next_at = now() - interval '9 days', last_at = now()")
    assert command.json("queue", "undo", str(disabled["audit"]), "--yes")["done"] == 1
    [enabled] = factory.sql("SELECT * FROM pillarbox.schedules")
    assert (enabled.enabled, enabled.next_at > datetime.now(UTC)) == (True, True)
    removed = command.json("schedule", "remove", "daily")
    command.run("queue", "undo", str(removed["audit"]), "--yes")
    assert factory.sql("SELECT * FROM pillarbox.schedules") == [enabled]
    assert bytes(enabled.content) == b"Subject: report\r\n\r\nbody\r\n"


def test_a_schedule_that_a_worker_has_disabled_since_stays_disabled(
    command: Pillarbox, factory: Factory, tmp_path: Path
) -> None:
    added = daily(command, tmp_path)
    factory.sql("SELECT pillarbox.schedule_disable('daily', next_at, 'broken') FROM pillarbox.schedules")
    assert command.json("queue", "undo", str(added["audit"]), "--yes")["left"] == ["daily"]
    assert factory.one("SELECT error FROM pillarbox.schedules") == "broken"


def test_an_undo_needs_consent(command: Pillarbox, factory: Factory) -> None:
    added = command.json(*ADD)
    command.run("queue", "undo", str(added["audit"]))
    assert (command.status, "there is no terminal to ask at" in command.refused) == (1, True)
    assert factory.one("SELECT count(*) FROM pillarbox.suspends") == 1


def test_a_key_that_was_made_is_revoked_by_an_undo_and_one_that_was_revoked_stays_so(
    command: Pillarbox, factory: Factory
) -> None:
    command.run("principal", "add", "shop", "--kind", "application")
    assert command.json("key", "add", "shop", "--dry-run")["sample"][0]["after"]["principal"] == "shop"
    assert factory.sql("SELECT FROM pillarbox.api_keys") == []
    made = command.json("key", "add", "shop", "--reason", "a web shop")
    [row] = factory.sql("SELECT verb, condition, reason, done FROM pillarbox.audit WHERE id = %(id)s", id=made["audit"])
    assert tuple(row) == ("key add", "shop", "a web shop", 1)
    kept = factory.one("SELECT after FROM pillarbox.audit_settings WHERE noun = 'api_keys'")
    assert (kept["scopes"], "digest" in kept) == (["send"], False)
    assert command.json("queue", "undo", str(made["audit"]), "--yes")["done"] == 1
    assert factory.one("SELECT revoked IS NOT NULL FROM pillarbox.api_keys")
    other = command.json("key", "add", "shop")
    audit = command.json("key", "revoke", other["prefix"])["audit"]
    command.run("queue", "undo", str(audit), "--yes")
    assert (command.status, "a revoked key stays revoked; allowed: another key" in command.refused) == (1, True)
    assert factory.one("SELECT count(*) FROM pillarbox.api_keys WHERE revoked IS NULL") == 0


def test_principals_come_back_without_passwords_and_keys(command: Pillarbox, factory: Factory) -> None:
    def undo() -> dict[str, Any]:
        last = factory.one("SELECT max(id) FROM pillarbox.audit WHERE verb <> 'undo'")
        done: dict[str, Any] = command.json("queue", "undo", str(last), "--yes")
        return done

    def shop() -> tuple[Any, ...]:
        [row] = factory.sql("SELECT roles, disabled, senders, argon2 IS NOT NULL AS word FROM pillarbox.principals")
        return tuple(row)

    command.run("principal", "add", "shop", "--kind", "application", "--sender", "shop.example", "--reason", "new")
    assert undo()["done"] == 1
    assert factory.sql("SELECT FROM pillarbox.principals") == []
    command.run("principal", "add", "shop", "--kind", "application", "--sender", "shop.example")
    key = command.json("key", "add", "shop")["prefix"]
    # It has a key since, so it stays.
    first = factory.one("SELECT max(id) FROM pillarbox.audit WHERE verb = 'principal add'")
    assert command.json("queue", "undo", str(first), "--yes")["left"] == ["shop"]
    factory.sql("UPDATE pillarbox.principals SET argon2 = '$argon2id$v=19$secret'")
    command.run("principal", "change", "shop", "--role", "viewer", "--disable")
    assert shop() == (["viewer"], True, ["shop.example"], True)
    assert undo()["done"] == 1
    assert shop() == (["sender"], False, ["shop.example"], True)
    command.run("principal", "remove", "shop")
    assert undo() | {"audit": 0} == {"audit": 0, "wanted": 2, "done": 1, "skipped": 1, "left": [key]}
    assert shop() == (["sender"], False, ["shop.example"], False)
    assert factory.one("SELECT count(*) FROM pillarbox.audit_settings WHERE (before || after)::text ~ 'secret'") == 0
