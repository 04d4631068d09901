"""test_parameters_carried — the parameters of MAIL and RCPT are stored in the queue rows for delivery

Owns: the way from SMTP to the row: DSN, priority, 8BITMIME, REQUIRETLS, and mail that is to be released later.
See: sql/README.md, "Reserved metadata"; RFC 3461, RFC 4865, RFC 6710, RFC 8689.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued.claiming.claim import NO_FLOORS, NOTHING_LOST
from shared.config.smtpd.content import DataPhase
from shared.mail.message import Address, Recipient, new_message_id
from shared.postgres import database
from smtpd.envelope.client import Client
from smtpd.envelope.parameters import MailParameters, RcptParameters
from smtpd.envelope.transaction import Accepted, Transaction
from smtpd.message import content as contents
from smtpd.session.phases import PolicyResult
from smtpd.session.receive import commit
from smtpd.session.receive import submission as submission_of
from smtpd.session.service import Reception
from tests.fixtures.daemons.serving import HOSTNAME, MESSAGE, Dialogue, serving
from tests.fixtures.daemons.submissions import recipient, running_spool, submission
from tests.fixtures.database.listening import LISTEN, first

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from shared.spool.spool import Spool
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


async def submit(factory: Factory, mail: bytes = b"", rcpt: bytes = b"") -> None:
    """One message with these parameters, to <b@example.com> and, without any, to <c@example.com>."""
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example>" + mail)).startswith("250")
        assert (await client.ask(b"RCPT TO:<b@example.com>" + rcpt)).startswith("250")
        assert (await client.ask(b"RCPT TO:<c@example.com>")).startswith("250")
        assert (await client.data()).startswith("250")


def reserved(row: Any) -> dict[str, Any]:
    """The row's reserved metadata but for the partition."""
    return {key: value for key, value in row.metadata.items() if key.startswith("_") and key != "_partid"}


async def test_dsn_parameters_are_stored_with_each_recipient(factory: Factory) -> None:
    await submit(factory, b" RET=HDRS ENVID=QQ+2B31", b" NOTIFY=SUCCESS,DELAY ORCPT=rfc822;Bob+2Bx@example.com")
    b, c = factory.queue()
    assert reserved(b) == {
        "_dsn": {
            "ret": "HDRS",
            "envid": "QQ+31",
            "notify": ["DELAY", "SUCCESS"],
            "orcpt": ["rfc822", "Bob+x@example.com"],
        }
    }
    assert reserved(c) == {"_dsn": {"ret": "HDRS", "envid": "QQ+31"}}


async def test_mail_without_parameters_has_no_reserved_metadata(factory: Factory) -> None:
    await submit(factory)
    assert [(reserved(row), row.priority) for row in factory.queue()] == [({}, 0)] * 2


async def test_priority_and_8bitmime_are_in_the_row_and_in_the_received_header(factory: Factory, heard: Heard) -> None:
    await submit(factory, b" MT-PRIORITY=4 BODY=8BITMIME SIZE=100")
    assert [(row.priority, reserved(row)) for row in factory.queue()] == [(4, {"_body": "8BITMIME"})] * 2
    [body] = factory.bodies().values()
    assert b" PRIORITY 4; " in body.content
    [committed] = heard.all("spool.committed")
    assert committed["priority"] == 4


async def test_delayed_mail_is_scheduled_until_its_time(factory: Factory) -> None:
    before = datetime.now(UTC)
    await submit(factory, b" HOLDFOR=3600")
    rows = factory.queue()
    hour = timedelta(hours=1)
    assert all(before + hour <= row.next_retry <= datetime.now(UTC) + hour for row in rows)
    assert {row.ts for row in rows} == {row.next_retry for row in rows}  # its age begins when it is due
    assert {reserved(row)["_futurerelease"] for row in rows} == {"for;3600"}
    assert [row.state for row in factory.sql("SELECT state FROM pillarbox.mail")] == ["SCHEDULED"] * 2
    due = rows[0].next_retry
    assert await claimed(factory, due - timedelta(microseconds=1)) == 0
    assert await claimed(factory, due) == 2


