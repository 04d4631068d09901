"""commit — the one transaction of a group of submissions

Owns: the transfer of messages and their recipients to PostgreSQL: a few in a single round trip, many or large ones by
    COPY.
Guarantees: when `commit` returns, every submission is on disk as synchronous_commit says; if it raises, the connection
    must be closed, and nothing was committed, or nothing that gets a 250. A COMMIT that ended with a warning because
    PostgreSQL gave up waiting for a standby does not count as one. An idempotency key is taken in the same transaction,
    so that it is known if, and only if, its message is; a message whose key was used before is reported as such only
    when the earlier one is as durable. Nothing is notified here: that could refuse the COMMIT, and
    makes commits wait for each other (shared/postgres/notifier.py). A large content is never copied as a whole nor
    handed over at once: between two slices other tasks have their turn on the event loop.
Raises: NotDurable; psycopg's exceptions.
See: PostgreSQL manual, "COPY" (binary format), "Pipeline Mode"; shared/postgres/durable.py;
    docs/explanation/benchmarks.md.
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, LiteralString

from psycopg.types.json import Jsonb

from shared.errors import KeyUsed
from shared.failure_points import reach
from shared.mail.message import metadata
from shared.mail.states import Status
from shared.postgres.durable import durable
from shared.postgres.queries import query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from psycopg import AsyncCopy

    from shared.mail.message import Recipient, Submission
    from shared.postgres import database

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
_MESSAGE: Final = struct.Struct(">hi16siii?")  # id, size, smtputf8
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_SLICE: Final = 1 << 17  # octets that psycopg hands to libpq at a time


async def commit(
    connection: database.Connection, durability: LiteralString, submissions: Sequence[Submission]
) -> dict[UUID, KeyUsed]:
    """The transaction; `durability` is a value of synchronous_commit.

    The submissions that are not committed, because their idempotency keys are those of earlier ones.
    """
    with durable(connection):
        return await _commit(connection, durability, submissions)


async def probe(connection: database.Connection, durability: LiteralString) -> None:
    """A commit of nothing that takes as long as one of mail."""
    with durable(connection):
        await connection.execute(query("spool_begin").replace("{synchronous_commit}", durability))
        await connection.execute(query("spool_probe"))
        await connection.execute("COMMIT")


async def _commit(
    connection: database.Connection, durability: LiteralString, submissions: Sequence[Submission]
) -> dict[UUID, KeyUsed]:
    if any(s.once for s in submissions):
        await connection.execute(query("spool_begin").replace("{synchronous_commit}", durability))
        used = await _keys_taken(connection, submissions)
        if used:
            # The COMMIT of the earlier one may have ended without a standby's answer. This one waits for everything
            # that was written before it, but only if it writes something itself.
            await connection.execute(query("spool_probe"))
        await _copied(connection, [s for s in submissions if s.id not in used])
        return used
    rows = sum(len(s.recipients) for s in submissions) + len(submissions)
    if rows == _ONE and submissions[0].size <= _FEW_BYTES:
        await _one(connection, durability, submissions[0])
        return {}
    if rows <= _FEW_ROWS and sum(s.size for s in submissions) <= _FEW_BYTES:
        await _at_once(connection, durability, submissions)
        return {}
    await connection.execute(query("spool_begin").replace("{synchronous_commit}", durability))
    await _copied(connection, submissions)
    return {}


async def _keys_taken(connection: database.Connection, submissions: Sequence[Submission]) -> dict[UUID, KeyUsed]:
    """Take the idempotency keys, in this transaction; the submissions whose keys were used before."""
    keyed = [(s.once.application, s.once.key, s.id, s.once.fingerprint) for s in submissions if s.once is not None]
    asked = await connection.execute(query("spool_keys"), [list(column) for column in zip(*keyed, strict=True)])
    return {message: KeyUsed(earlier, bytes(fingerprint)) for message, earlier, fingerprint in await asked.fetchall()}


async def _copied(connection: database.Connection, submissions: Sequence[Submission]) -> None:
    """Everything by COPY, in the transaction that has begun, and its COMMIT."""
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
    reach("spool.before_commit")
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
            "msgid": s.msgid,
            "subject": s.subject,
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
        },
    )


async def _at_once(
    connection: database.Connection, durability: LiteralString, submissions: Sequence[Submission]
) -> None:
    """Everything is sent before the first answer is read: one round trip, so that one client waits for one commit."""
    begin = query("spool_begin").replace("{synchronous_commit}", durability).split("; ")
    async with connection.pipeline():
        for statement in begin:
            await connection.execute(statement)
        for s in submissions:
            await connection.execute(
                query("spool_message_alone"),
                (s.id, s.size, s.smtputf8, s.trace + s.content if s.trace else s.content, s.msgid, s.subject),
            )
            for row in _rows(s):
                await connection.execute(query("spool_recipient_alone"), (*row, s.not_before))
        await connection.execute("COMMIT")


async def _copy_messages(copy: AsyncCopy, submissions: Sequence[Submission]) -> None:
    buffer = bytearray(_SIGNATURE)
    for s in submissions:
        size = s.size
        buffer += _MESSAGE.pack(6, 16, s.id.bytes, 4, size, 1, s.smtputf8)
        buffer += _text(s.msgid)
        buffer += _text(s.subject)
        buffer += _LENGTH.pack(size)
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


def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    octets = value.encode()
    return _LENGTH.pack(len(octets)) + octets


def _slices(content: bytes) -> Iterator[memoryview]:
    view = memoryview(content)
    for start in range(0, len(view), _SLICE):
        yield view[start : start + _SLICE]


def _rows(s: Submission) -> Iterator[tuple[object, ...]]:
    """One queue row per recipient, in the order of sql/queries/acceptance/spool.sql, spool_queue."""
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


def partids(submissions: Sequence[Submission]) -> list[str]:
    """The partitions whose workers to wake, also for mail that must wait: its worker then asks when it is due."""
    return sorted({r.partid for s in submissions for r in s.recipients if r.status is Status.DELIVER})
