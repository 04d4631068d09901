"""test_quarantine — `pillarbox quarantine` shows, releases, redirects and deletes held mail

Owns: proofs about list, show, release, delete and export, as a login that has the role of reviewers and nothing else.
See: tests/integration/quarantine/test_quarantine_digest.py, test_quarantine_rescan.py;
    tests/unit/commands/test_quarantine_render.py.
"""

from __future__ import annotations

import asyncio
import stat
from typing import TYPE_CHECKING, Any

import pytest

from scripts.quarantine import decide
from scripts.queue.act import act
from tests.fixtures.database.logins import name_of
from tests.fixtures.database.reviewing import Reviewer, hold

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.database.reviewing import Reviewing

HOSTILE = (
    b"Subject: =?utf-8?b?G1szMW1yZWQbWzBt?= \x1b]0;owned\x07 \xe2\x80\xaetxt.exe\r\n"
    b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
    b"--b\r\nContent-Type: text/html\r\n\r\n"
    b"<p>Dear <img src=http://tracker.example/x.gif>reader</p><script>alert('no')</script>\x1b[2J\r\n"
    b'--b\r\nContent-Type: image/svg+xml; name="../../\x1b[31mevil.svg"\r\nContent-Disposition: attachment\r\n\r\n'
    b"<svg onload=alert(1)></svg>\r\n--b--\r\n"
)


@pytest.fixture
def reviewer(reviewing: Reviewing) -> Reviewer:
    """A login with the role of reviewers, and a configuration with a quarantine for all and one for others."""
    return reviewing.reviewer(
        quarantines=[
            {"id": "review", "description": "what rules suspect", "retention": "30d"},
            {"id": "legal", "reviewers": ["somebody_else"]},
        ]
    )


def noted(factory: Factory) -> Any:
    return factory.sql("SELECT * FROM pillarbox.audit ORDER BY id DESC LIMIT 1")[0]


def statuses(factory: Factory, *ids: int) -> list[str]:
    return [row.status for row in factory.queue(*ids)]


def harmless(text: str) -> bool:
    """Whether every character is printable or a line end of ours."""
    return all(character.isprintable() or character == "\n" for character in text)


def test_quarantines_are_listed_with_their_counts(factory: Factory, reviewer: Reviewer) -> None:
    ids = hold(factory, "review", count=3)
    hold(factory, "undeclared")
    factory.row()
    answer = {each["id"]: each for each in reviewer.lines("list")}
    assert list(answer) == ["review", "undeclared", "poison", "body", "legal"]
    assert (answer["review"]["recipients"], answer["review"]["messages"]) == (3, 1)
    assert answer["review"]["bytes"] == sum(row.size for row in factory.queue(*ids))
    assert answer["review"]["oldest"] == min(row.ts for row in factory.queue(*ids)).isoformat()
    assert (answer["review"]["retention"], answer["review"]["description"]) == ("30d", "what rules suspect")
    assert (answer["legal"]["may"], answer["poison"]["recipients"]) == (False, 0)
    assert "review" in reviewer.run("list")


def test_held_mail_is_listed_with_sender_subject_and_reason(factory: Factory, reviewer: Reviewer) -> None:
    message = factory.message(b"Subject: =?utf-8?q?gr=C3=BC=C3=9Fe?=\r\n\r\nx\r\n")
    ids = hold(factory, "review", count=2, message=message, reason="too good to be true")
    hold(factory, "legal")
    lines = reviewer.lines("list", "quarantine=review")
    assert [line["id"] for line in lines] == ids
    assert (lines[0]["subject"], lines[0]["reason"]) == ("grüße", "too good to be true")
    assert "--after" in reviewer.run("list", "quarantine=review", "--limit", "1")
    assert "shown: 1" in reviewer.run("list", "quarantine=review", "--after", str(ids[0]))


def test_a_hostile_message_sends_no_control_characters_to_the_terminal(factory: Factory, reviewer: Reviewer) -> None:
    [held] = hold(factory, "review", message=factory.message(HOSTILE), reason="\x1b[1mbold")
    for words in (["show", str(held)], ["list", f"id={held}"]):
        said = reviewer.run(*words)
        assert reviewer.status == 0, reviewer.refused
        assert harmless(said)
    answer = reviewer.json("show", str(held))
    assert reviewer.json("show", answer["message"]) == answer
    assert answer["text"] == "Dear reader\n\N{REPLACEMENT CHARACTER}[2J"
    assert [(part["type"], part["attached"]) for part in answer["parts"]] == [
        ("text/html", False),
        ("image/svg+xml", True),
    ]
    assert "│ Dear reader" in reviewer.run("show", str(held))
    assert "evil.svg" in reviewer.said


