"""test_quarantine_digest — reviewers get one digest of new held mail in each period

Owns: proofs about `pillarbox quarantine digest`: what it says, that it is sent once, and that what a message says is
    only text in it.
"""

from __future__ import annotations

import asyncio
import email
from email.policy import SMTP
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.database.logins import name_of
from tests.fixtures.database.operating import Pillarbox, killed, printed_by, write_config
from tests.fixtures.database.reviewing import hold
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.database.reviewing import Reviewer, Reviewing

NOTICE = {"to": ["desk@example.com", "night@example.com"], "sender": "pillarbox@example.com", "every": "1d"}


@pytest.fixture
def reviewer(factory: Factory, reviewing: Reviewing, logins: Logins) -> Reviewer:
    """A reviewer whose login may spool mail, too."""
    uri = logins.uri("reviewer")
    factory.sql(f"GRANT pillarbox_application TO {name_of(uri)}")
    quarantines = [{"id": "review", "retention": "30d", "notice": NOTICE}, {"id": "other"}]
    return reviewing.at(uri, quarantines=quarantines)


def digests(factory: Factory) -> list[Any]:
    """The digests in the queue, as messages."""
    contents = factory.sql(
        """SELECT DISTINCT m.id, m.content FROM pillarbox.queue q JOIN pillarbox.messages m ON m.id = q.messages__id
            WHERE q.jobid = 'quarantine-digest' ORDER BY m.id"""
    )
    return [email.message_from_bytes(row.content, policy=SMTP) for row in contents]


def text(digest: Any) -> str:
    return str(digest.get_content()).replace("\r\n", "\n")


def next_day(factory: Factory) -> None:
    """As if the last digest had been sent a day before, under that day's key."""
    factory.sql("UPDATE pillarbox.digests SET sent = sent - interval '1 day'")
    factory.sql("UPDATE pillarbox.idempotency SET key = key || '-'")


def test_a_digest_shows_sender_recipient_subject_reason_and_commands(factory: Factory, reviewer: Reviewer) -> None:
    message = factory.message(b"Subject: =?utf-8?q?gr=C3=BC=C3=9Fe?=\r\n\r\nx\r\n")
    [held] = hold(factory, "review", message=message, reason="a new sender")
    hold(factory, "other")
    assert "would send desk@example.com, night@example.com a digest of 1" in reviewer.run("digest")
    assert "subject: grüße" in reviewer.said
    assert digests(factory) == []
    assert "sent desk@example.com, night@example.com a digest of 1 recipient, as" in reviewer.run("digest", "--yes")
    [digest] = digests(factory)
    assert (digest["Subject"], digest["From"]) == ("1 new in quarantine review", "pillarbox@example.com")
    assert digest["Auto-Submitted"] == "auto-generated"
    for line in (
        "from: sender@sender.example",
        "to: r1@example.com",
        "subject: grüße",
        "why: a new sender",
        "Deleted after 30d",
        f"pillarbox quarantine release {held} --yes",
    ):
        assert line in text(digest)
    recipients = [row.recipientlocalpart for row in factory.queue() if row.jobid == "quarantine-digest"]
    assert recipients == ["desk", "night"]


def test_each_recipient_is_in_one_digest_and_an_empty_digest_is_not_sent(factory: Factory, reviewer: Reviewer) -> None:
    first = hold(factory, "review")
    reviewer.run("digest", "--yes")
    [second] = hold(factory, "review")
    assert "at most one in 1d" in reviewer.run("digest", "--yes")
    assert len(digests(factory)) == 1
    next_day(factory)
    assert reviewer.json("digest", "--yes")["recipients"] == 1
    latest = text(digests(factory)[-1])
    assert f"{second}  " in latest
    assert f"{first[0]}  " not in latest
    next_day(factory)
    assert "nothing new" in reviewer.run("digest", "--yes")
    assert len(digests(factory)) == 2


def test_mail_held_again_is_in_the_next_digest(factory: Factory, reviewer: Reviewer) -> None:
    ids = hold(factory, "review")
    reviewer.run("digest", "--yes")
    factory.move(ids, "DELIVER")
    next_day(factory)
    assert "nothing new" in reviewer.run("digest", "--yes")
    factory.sql(
        """UPDATE pillarbox.queue SET status = 'HOLD', metadata = metadata || '{"_quarantineid": "review"}'
            WHERE id = ANY(%(ids)s)""",
        ids=ids,
    )
    assert reviewer.json("digest", "--yes")["recipients"] == 1


