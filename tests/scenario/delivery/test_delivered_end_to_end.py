"""test_delivered_end_to_end — every kind of mail submitted over SMTP is delivered once and unaltered

Owns: the proof of normal delivery: content, envelope, trace header, history and deletion of the body.
See: RFC 5321 section 4.4 (Received); RFC 3848 and RFC 6531 section 4.3 (the `with` keywords).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scripts.demo.ledger import spelling
from scripts.demo.sample_mail import Sample, made_up

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

TRACE = re.compile(
    rb"Received: from submitter\.example \(\[127\.0\.0\.1\]\)\r\n"
    rb"\tby mx\.test with (ESMTP|UTF8SMTP)\r\n"
    rb"\tid ([0-9a-f-]{36})(?:\r\n\tfor <[^\r\n>]+>)?; \w{3}, \d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}\r\n"
)
ODD_ONES = (
    Sample("n-empty@origin.example", ("a@ash.example",), b""),
    Sample("n-body@origin.example", ("b@ash.example",), b"\r\nonly a body\r\n"),
    Sample("n-dots@origin.example", ("c@ash.example",), b"Subject: dots\r\n\r\n.\r\n..\r\n...\r\n.a\r\n"),
    Sample("n-long@origin.example", ("d@ash.example",), b"Subject: long\r\n\r\n" + b"x" * 70_000 + b"\r\n"),
    Sample("n-octets@origin.example", ("e@ash.example",), b"Subject: 8\r\n\r\n" + bytes(range(128, 256)) + b"\r\n"),
    Sample("n-quoted@origin.example", ('"a b@c"@ash.example',), b"Subject: quoted\r\n\r\nx\r\n"),
    Sample("", ("f@ash.example",), b"Subject: from nobody\r\n\r\nx\r\n"),
    Sample(
        "jürgen@größe.example", ("zoë@größe.example", "plain@ash.example"), b"Subject: ok\r\n\r\nx\r\n", smtputf8=True
    ),
    Sample("n-fifty@origin.example", tuple(f"{n}@{n}.example" for n in range(50)), b"Subject: many\r\n\r\nx\r\n"),
)


async def test_every_kind_of_mail_arrives_once_and_unaltered(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, transport={"maxlinelength": 100_000})  # one has a line of 70,000
    samples = [*ODD_ONES, *made_up(43, seed=7)]
    recipients = sum(len(sample.recipients) for sample in samples)
    await books.submit(smtpd, samples)
    await books.until_arrived(recipients)
    await system.until_finished()
    assert books.account().clean, books.account()
    assert books.accepted == recipients
    assert books.sink.violations == []

    history = await system.rows("SELECT result, retry_count, worker, count(*) FROM archive GROUP BY 1, 2, 3")
    assert [(result, tries, count) for result, tries, _, count in history] == [("success", 1, recipients)]
    assert history[0][2].startswith(f"{worker.name}@")
    attempts = await system.rows(
        "SELECT outcome, scope, uncertain, reply_code, remote, count(*) FROM attempts GROUP BY 1, 2, 3, 4, 5"
    )
    assert attempts == [("delivered", "recipient", False, 250, f"127.0.0.1:{books.sink.port}", recipients)]
    await system.until("SELECT count(*) = 0 FROM messages")


async def test_the_trace_header_names_the_message_as_the_reply_and_the_history_do(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port)
    await books.submit(smtpd, ODD_ONES)
    await books.until_arrived(sum(len(sample.recipients) for sample in ODD_ONES))
    await system.until_finished()
    archived = {str(row[0]) for row in await system.rows("SELECT messages__id FROM archive")}
    beyond_ascii = {spelling(sample.sender) for sample in ODD_ONES if not sample.sender.isascii()}
    seen = set()
    for record in books.sink.received:
        trace = TRACE.match(record.content or b"")
        assert trace is not None, record.content
        message_id = trace[2].decode()
        assert trace[1] == (b"UTF8SMTP" if record.sender in beyond_ascii else b"ESMTP")
        assert books.replies[record.sender, record.recipients[0]] == f"250 2.0.0 Queued as {message_id}"
        seen.add(message_id)
    assert seen == archived
    assert len(seen) == len(ODD_ONES)