def test_the_alternative_that_mail_programs_show_is_named_and_shown(factory: Factory, reviewer: Reviewer) -> None:
    content = (
        b"From: a@example.com\r\nFrom: bank@example.net\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n"
        b"--b\r\n\r\nSee you at noon.\r\n"
        b"--b\r\nContent-Type: text/html\r\n\r\n<p>Your account is locked</p>\r\n--b--\r\n"
    )
    [held] = hold(factory, "review", message=factory.message(content))
    shown = reviewer.run("show", str(held))
    assert "│ See you at noon." in shown
    assert "Your account" not in shown
    assert 'note: From is there again, and a mail program may show this one: "bank@example.net"' in shown
    assert "note: part 2 (text/html) is an alternative" in shown
    assert "│ Your account is locked" in reviewer.run("show", str(held), "--part", "2")
    reviewer.run("show", str(held), "--part", "3")
    assert (reviewer.status, "--part: part 3 does not exist; allowed: 1 to 2" in reviewer.refused) == (1, True)


def test_of_ten_thousand_parts_the_first_are_shown(factory: Factory, reviewer: Reviewer) -> None:
    parts = b"--b\r\nContent-Type: text/plain\r\n\r\nx\r\n" * 10_000
    content = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + parts
    [held] = hold(factory, "review", message=factory.message(content))
    answer = reviewer.json("show", str(held))
    assert reviewer.json("show", answer["message"]) == answer
    assert len(answer["parts"]) == 200
    assert answer["notes"][0] == "10000 parts; the first 200 are listed"
    assert len(answer["notes"]) == 7


def test_a_message_without_a_body_is_reported(factory: Factory, superuser: Factory, reviewer: Reviewer) -> None:
    [held] = hold(factory, "body")
    superuser.sql("ALTER TABLE pillarbox.messages DISABLE TRIGGER ALL")
    factory.sql("DELETE FROM pillarbox.messages")
    assert reviewer.json("show", str(held))["notes"] == ["the message has no body"]


@pytest.mark.parametrize(("verb", "after"), [("release", "DELIVER"), ("delete", "DELETE")])
def test_held_mail_is_released_and_deleted_by_ids_and_by_condition(
    factory: Factory, reviewer: Reviewer, verb: str, after: str
) -> None:
    first, second = hold(factory, "review", count=2)
    other = factory.row()
    assert "nothing was changed" in reviewer.run(verb, str(first), "--dry-run")
    assert statuses(factory, first) == ["HOLD"]
    assert reviewer.json(verb, str(first), "--yes", "--reason", "looked at")["done"] == 1
    assert statuses(factory, first, second, other) == [after, "HOLD", "DELIVER"]
    assert (noted(factory).verb, noted(factory).who, noted(factory).reason) == (verb, reviewer.login, "looked at")
    assert reviewer.json(verb, "quarantine=review", "--yes")["done"] == 1
    assert statuses(factory, first, second) == [after, after]


def test_mail_released_to_other_addresses_is_sent_there_and_leaves_quarantine(
    factory: Factory, reviewer: Reviewer
) -> None:
    [held] = hold(factory, "review")
    words = ("release", f"id={held}", "--to", "abuse@one.example", "--to", "desk@two.example", "--yes")
    assert reviewer.json(*words)["done"] == 1
    rows = {row.recipientdomain: row for row in factory.queue()}
    assert {domain: row.status for domain, row in rows.items()} == {
        "example.com": "DELETE",
        "one.example": "DELIVER",
        "two.example": "DELIVER",
    }
    assert rows["two.example"].metadata["_copyof"] == str(held)
    assert (noted(factory).verb, noted(factory).argument) == (
        "redirect",
        {"to": ["abuse@one.example", "desk@two.example"]},
    )
    assert all(body.refcount == body.counted for body in factory.bodies().values())
    assert reviewer.json(*words)["done"] == 0  # given again, it sends nothing twice
    assert len(factory.queue()) == 3
    with pytest.raises(SystemExit):
        reviewer.run("release", str(held), "--to", "größe@☃.example", "--yes")


def test_ids_that_are_not_held_are_refused_before_anything_is_done(factory: Factory, reviewer: Reviewer) -> None:
    held, gone = hold(factory, "review", count=2)
    waiting = factory.row()
    factory.move([gone], "DELETE")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    for words, why in (
        ((str(held), "4711"), "recipient 4711 does not exist"),
        ((str(gone),), f"not held: {gone} is finished (deleted) since "),
        ((str(waiting),), f"not held: {waiting} is ACTIVE"),
        (("9" * 30,), "allowed: up to 1000 ids"),
    ):
        reviewer.run("delete", *words, "--yes")
        assert (reviewer.status, why in reviewer.refused, reviewer.refused.count("\n")) == (1, True, 1), words
    reviewer.run("show", str(gone))
    assert "is finished (deleted)" in reviewer.refused
    assert statuses(factory, held) == ["HOLD"]
    assert reviewer.json("delete", str(held), str(gone), "--yes")["done"] == 1
    assert f"skipped: {gone} is finished" in reviewer.refused


def test_typos_and_empty_conditions_are_refused(factory: Factory, reviewer: Reviewer) -> None:
    [held] = hold(factory, "review")
    reviewer.run("release", "--yes")
    assert "give ids or a condition, or --all" in reviewer.refused
    reviewer.run("release", "quarantin=review", "--yes")
    assert (reviewer.status, reviewer.refused.splitlines()[-1].strip()) == (64, "^")
    assert statuses(factory, held) == ["HOLD"]


