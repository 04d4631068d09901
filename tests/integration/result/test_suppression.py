"""test_suppression — only a proven report suppresses an address, and a suppressed address gets no mail

Owns: proofs about queued/reports/learn.py, queued/reports/suppression_screen.py, smtpd/policy/suppressed.py,
    scripts/commands/suppress.py and the queries suppression_* and report_*.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued.reports import suppression_screen
from queued.reports.suppression_screen import Screen, Screening
from scripts import input_file
from scripts.cli import main
from shared.config.suppression import Suppression
from shared.mail.suppression import named_message, return_path
from shared.postgres import database as db
from tests.fixtures.daemons.serving import Dialogue, serving
from tests.fixtures.database.results import FAILED, claim, finished, running_recorder
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from uuid import UUID

    from queued.values import Claimed
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

SECRET = b"a secret of sixteen octets or more"
REPORT = """Content-Type: multipart/report; boundary="x"\r
\r
--x\r
Content-Type: message/delivery-status\r
\r
Reporting-MTA: dns; peer.example\r
\r
Final-Recipient: rfc822; {recipient}\r
Action: failed\r
Status: {status}\r
Diagnostic-Code: smtp; 550 {status} says the peer\r
--x\r
Content-Type: text/rfc822-headers\r
\r
Received: from app by mx.test with ESMTP\r
\tid {message}; Sat, 21 Nov 2026 10:00:00 +0000\r
--x--\r
"""
FEEDBACK = """Content-Type: multipart/report; report-type=feedback-report; boundary="x"\r
\r
--x\r
Content-Type: message/feedback-report\r
\r
Feedback-Type: {kind}\r
Version: 1\r
--x\r
Content-Type: text/rfc822-headers\r
\r
Return-Path: <{path}>\r
--x--\r
"""


@pytest.fixture
async def pool(database: str) -> AsyncIterator[db.Pool]:
    opened = await db.open_pool(database, "screen", 2)
    yield opened
    await opened.close()


def screening(pool: db.Pool, **settings: Any) -> Screen:
    return Screen(pool, Screening(Suppression.model_validate(settings)))


async def sent(factory: Factory, database: str, count: int = 1) -> UUID:
    """A message that was delivered to r1@example.com and so on."""
    message = factory.message()
    factory.rows(count, message=message)
    claimed = await claim(database)
    async with running_recorder(database) as recorder:
        recorder.add([finished(c, FAILED, "failed") for c in claimed])
        await recorder.drained()
    return message


async def reported(
    factory: Factory, database: str, pool: db.Pool, text: str, to: str = "b@bounces.example", **settings: Any
) -> list[Any]:
    """The rows of the table after this report."""
    factory.row(domain="bounces.example")
    local, _, _ = to.partition("@")
    factory.sql("UPDATE pillarbox.queue SET recipientlocalpart = %(local)s", local=local)
    [c] = await claim(database)
    [result], left = await screening(pool, **{"addresses": ["bounces.example"], **settings}).look([c], text.encode())
    assert (result.result, left) == ("success", ())
    async with running_recorder(database) as recorder:
        recorder.add([result])
        await recorder.drained()
    return factory.sql("SELECT * FROM pillarbox.suppressions ORDER BY target")


@pytest.fixture
def signed(tmp_path: Path) -> dict[str, Any]:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET + b"\n")
    return {"evidence": "signed", "returnpath": {"domain": "bounces.example", "secret": str(secret)}}


async def test_a_hard_bounce_of_a_known_message_suppresses_the_recipient(
    factory: Factory, database: str, pool: db.Pool, heard: Heard
) -> None:
    message = await sent(factory, database)
    text = REPORT.format(recipient="R1@Example.com", status="5.1.1", message=message)
    [row] = await reported(factory, database, pool, text)
    assert (row.target, row.source, row.active, row.count) == ("r1@example.com", "bounce", True, 1)
    assert row.reason == "5.1.1 550 5.1.1 says the peer"
    assert row.expires - row.since == timedelta(days=180)
    assert heard.all("suppression.added")[0]["address"] == "R1@example.com"


@pytest.mark.parametrize(
    ("recipient", "message"),
    [
        ("r1@example.com", "019a2b3c-0000-7000-8000-000000000001"),  # an unknown message
        ("victim@example.com", None),  # not a recipient of the message
    ],
)
async def test_a_forged_report_changes_nothing(
    factory: Factory, database: str, pool: db.Pool, recipient: str, message: str | None
) -> None:
    known = await sent(factory, database)
    text = REPORT.format(recipient=recipient, status="5.1.1", message=message or known)
    assert await reported(factory, database, pool, text) == []


async def test_a_report_on_many_suppresses_those_to_whom_we_sent_or_send(
    factory: Factory, database: str, pool: db.Pool
) -> None:
    """Some are finished, one is queued, one got another message, and one none at all."""
    message, other = await sent(factory, database, 2), factory.message()
    factory.row(message=message, domain="queued.example")
    factory.row(message=other, domain="other.example")
    factory.sql("UPDATE pillarbox.queue SET next_retry = now() + '1 hour'")
    named = ("R1@example.com", "stranger@example.com", "r2@Example.com", "b@queued.example", "b@other.example")
    groups = [f"Final-Recipient: rfc822; {each}\r\nAction: failed\r\nStatus: 5.1.1\r\n\r\n" for each in named]
    one = "Final-Recipient: rfc822; {recipient}\r\nAction: failed\r\nStatus: {status}\r\n"
    text = REPORT.replace(one, "".join(groups)).format(message=message, status="5.1.1")
    rows = [row.target for row in await reported(factory, database, pool, text)]
    assert rows == ["b@queued.example", "r1@example.com", "r2@example.com"]


async def test_a_report_address_is_never_suppressed(factory: Factory, database: str, pool: db.Pool) -> None:
    message = factory.message()
    factory.row(message=message, domain="bounces.example")  # any client may send it, and gets its id
    [row] = await claim(database)
    async with running_recorder(database) as recorder:
        recorder.add([finished(row, FAILED, "failed")])
        await recorder.drained()
    text = REPORT.format(recipient=row.recipient, status="5.1.1", message=message)
    assert await reported(factory, database, pool, text) == []


async def test_a_message_to_many_addresses_is_read_once(
    factory: Factory, database: str, pool: db.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    monkeypatch.setattr("queued.reports.suppression_screen.read", read.append)
    factory.rows(10, domain="bounces.example", message=factory.message())
    claimed = await claim(database)
    done, left = await screening(pool, addresses=["bounces.example"]).look(claimed, b"x")
    assert (len(done), left, read) == (10, (), [b"x"])


async def test_only_a_signed_return_path_is_accepted_if_configured(
    factory: Factory, database: str, pool: db.Pool, signed: dict[str, Any]
) -> None:
    message = await sent(factory, database)
    text = REPORT.format(recipient="r1@example.com", status="5.1.1", message=message)
    forged = return_path(message, b"another secret, not ours")
    assert await reported(factory, database, pool, text, to=f"{forged}@bounces.example", **signed) == []
    path = return_path(message, SECRET)
    assert named_message(path.upper(), SECRET) == message
    [row] = await reported(factory, database, pool, text, to=f"{path}@bounces.example", **signed)
    assert row.target == "r1@example.com"


async def test_soft_bounces_suppress_at_their_limit(factory: Factory, database: str, pool: db.Pool) -> None:
    message = await sent(factory, database)
    text = REPORT.format(recipient="r1@example.com", status="5.2.2", message=message)
    found = [(await reported(factory, database, pool, text, soft=3))[0] for _ in range(3)]
    assert [(row.count, row.active) for row in found] == [(1, False), (2, False), (3, True)]
    about_content = REPORT.format(recipient="r1@example.com", status="5.7.1", message=message)
    [row] = await reported(factory, database, pool, about_content, soft=3)
    assert row.count == 3


async def test_a_report_read_twice_counts_once(factory: Factory, database: str, pool: db.Pool) -> None:
    message = await sent(factory, database)
    factory.row(domain="bounces.example")
    [c] = await claim(database)
    text = REPORT.format(recipient="r1@example.com", status="5.2.2", message=message).encode()
    for _ in range(7):
        await screening(pool, addresses=["bounces.example"]).look([c], text)
    [row] = factory.sql("SELECT * FROM pillarbox.suppressions")
    assert (row.count, row.active) == (1, False)


@pytest.mark.parametrize(("kind", "count"), [("abuse", 1), ("not-spam", 0)])
async def test_feedback_suppresses_the_only_recipient(
    factory: Factory, database: str, pool: db.Pool, signed: dict[str, Any], kind: str, count: int
) -> None:
    message = await sent(factory, database)
    text = FEEDBACK.format(kind=kind, path=f"{return_path(message, SECRET)}@bounces.example")
    rows = await reported(factory, database, pool, text, **signed)
    assert [(row.target, row.source, row.expires) for row in rows] == [("r1@example.com", "arf", None)] * count


async def test_feedback_on_a_message_with_several_recipients_suppresses_no_address(
    factory: Factory, database: str, pool: db.Pool, signed: dict[str, Any]
) -> None:
    message = await sent(factory, database, 2)
    text = FEEDBACK.format(kind="abuse", path=f"{return_path(message, SECRET)}@bounces.example")
    assert await reported(factory, database, pool, text, **signed) == []


async def test_a_suppressed_recipient_is_rejected_and_the_others_continue(
    factory: Factory, database: str, pool: db.Pool
) -> None:
    factory.rows(3)
    factory.sql("INSERT INTO pillarbox.suppressions VALUES ('r2@example.com', 'moved away', 'operator')")
    factory.sql(
        "INSERT INTO pillarbox.suppressions (target, reason, source, expires) VALUES ('example.com', 'x', 'arf', now())"
    )
    claimed: list[Claimed] = sorted(await claim(database), key=lambda c: c.id)
    [result], left = await screening(pool).look(claimed, b"")
    assert (result.result, result.outcome.enhanced, result.claimed) == ("rejected", "5.7.1", claimed[1])
    assert "moved away" in result.outcome.text
    assert left == (claimed[0], claimed[2])
    assert await screening(pool, atdelivery="off").look(claimed, b"") == ([], tuple(claimed))


async def test_an_empty_suppression_list_is_cached(factory: Factory, database: str, pool: db.Pool) -> None:
    factory.rows(1)
    claimed = await claim(database)
    screen = screening(pool)
    assert await screen.look(claimed, b"") == ([], tuple(claimed))
    factory.sql("INSERT INTO pillarbox.suppressions VALUES ('example.com', 'all of it', 'operator')")
    assert await screen.look(claimed, b"") == ([], tuple(claimed)), "asked again at once"
    await pool.close()
    assert await screening(pool).look(claimed, b"") == ([], tuple(claimed)), "mail waits for the table"


async def test_one_attempt_asks_whether_the_list_is_still_empty_and_others_do_not_wait(
    factory: Factory, database: str, pool: db.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory.rows(1)
    claimed = await claim(database)
    screen = screening(pool)
    assert await screen.look(claimed, b"") == ([], tuple(claimed))
    with factory.another() as session:
        session.execute("LOCK TABLE pillarbox.suppressions IN ACCESS EXCLUSIVE MODE")
        with monkeypatch.context() as hour:
            hour.setattr(suppression_screen, "monotonic", lambda: monotonic() + 3600)
            asking = asyncio.create_task(screen.look(claimed, b""))
            waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database"
            await eventually(lambda: factory.one(f"{waits} WHERE datname = current_database())"), "one waits")
            async with asyncio.timeout(60):
                assert await screen.look(claimed, b"") == ([], tuple(claimed))
            assert not asking.done()
            asking.cancel()
            await asyncio.wait([asking])
            session.execute("INSERT INTO pillarbox.suppressions VALUES ('example.com', 'all of it', 'operator')")
            session.commit()
            [result], _ = await screen.look(claimed, b"")
            assert result.result == "rejected", "an attempt that asked in vain is taken for an answer"


async def test_a_suppressed_rcpt_is_refused_or_held(factory: Factory, database: str) -> None:
    factory.sql(
        "INSERT INTO pillarbox.suppressions (target, reason, source)"
        " VALUES ('joe@example.com', 'x', 'operator'), ('gone.example', 'x', 'operator')"
    )
    recipients = (b"Joe@EXAMPLE.com", b"ann@gone.example", b"b@ok.example")
    for action, replies in (("off", "250 250 250"), ("reject", "550 550 250"), ("hold", "250 250 250")):
        settings = {"action": action, "keep": "1ms"}
        async with serving(database, suppression=settings) as port, Dialogue(port) as client:
            await client.say(b"MAIL FROM:<a@sender.example>")
            said = [(await client.say(b"RCPT TO:<%b>" % to))[-1] for to in recipients]
            assert " ".join(reply[:3] for reply in said) == replies
            if action == "reject":
                assert "5.7.1 Recipient is on the suppression list" in said[0]
            if action == "hold":
                await client.say(b"DATA")
                assert (await client.say(b"Subject: x\r\n\r\nx\r\n."))[-1].startswith("250")
    held = {row.recipientdomain: (row.status, row.metadata.get("_quarantineid")) for row in factory.queue()}
    suppressed = ("HOLD", "suppressed")
    assert held == {"example.com": suppressed, "gone.example": suppressed, "ok.example": ("DELIVER", None)}


async def test_any_client_may_send_reports_and_nothing_else(factory: Factory, database: str) -> None:
    factory.sql("INSERT INTO pillarbox.suppressions VALUES ('fbl@example.com', 'forged', 'bounce')")
    settings: dict[str, Any] = {
        "relay": {"networks": []},
        "suppression": {"action": "reject", "accept": ["bounces.example", "fbl@example.com"]},
    }
    async with serving(database, **settings) as port, Dialogue(port) as client:
        await client.say(b"MAIL FROM:<>")
        recipients = (b"b-1-2@bounces.example", b"FBL@example.com", b"joe@example.com")
        said = [(await client.say(b"RCPT TO:<%b>" % to))[-1] for to in recipients]
        assert [reply[:3] for reply in said] == ["250", "250", "554"]


def test_the_command_manages_the_table(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queued.yaml").write_text(json.dumps({"environment": {"database": {"uri": database}}}))
    listed = tmp_path / "list.txt"
    listed.write_text("# from the old server\nAnn@Example.com\nMÜller.example  # a domain\n")
    config = ["--config", str(tmp_path)]
    assert main(["suppress", "add", "joe@example.com", *config, "--reason", "asked us", "--keep", "30d"]) == 0
    assert main(["suppress", "import", str(listed), *config]) == 0
    capsys.readouterr()
    assert main(["suppress", "list", "--json", *config]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["target"], row["reason"]) for row in rows] == [
        ("ann@example.com", "by an operator"),
        ("joe@example.com", "asked us"),
        ("xn--mller-kva.example", "by an operator"),
    ]
    assert rows[1]["expires"] is not None
    assert main(["suppress", "remove", "JOE@example.com", *config]) == 0
    assert main(["suppress", "list", *config]) == 0
    shown = capsys.readouterr().out
    assert "ann@example.com" in shown
    assert "joe@" not in shown.replace("JOE@example.com is removed", "")
    assert main(["suppress", "remove", "joe@example.com", *config]) == 1
    listed.write_text("ann@example.com\nnot an address\n")
    assert main(["suppress", "import", str(listed), *config]) == 1
    assert f'{listed}:2: "not an address"' in capsys.readouterr().err
    monkeypatch.setattr(input_file, "_LONGEST", 4096)
    assert main(["suppress", "import", "/dev/zero", *config]) == 1
    assert "/dev/zero: cannot be read: longer than 4KiB; allowed: a text file" in capsys.readouterr().err


def test_only_one_report_at_a_time_scans_all_leaves(factory: Factory) -> None:
    """With 500 leaves that takes 5,600 locks: for 32 workers at once PostgreSQL would have no room."""
    ask = "SELECT pillarbox.report_only_recipient(gen_random_uuid())"
    with factory.another() as first, factory.another() as second:
        first.execute(ask.encode())
        second.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute(ask.encode())
