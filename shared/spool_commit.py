"""spool-commit — the one transaction of a group of submissions

Owns: how messages and their recipients reach PostgreSQL: a few in a single round trip, many or large ones by COPY.
Called by: shared.spool.
Guarantees: when `commit` returns, every submission is on disk as synchronous_commit says, and the workers of what is to
    be sent are woken; if it raises, the connection must be closed and nothing is there. A large content is never copied
    as a whole nor handed over at once: between two slices others have their turn on the event loop.
Raises: whatever psycopg raises.
See: PostgreSQL manual, "COPY" (binary format), "Pipeline Mode"; docs/explanation/benchmarks.md.
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, LiteralString

from psycopg.types.json import Jsonb

from shared.failure_points import reach
from shared.message import metadata
from shared.queries import query
from shared.states import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg import AsyncCopy

    from shared import database
    from shared.message import Recipient, Submission

#: From this size on a message is committed apart from small ones, which it would keep waiting.
LARGE: Final = 1 << 20
# COPY costs six round trips, however much goes with it; one after another costs one, and more work for each row.
_ONE, _FEW_ROWS, _FEW_BYTES = 2, 8, 1 << 18
_QUEUE_TYPES: Final = ["uuid", "int4", "text", *["text"] * 8, "int4", "jsonb", "text", "int2"]
_LATER_TYPES: Final = [*_QUEUE_TYPES, "timestamptz", "timestamptz"]
# The binary format of COPY: signature, flags, length of an extension; then for each row its number of columns and for
# each column its length and octets; at last -1.
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER: Final = b"\xff\xff"
_MESSAGE: Final = struct.Struct(">hi16siii?i")  # id, size, smtputf8, and the length of content
_SLICE: Final = 1 << 17  # what psycopg hands to libpq at a time


async def commit(connection: database.Connection, durability: LiteralString, submissions: Sequence[Submission]) -> None:
    """The transaction; `durability` is a value of synchronous_commit."""
    rows = sum(len(s.recipients) for s in submissions) + len(submissions)
    if rows == _ONE and submissions[0].size <= _FEW_BYTES:
        await _one(connection, durability, submissions[0])
        return
    if rows <= _FEW_ROWS and sum(s.size for s in submissions) <= _FEW_BYTES:
        await _at_once(connection, durability, submissions)
        return
    await connection.execute(query("spool_begin").replace("{synchronous_commit}", durability))
    reach("spool.before_copy")
    async with connection.cursor() as cursor:
        async with cursor.copy(query("spool_messages")) as copy:
            await _copy_messages(copy, submissions)
        now = [row for s in submissions if s.not_before is None for row in _rows(s)]
        later = [(*row, s.not_before, s.not_before) for s in submissions if s.not_before for row in _rows(s)]
        for name, types, group in (("spool_queue", _QUEUE_TYPES, now), ("spool_queue_later", _LATER_TYPES, later)):
            if group:
                async with cursor.copy(query(name)) as copy:
                    copy.set_types(types)
                    for row in group:
                        await copy.write_row(row)
    if partids := _partids(submissions):
        await connection.execute(query("wakeup_notify"), {"partids": partids})
    reach("spool.before_commit")
    await connection.execute("COMMIT")


async def probe(connection: database.Connection, durability: LiteralString) -> None:
    """A commit of nothing that takes as long as one of mail."""
    await connection.execute(query("spool_begin").replace("{synchronous_commit}", durability))
    await connection.execute(query("spool_probe"))
    await connection.execute("COMMIT")


async def _one(connection: database.Connection, durability: str, s: Submission) -> None:
    """A message for one recipient: what most clients send, and what one that sends alone waits for."""
    [r] = s.recipients
    await connection.execute(
        query("spool_one"),
        {
            "id": s.id,
            "size": s.size,
            "smtputf8": s.smtputf8,
            "content": s.trace + s.content if s.trace else s.content,
            "status": r.status.value,
            "senderip": s.senderip,
            "serverid": s.serverid,
            "senderhelo": s.senderhelo,
            "saslusername": s.saslusername,
            "senderlocalpart": s.sender.localpart if s.sender else None,
            "senderdomain": s.sender.domain if s.sender else None,
            "recipientlocalpart": r.address.localpart,
            "recipientdomain": r.address.domain,
            "metadata": _jsonb(s, r),
            "transportid": r.transportid,
            "priority": _priority(s, r),
            "due": s.not_before,
            "synchronous_commit": durability,
            "partid": r.partid if r.status is Status.DELIVER else None,
        },
    )


async def _at_once(
    connection: database.Connection, durability: LiteralString, submissions: Sequence[Submission]
) -> None:
    """Everything is sent before the first answer is read: one round trip, so that one client waits for one commit."""
    begin, _, setting = query("spool_begin").replace("{synchronous_commit}", durability).partition("; ")
    async with connection.pipeline():
        await connection.execute(begin)
        await connection.execute(setting)
        for s in submissions:
            await connection.execute(
                query("spool_message_alone"), (s.id, s.size, s.smtputf8, s.trace + s.content if s.trace else s.content)
            )
            for row in _rows(s):
                await connection.execute(query("spool_recipient_alone"), (*row, s.not_before))
        if partids := _partids(submissions):
            await connection.execute(query("wakeup_notify"), {"partids": partids})
        await connection.execute("COMMIT")


async def _copy_messages(copy: AsyncCopy, submissions: Sequence[Submission]) -> None:
    buffer = bytearray(_SIGNATURE)
    for s in submissions:
        size = s.size
        buffer += _MESSAGE.pack(4, 16, s.id.bytes, 4, size, 1, s.smtputf8, size)
        buffer += s.trace
        if size < _SLICE:
            buffer += s.content
        else:
            await copy.write(buffer)
            for piece in _slices(s.content):
                await copy.write(piece)
            buffer = bytearray()
        if len(buffer) >= _SLICE:
            await copy.write(buffer)
            buffer = bytearray()
    buffer += _TRAILER
    await copy.write(buffer)


def _slices(content: bytes) -> Iterator[memoryview]:
    view = memoryview(content)
    for start in range(0, len(view), _SLICE):
        yield view[start : start + _SLICE]


def _rows(s: Submission) -> Iterator[tuple[object, ...]]:
    """One queue row per recipient, in the order of sql/queries/spool_queue.sql."""
    localpart, domain = (s.sender.localpart, s.sender.domain) if s.sender else (None, None)
    size = s.size
    for number, r in enumerate(s.recipients, start=1):
        yield (
            *(s.id, number, r.status.value, s.senderip, s.serverid, s.senderhelo, s.saslusername, localpart, domain),
            *(r.address.localpart, r.address.domain, size, _jsonb(s, r), r.transportid, _priority(s, r)),
        )


def _jsonb(s: Submission, r: Recipient) -> Jsonb:
    made = metadata(s, r)
    return _only_partid(r.partid) if len(made) == 1 else Jsonb(made)


@lru_cache(maxsize=4096)
def _only_partid(partid: str) -> Jsonb:
    """Nearly every row's metadata, written once for each partition."""
    written = json.dumps({"_partid": partid})
    return Jsonb(None, dumps=lambda _: written)


def _priority(s: Submission, r: Recipient) -> int:
    return s.priority if r.priority is None else r.priority


def _partids(submissions: Sequence[Submission]) -> list[str]:
    """Whose workers to wake. Also for mail that is to wait: its worker then asks when the next one is due."""
    return sorted({r.partid for s in submissions for r in s.recipients if r.status is Status.DELIVER})