def test_a_login_without_the_role_gets_one_line(factory: Factory, reviewing: Reviewing, logins: Logins) -> None:
    [held] = hold(factory, "review")
    for role in ("analyst", "queued"):
        stranger = reviewing.at(logins.uri(role))
        for words in (["list"], ["show", str(held)], ["release", str(held), "--yes"], ["digest", "--yes"]):
            stranger.run(*words)
            assert stranger.status == 1
            assert "is not a reviewer: grant it pillarbox_reviewer" in stranger.refused
            assert stranger.refused.count("\n") == 1
    assert statuses(factory, held) == ["HOLD"]


def test_a_reviewer_of_other_quarantines_is_refused(factory: Factory, reviewer: Reviewer, tmp_path: Path) -> None:
    [mine], [theirs] = hold(factory, "review"), hold(factory, "legal")
    for words in (
        ["show", str(theirs)],
        ["list", "--all"],
        ["release", f"id={mine},{theirs}", "--yes"],
        ["delete", "--all", "--yes"],
        ["delete", "quarantine=review or quarantine=legal", "--yes"],
        ["export", str(theirs), "--to", str(tmp_path)],
    ):
        reviewer.run(*words)
        assert reviewer.status == 1, words
        assert f'"{reviewer.login}" is not a reviewer of "legal"; its reviewers are somebody_else' in reviewer.refused
    assert statuses(factory, mine, theirs) == ["HOLD", "HOLD"]
    assert reviewer.json("delete", "--all", "quarantine!=legal", "--yes")["done"] == 1
    assert statuses(factory, mine, theirs) == ["DELETE", "HOLD"]


def test_new_mail_in_a_closed_quarantine_is_left_alone(
    factory: Factory, reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, moved = hold(factory, "review", count=2)
    acting = act

    async def late(*given: Any) -> int:
        factory.sql(
            """UPDATE pillarbox.queue SET metadata = metadata || '{"_quarantineid": "legal"}' WHERE id = %(id)s""",
            id=moved,
        )
        return await acting(*given)

    monkeypatch.setattr(decide, "act", late)
    assert reviewer.json("release", f"id={mine},{moved}", "--yes")["done"] == 1
    assert statuses(factory, mine, moved) == ["DELIVER", "HOLD"]


def test_members_of_a_reviewing_role_and_operators_may(factory: Factory, reviewing: Reviewing, logins: Logins) -> None:
    uri = logins.uri("reviewer")
    one, other = hold(factory, "legal", count=2)
    quarantines = [{"id": "legal", "reviewers": [name_of(uri)]}]
    assert reviewing.at(uri, quarantines=quarantines).json("release", str(one), "--yes")["done"] == 1
    quarantines = [{"id": "legal", "reviewers": ["nobody"]}]
    assert reviewing.at(factory.uri, quarantines=quarantines).json("release", str(other), "--yes")["done"] == 1


def test_messages_are_exported_as_they_are_and_nothing_is_overwritten(
    factory: Factory, reviewer: Reviewer, tmp_path: Path
) -> None:
    message, second = factory.message(HOSTILE), factory.message(b"Subject: two\r\n\r\n" + b"x" * 3 * 2**20)
    ids = hold(factory, "review", count=2, message=message) + hold(factory, "review", message=second)
    folder = tmp_path / "out"
    folder.touch()
    reviewer.run("export", "quarantine=review", "--to", str(folder))
    assert (reviewer.status, "is not a folder" in reviewer.refused) == (1, True)
    folder.unlink()
    assert reviewer.json("export", "quarantine=none", "--to", str(folder))["written"] == 0
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / f"{message}.eml").symlink_to(tmp_path / "elsewhere")
    assert reviewer.json("export", "quarantine=review", "--to", str(folder)) == {
        "written": 1,
        "present": 1,
        "bodiless": 0,
    }
    assert not (tmp_path / "elsewhere").exists()
    (folder / f"{message}.eml").unlink()
    assert "written: 1; skipped because the file exists" in reviewer.run("export", *map(str, ids), "--to", str(folder))
    assert (folder / f"{message}.eml").read_bytes() == HOSTILE
    assert (folder / f"{second}.eml").stat().st_size == 3 * 2**20 + 16
    assert stat.S_IMODE((folder / f"{message}.eml").stat().st_mode) == 0o600
    assert sorted(path.name for path in folder.iterdir()) == sorted([f"{message}.eml", f"{second}.eml"])


async def test_one_message_is_exported_to_standard_output(
    factory: Factory, reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    [held] = hold(factory, "review", message=factory.message(HOSTILE))
    exported = await reviewer.start("export", str(held))
    assert await exported.communicate() == (HOSTILE, b"")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    await asyncio.to_thread(reviewer.run, "export", str(held))
    assert (reviewer.status, "could act on this terminal" in reviewer.refused) == (1, True)
    monkeypatch.undo()
    hold(factory, "review")
    await asyncio.to_thread(reviewer.run, "export", "quarantine=review")
    assert (reviewer.status, "2 messages match; standard output takes one" in reviewer.refused) == (1, True)