async def claimed(factory: Factory, now: datetime) -> int:
    """How many recipients a worker is given at that time."""
    connection = await database.connect(factory.uri, "claimer")
    try:
        rows = await database.fetch_where(
            connection,
            "claim",
            "true",
            NOTHING_LOST,
            now=now,
            **NO_FLOORS,
            batch=10,
            ordinary=0,
            retried=0,
            worker="w",
            lease=timedelta(minutes=1),
            suspects=False,
            token=1,
        )
    finally:
        await connection.close()
    return len(rows)


async def test_one_group_commits_immediate_and_delayed_mail(factory: Factory) -> None:
    """By COPY; few messages go another way, which the tests above have seen."""
    later = datetime(2030, 1, 1, tzinfo=UTC)
    crowd = [recipient("1", str(n), priority=n % 3 - 1) for n in range(30)]
    async with running_spool(factory.uri) as spool:
        await spool.submit(submission(*crowd, priority=5))
        await spool.submit(submission(*crowd, not_before=later, requiretls=True, body="8BITMIME", tls_optional=True))
        await spool.submit(submission(recipient("2", "lonely"), priority=5))
    rows = factory.queue()
    assert [row.priority for row in rows] == [n % 3 - 1 for n in range(30)] * 2 + [5]
    assert {row.next_retry for row in rows[30:60]} == {later}
    assert all(row.next_retry == row.ts < datetime.now(UTC) for row in (*rows[:30], rows[-1]))
    # RFC 8689 section 4.1: REQUIRETLS outweighs the header.
    assert [reserved(row) for row in rows[30:60]] == [{"_body": "8BITMIME", "_requiretls": True}] * 30


def place(spool: Spool, **settings: Any) -> Reception:
    return Reception(spool, DataPhase.model_validate(settings), "default", HOSTNAME)


def transaction(content: bytes = MESSAGE, **asked: Any) -> Transaction:
    to = Recipient(Address("b", "example.com"), "1")
    return Transaction(
        Address("a", "sender.example"), MailParameters(**asked), [Accepted(to, RcptParameters())], content=content
    )


async def receive(sent: Transaction, place: Reception, judge: Callable[[UUID], PolicyResult] | None = None) -> str:
    """As smtpd.session.receive does, without a session."""
    message_id = new_message_id()
    checked = await contents.check(sent.content, sent.parameters, place.limits, place.hostname)
    judged = judge(message_id) if judge else PolicyResult()
    return await commit(place.spool, submission_of(sent, CLIENT, place, checked, judged, message_id))


CLIENT = Client("192.0.2.7", 25, "default", helo="client.example", extended=True)


async def test_requiretls_and_tls_required_no_are_stored(factory: Factory) -> None:
    async with running_spool(factory.uri) as spool:
        for sent in (
            transaction(requiretls=True),
            transaction(b"TLS-Required: No\r\n" + MESSAGE),
            transaction(b"TLS-Required: No\r\n" + MESSAGE, requiretls=True),
        ):
            assert (await receive(sent, place(spool))).startswith("250")
    found = [reserved(row) for row in factory.queue()]
    assert found == [{"_requiretls": True}, {"_tlsrequired": "no"}, {"_requiretls": True}]


@pytest.mark.parametrize(
    ("field", "optional"),
    [
        (b"TLS-Required: No", True),
        (b"tls-required :\r\n NO\t", True),
        (b"TLS-Required: Yes\r\nTLS-Required: no", True),
        (b"TLS-Required: Yes", False),
        (b"TLS-Required: No, thanks", False),
        (b"X-TLS-Required: No", False),
        (b"Subject: TLS-Required: No", False),
        (b"\r\nTLS-Required: No", False),
    ],
)
def test_mail_by_sql_may_say_that_tls_is_optional_as_by_smtp(factory: Factory, field: bytes, *, optional: bool) -> None:
    content = b"From: a@a.example\r\n" + field + b"\r\nSubject: x\r\n\r\nbody\r\n"
    assert contents.read_header(content, DataPhase(), HOSTNAME).tls_optional is optional
    factory.sql("SELECT pillarbox.enqueue('a@a.example', '{b@b.example}', %(content)s)", content=content)
    assert factory.one("SELECT metadata->>'_tlsrequired' FROM pillarbox.queue") == ("no" if optional else None)


