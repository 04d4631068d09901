"""test_found_by — the Message-ID and the subject of a message are stored with it, whichever way it is queued

Owns: proofs about the columns msgid and subject of messages: by each form of the spool's transaction, by enqueue, and
    by a client that speaks SMTP.
See: tests/unit/shared/test_found_by.py for what is kept of a field; sql/README.md, "Finding what was sent".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from shared.mail.found_by import msgid, subject
from shared.postgres.migrate import migrate
from tests.fixtures.daemons.submissions import recipient, running_spool, submission
from tests.fixtures.found_by import MSGIDS, SUBJECTS
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

STORED = "SELECT msgid, subject FROM pillarbox.messages ORDER BY msgid"
ENQUEUE = "SELECT pillarbox.enqueue('a@a.example', '{b@b.example}', %(content)s)"


@pytest.mark.parametrize("recipients", [1, 3, 20])
async def test_every_form_of_the_transaction_stores_both(factory: Factory, recipients: int) -> None:
    to = [recipient("1", f"r{n}") for n in range(recipients)]
    content = b"Subject: x\r\n\r\n" + b"x" * (1 << 19 if recipients == 3 else 1)
    async with running_spool(factory.uri) as spool:
        await spool.submit(submission(*to, content=content, msgid="1@x.example", subject="Grüße"))
        await spool.submit(submission(*to, content=content))
    assert [tuple(row) for row in factory.sql(STORED)] == [("1@x.example", "Grüße"), (None, None)]
    assert {bytes(row.content) for row in factory.sql("SELECT content FROM pillarbox.messages")} == {content}


async def test_subjects_are_not_stored_where_the_configuration_says_so(factory: Factory) -> None:
    async with running_spool(factory.uri, keepsubject=False) as spool:
        await asyncio.gather(
            *(spool.submit(submission(msgid=f"{n}@x.example", subject="secret")) for n in range(12)),
        )
    assert {row.subject for row in factory.sql(STORED)} == {None}
    assert len({row.msgid for row in factory.sql(STORED)}) == 12
    migrate(factory.uri, LEAVES, keepsubject=False)
    factory.sql(ENQUEUE, content=b"Subject: secret\r\nMessage-ID: <mine@x.example>\r\n\r\n")
    assert {row.subject for row in factory.sql(STORED)} == {None}
    assert factory.one("SELECT count(*) FROM pillarbox.messages WHERE msgid = 'mine@x.example'") == 1


@pytest.mark.parametrize("value", [value for value, _ in MSGIDS])
def test_sql_keeps_the_same_message_id_as_python(factory: Factory, value: bytes) -> None:
    content = b"From: a@a.example\r\nmessage-id:" + value + b"\r\nMessage-ID: <second@x.example>\r\n\r\nbody\r\n"
    assert factory.one("SELECT msgid FROM pillarbox.header_found(%(content)s)", content=content) == msgid(value)


@pytest.mark.parametrize("value", [value for value, _ in SUBJECTS if b"=00" not in value])
def test_sql_keeps_the_same_subject_as_python(factory: Factory, value: bytes) -> None:
    content = b"SUBJECT :" + value + b"\r\nSubject: second\r\n\r\nbody\r\n"
    assert factory.one("SELECT subject FROM pillarbox.header_found(%(content)s)", content=content) == subject(value)


@pytest.mark.parametrize(
    "content",
    [
        b"\r\nSubject: body\r\n",
        b"text\r\nSubject: text\r\n\r\n",
        b"From: a@a.example\r\nno field\r\nSubject: x\r\n\r\n",
        b"",
    ],
)
def test_sql_looks_for_fields_in_the_header_alone(factory: Factory, content: bytes) -> None:
    assert factory.one("SELECT subject FROM pillarbox.header_found(%(content)s)", content=content) is None
    factory.sql(ENQUEUE, content=content)
    assert [tuple(row) for row in factory.sql(STORED)] == [(None, None)]


@pytest.mark.parametrize(
    "value",
    [
        b" =?utf-8?q?=00?=",
        b" =?no-such-charset?b?R3LDvMOf?= =?utf-8?q?x?=",
        b" =?utf-8?b?####?=",
        b" =?euc-jp?q?=FF=FF?=",
        b" =?x?q?" * 8000,
        b" =?" * 20000,
        b"\r\n x" * 16000,
        b" " + bytes(range(128, 256)) * 400,
        b"=?utf-8?q?" + b"=41" * 20000 + b"?=",
    ],
)
def test_enqueue_takes_any_header_within_bounded_time(factory: Factory, value: bytes) -> None:
    factory.sql("SET statement_timeout = '5s'")
    factory.sql(ENQUEUE, content=b"Message-ID:" + value + b"\r\nSubject:" + value + b"\r\n\r\n")
    [row] = factory.sql(STORED)
    assert len(row.subject or "") <= 200
    assert len(row.msgid or "") <= 255
