"""test_find — mail is found by its Message-ID and its subject, queued or long delivered

Owns: proofs about the condition's words msgid and subject, about a Message-ID in place of an id, and about the plan of
    the search in the archive.
See: sql/README.md, "Finding what was sent"; tests/integration/maintenance/test_keep_find.py; scripts/bench/find.py,
    for the time among 10 million rows.
"""

from __future__ import annotations

import asyncio
import smtplib
from typing import TYPE_CHECKING

import pytest

from shared.postgres.queries import query
from tests.fixtures.daemons.serving import serving
from tests.fixtures.database.operating import Pillarbox
from tests.fixtures.database.plans import nodes

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

MSGID = "20261124.1(2)@mail.example"
ENQUEUE = "SELECT pillarbox.enqueue('a@a.example', '{b@b.example,c@b.example}', %(content)s)"
CONTENT = f"Message-ID: <{MSGID}>\r\nSubject: =?utf-8?q?Rechnung_f=C3=BCr_M=C3=A4rz?=\r\n\r\n".encode()
OTHER = b"Message-ID: <other@mail.example>\r\nSubject: Your order\r\n\r\n"


def test_queued_mail_is_found_by_both(factory: Factory, pillarbox: Pillarbox) -> None:
    for content in (CONTENT, OTHER, b"From: a@a.example\r\n\r\n"):
        factory.sql(ENQUEUE, content=content)
    both, others, neither = ([row.id for row in factory.queue()[at : at + 2]] for at in (0, 2, 4))

    def listed(*words: str) -> list[int]:
        return [each["id"] for each in pillarbox.lines("list", *words)]

    assert listed(f"msgid=<{MSGID}>".replace("(2)", "*")) == both
    assert listed(f'msgid="{MSGID}"') == listed(f"<{MSGID}>") == listed("subject~märz") == both
    assert listed("msgid=*@mail.example") == [*both, *others]
    assert listed("messageid=other@mail.example", "subject=Your*") == others
    assert listed("msgid=") == listed("subject=") == neither
    assert listed("msgid!=other@mail.example") == [*both, *neither]
    assert listed("<other@mail.example>", str(both[0])) == [both[0], *others]
    assert [each["value"] for each in pillarbox.lines("group", "subject", "msgid=*")] == [
        {"subject": "Rechnung für März"},
        {"subject": "Your order"},
    ]
    assert pillarbox.json("hold", f"<{MSGID}>", "--yes")["done"] == 2
    assert [each["id"] for each in pillarbox.lines("show", f"<{MSGID}>")] == both
    pillarbox.run("list", "msgid=<>")
    assert "allowed: a Message-ID, with or without angle brackets" in pillarbox.refused


def test_delivered_mail_is_traced_after_its_body_and_its_tries_are_gone(factory: Factory, pillarbox: Pillarbox) -> None:
    for _ in range(2):  # the application sent it twice
        factory.sql(ENQUEUE, content=CONTENT)
    factory.sql(ENQUEUE, content=OTHER)
    ids = [row.id for row in factory.queue()]
    pillarbox.json("delete", "--all", "--yes")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    factory.sql("TRUNCATE pillarbox.attempts, pillarbox.released")
    factory.sql("DELETE FROM pillarbox.messages")
    answer = pillarbox.lines("trace", f"<{MSGID}>")
    assert {line["id"] for line in answer} == set(ids[:4])
    assert {line["event"] for line in answer} == {"received", "delete", "deleted"}
    received = next(line["details"] for line in answer if line["event"] == "received")
    assert received.endswith(f'as <{MSGID}> "Rechnung für März"')
    assert {line["id"] for line in pillarbox.lines("trace", "<other@mail.example>")} == set(ids[4:])
    pillarbox.run("trace", "<unknown@mail.example>")
    assert "never queued, or older than maintenance.keep.find" in pillarbox.refused
    pillarbox.run("trace", MSGID)
    assert "write a Message-ID in <>" in pillarbox.refused


async def test_a_client_by_smtp_has_its_mail_found_by_what_it_wrote(factory: Factory) -> None:
    def send(port: int) -> None:
        with smtplib.SMTP("127.0.0.1", port, "client.example") as client:
            for header in ("Message-ID: <1@client.example>\r\nSubject:\r\n folded\r\n over lines\r\n", "X-None: x\r\n"):
                client.sendmail("a@client.example", ["b@example.com"], f"{header}\r\nbody\r\n")

    data = {"addheaders": "always"}
    async with serving(factory.uri, server={"phases": {"data": data}}) as port:
        await asyncio.to_thread(send, port)
    rows = factory.sql("SELECT id, msgid, subject, content FROM pillarbox.messages ORDER BY id")
    assert (rows[0].msgid, rows[0].subject) == ("1@client.example", "folded over lines")
    assert (rows[1].msgid.startswith(f"{rows[1].id}@"), rows[1].subject) == (True, None)
    assert f"Message-ID: <{rows[1].msgid}>".encode() in bytes(rows[1].content)


def test_dead_letters_are_named_by_message_id(
    factory: Factory, pillarbox: Pillarbox, capsys: pytest.CaptureFixture[str]
) -> None:
    factory.sql(ENQUEUE.replace(",c@b.example", ""), content=CONTENT)
    dead = factory.queue()[0].id
    factory.sql(
        """WITH gone AS (DELETE FROM pillarbox.queue RETURNING *)
           INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                                          recipientdomain, size, transportid, priority, retry_count, msgid)
           SELECT id, messages__id, 1, now(), 'failed', ts, 'r', 'd.example', 1, 'default', 0, 1, %(msgid)s
             FROM gone""",
        msgid=MSGID,
    )
    deadletters = Pillarbox(pillarbox.config, capsys, "deadletters")
    assert deadletters.json("requeue", f"<{MSGID}>", "--yes")["requeued"] == 1
    assert factory.queue()[0].metadata["_requeued"] == str(dead)


@pytest.mark.parametrize("analyzed", [False, True])
def test_a_message_id_is_found_by_one_lookup_a_day(factory: Factory, *, analyzed: bool) -> None:
    factory.sql("SELECT pillarbox.history_create(now() - interval '90 days', 90)")
    factory.sql(
        """INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                                          recipientdomain, size, transportid, priority, retry_count, msgid, subject)
           SELECT n, gen_random_uuid(), 1, now() - n * interval '90 days' / 90000, 'success', now(), 'r', 'd.example',
                  1, 'default', 0, 1, n || '@mail.example', repeat('x', 60)
             FROM generate_series(1, 90000) AS n"""
    )
    if analyzed:
        factory.sql("ANALYZE pillarbox.archive")
    text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query('queue_messages_with_msgid')}"
    [[[plan]]] = factory.sql(text, msgid="45000@mail.example")
    read = [each for each in nodes(plan["Plan"]) if each.get("Relation Name", "").startswith("archive_2")]
    rows = factory.one("SELECT count(*) FROM pg_partition_tree('pillarbox.archive') WHERE isleaf")
    assert len(read) == rows
    # A day with rows is read by the index; one without may be read as a whole.
    assert sum(each["Actual Rows"] for each in read) == 1
    blocks = sum(each.get("Shared Hit Blocks", 0) + each.get("Shared Read Blocks", 0) for each in read)
    assert blocks <= 3 * rows