async def test_policy_can_replace_rows_and_prepend_header_fields(factory: Factory) -> None:
    def judge(message_id: UUID) -> PolicyResult:
        row = Recipient(Address("b", "example.com"), "3", priority=-2, metadata={"tenant": "t"})
        return PolicyResult(recipients=(row,), headers=f"X-Id: {message_id}\r\n".encode())

    async with running_spool(factory.uri) as spool:
        asked = transaction(priority=7, ret="FULL")
        assert (await receive(asked, place(spool), judge)).startswith("250")
    [row] = factory.queue()
    assert (row.priority, row.partid, row.metadata["tenant"], row.metadata["_dsn"]) == (-2, "3", "t", {"ret": "FULL"})
    [body] = factory.bodies().values()
    assert body.content.endswith(b"\r\nX-Id: " + str(body.id).encode() + b"\r\n" + MESSAGE)
    assert body.size == row.size == len(body.content)


async def test_missing_fields_of_submitted_mail_are_added_and_the_rest_is_unchanged(factory: Factory) -> None:
    async with running_spool(factory.uri) as spool:
        for setting in ("always", "authenticated"):
            assert (await receive(transaction(), place(spool, addheaders=setting))).startswith("250")
        assert (await receive(transaction(b"no field\r\n"), place(spool, endofheader="fix"))).startswith("250")
    added, unaltered, fixed = (
        bytes(row.content) for row in factory.sql("SELECT * FROM pillarbox.messages ORDER BY id")
    )
    [row, *_] = factory.queue()
    assert b"\r\nMessage-ID: <%b@%b>\r\n" % (str(row.messages__id).encode(), HOSTNAME.encode()) in added
    assert b"\r\nFrom: <a@sender.example>\r\n" + MESSAGE in added
    assert b"\r\nDate: " in added
    assert b"\r\nDate: " not in unaltered
    assert unaltered.endswith(b" +0000\r\n" + MESSAGE)
    assert fixed.endswith(b" +0000\r\n\r\nno field\r\n")


async def test_blind_copies_are_not_stored_and_policy_sees_them(factory: Factory) -> None:
    shown = b"To: b@example.com\r\nSubject: x\r\n\r\nBcc: body\r\n"
    rule = {"phase": "eod", "if": {"header": {"bcc": ["*secret*"]}}, "then": {"metadata": {"blind": "yes"}}}
    async with serving(factory.uri, policy={"rules": [{"id": "seen", **rule}]}) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("250")
        assert (await client.data(b"Bcc: secret@example.com,\r\n other@example.com\r\n" + shown)).startswith("250")
    [body] = factory.bodies().values()
    assert bytes(body.content).endswith(b" +0000\r\n" + shown)
    [row] = factory.queue()
    assert (row.metadata.get("blind"), row.size) == ("yes", len(body.content))


async def test_delayed_mail_notifies_its_worker(factory: Factory) -> None:
    """A worker that sleeps until its next poll would else send it late."""
    with psycopg.connect(factory.uri, autocommit=True) as listener:
        listener.execute(LISTEN)
        async with running_spool(factory.uri) as spool:
            await spool.submit(submission(recipient("4"), not_before=datetime(2030, 1, 1, tzinfo=UTC)))
            assert [n.payload for n in await first(listener)] == ["4"]


async def test_a_recipient_repeated_in_quotes_gets_the_message_once(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
        for written in (b"b@example.com", b'"b"@example.com', rb'"\b"@EXAMPLE.com', b'"b c"@example.com'):
            assert (await client.ask(b"RCPT TO:<" + written + b">")).startswith("250")
        assert (await client.data()).startswith("250")
    assert [row.recipientlocalpart for row in factory.queue()] == ["b", '"b c"']
