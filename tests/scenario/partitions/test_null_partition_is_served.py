"""test_null_partition_is_served — a row without _partid is delivered by a worker with IS NULL in its condition

Owns: the queue manual's last worker: `... OR metadata->>'_partid' IS NULL`.
See: config/queued.yaml, worker queued-456.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

import pytest

from shared.mail.message import new_message_id

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

CONTENT = b"Subject: from inside\r\n\r\nNo partition.\r\n"
BODY: LiteralString = "INSERT INTO messages (id, size, content) VALUES (%s, %s, %s)"
RECIPIENT: LiteralString = """
    INSERT INTO queue (messages__id, senderlocalpart, senderdomain, recipientlocalpart, recipientdomain, metadata)
    VALUES (%s, 'n-000000', 'origin.example', 'r', 'oak.example', %s)
"""


@pytest.mark.parametrize("metadata", [None, "{}", '{"tenant": "a"}', '{"_partid": null}'])
async def test_the_worker_with_is_null_delivers_the_row(system: System, books: Books, metadata: str | None) -> None:
    await system.worker(books.sink.port, "queued-123", "metadata->>'_partid' IN ('1', '2', '3')")
    await system.worker(
        books.sink.port, "queued-456", "metadata->>'_partid' IN ('4', '5', '6') OR metadata->>'_partid' IS NULL"
    )
    message_id = new_message_id()
    await system.rows(BODY, message_id, len(CONTENT), CONTENT)
    await system.rows(RECIPIENT, message_id, metadata)
    [record] = await books.sink.wait_for(1)
    assert (record.sender, record.recipients, record.content) == (
        "n-000000@origin.example",
        ("r@oak.example",),
        CONTENT,
    )
    await system.until_finished()
    assert await system.rows("SELECT split_part(worker, '@', 1), result FROM archive") == [("queued-456", "success")]