async def test_digests_run_at_once_send_one(factory: Factory, reviewer: Reviewer) -> None:
    hold(factory, "review", count=5)
    started = [await reviewer.start("digest", "--yes") for _ in range(3)]
    results = await asyncio.gather(*map(printed_by, started))
    assert sorted(each["recipients"] for each in results) == [0, 0, 5]
    assert len(digests(factory)) == 1


async def test_a_digest_killed_before_its_commit_is_sent_by_the_next_run(
    factory: Factory, superuser: Factory, reviewer: Reviewer
) -> None:
    hold(factory, "review", count=5)
    with factory.another() as session:
        session.execute("LOCK TABLE pillarbox.messages IN EXCLUSIVE MODE")  # where spooling waits
        cut = await reviewer.start("digest", "--yes")
        await eventually(lambda: superuser.waiting("pillarbox queue"), "the digest is being spooled")
        await killed(cut)
    superuser.terminate("pillarbox queue")
    assert digests(factory) == []
    assert factory.one("SELECT count(*) FROM pillarbox.digest_rows") == 0
    assert (await reviewer.done("digest", "--yes"))["recipients"] == 5
    assert len(digests(factory)) == 1


def test_message_text_cannot_inject_anything_into_a_digest(factory: Factory, reviewer: Reviewer) -> None:
    subject = (
        b"Subject: =?utf-8?q?x=0D=0ABcc:_victim=40example.com=0D=0A=1B[31m?= \xe2\x80\xae" + b"y" * 5000 + b"\r\n\r\n"
    )
    hold(factory, "review", message=factory.message(subject), reason="a\r\nb\x1b[0m")
    reviewer.run("digest", "--yes")
    [digest] = digests(factory)
    assert digest["Bcc"] is None
    assert all(character.isprintable() or character == "\n" for character in text(digest))
    assert all(len(line) <= 200 for line in text(digest).splitlines())
    [content] = {bytes(body.content) for body in factory.bodies().values() if b"Auto-Submitted" in body.content}
    assert content.isascii()
    assert max(map(len, content.split(b"\r\n"))) <= 998


def test_many_rows_are_counted_and_the_latest_listed(factory: Factory, reviewer: Reviewer) -> None:
    ids = hold(factory, "review", count=250)
    assert reviewer.json("digest", "--yes")["recipients"] == 250
    digest = text(digests(factory)[0])
    assert digest.count("subject: ") == 100
    assert "… and 150 more" in digest
    assert f"{ids[-1]}  " in digest
    next_day(factory)
    assert "nothing new" in reviewer.run("digest", "--yes")


def test_a_digest_needs_a_notice_the_right_to_spool_and_a_reviewer(
    factory: Factory, reviewing: Reviewing, reviewer: Reviewer
) -> None:
    hold(factory, "review")
    reviewer.run("digest", "other", "--yes")
    assert (reviewer.status, "allowed: review" in reviewer.refused) == (1, True)
    plain = reviewing.reviewer(quarantines=[{"id": "review", "notice": NOTICE}])
    assert "would send" in plain.run("digest")
    plain.run("digest", "--yes")
    assert (plain.status, "grant it pillarbox_application" in plain.refused) == (1, True)
    closed = reviewing.reviewer(quarantines=[{"id": "review", "notice": NOTICE, "reviewers": ["nobody"]}])
    closed.run("digest", "review")
    assert 'is not a reviewer of "review"' in closed.refused
    assert digests(factory) == []


def test_an_admin_who_may_not_send_learns_which_role_is_missing(
    factory: Factory, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(factory, "review")
    config = write_config(tmp_path / "c", database, quarantines=[{"id": "review", "notice": NOTICE}])
    command = Pillarbox(config, capsys)
    command.run("principal", "add", "root", "--role", "admin")
    command.run("quarantine", "digest", "--yes", "--as", "root")
    assert '"root" may not send mail; allowed: principals with the role sender, too' in command.refused
    command.run("principal", "change", "root", "--role", "admin", "--role", "sender")
    assert "sent desk@example.com" in command.run("quarantine", "digest", "--yes", "--as", "root")
