"""schedule — measures rows per second into the queue through shared.spool.spool, by group size and body size

Owns: one measurement of shared.spool.spool.Spool alone, without SMTP and policy.
Guarantees: every submission was awaited, so each is committed with synchronous_commit = on; the rows are counted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from scripts.bench.core.server import NAME, PARTITIONS, content, settle_down, wal_octets
from shared.config.smtpd.settings import Spool as SpoolSettings
from shared.config.smtpd.settings import SpoolGroup
from shared.errors import PillarboxError
from shared.mail.message import Address, Recipient, Submission, new_message_id
from shared.postgres import database
from shared.spool.spool import Spool

if TYPE_CHECKING:
    from scripts.bench.core.server import Server

_PENDING = 2**30


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One cell: single-recipient messages per second, and WAL octets per message."""

    rows_s: float
    wal: float


async def schedule(server: Server, messages: int, size: int, group: int) -> Scheduled:
    """Submit `messages` of `size` octets, `group` at a time; each group waits for the commit of the one before."""
    settings = SpoolSettings(group=SpoolGroup(maxmessages=group, maxbytes=_PENDING), maxpending=_PENDING)
    submissions = [submission(i, content(size)) for i in range(messages)]
    async with server.cell() as uri, server.session(uri) as connection:
        await settle_down(connection)
        spool = Spool(uri, settings, NAME)
        running = [asyncio.create_task(part) for part in (spool.run(), spool.notify())]
        try:
            await spool.submit(submission(0, content(size)))  # opens its connection
            before, began = await wal_octets(connection), monotonic()
            for begin in range(0, messages, group):
                await asyncio.gather(*(spool.submit(s) for s in submissions[begin : begin + group]))
            seconds, wal = monotonic() - began, await wal_octets(connection) - before
        finally:
            for each in running:
                each.cancel()
            await asyncio.wait(running)
        [ledger] = await database.fetch(connection, "bench_ledger")
    if ledger.waiting != messages + 1 or ledger.messages != messages + 1:
        raise PillarboxError(f"{messages + 1} messages were submitted, but the queue has {ledger.waiting} rows")
    return Scheduled(messages / seconds, wal / messages)


def submission(number: int, body: bytes) -> Submission:
    """A message for one recipient; partition ids rotate."""
    recipient = Recipient(Address(f"recipient{number}", f"domain{number % 97}.example"), str(number % PARTITIONS + 1))
    return Submission(
        id=new_message_id(),
        sender=Address("sender", "sender.example"),
        recipients=(recipient,),
        content=body,
        smtputf8=False,
        senderip="192.0.2.1",
        serverid="bench",
        senderhelo="client.example",
        saslusername=None,
    )
