"""test_spool — a submission returns once its rows are visible to all, or not at all

Owns: proofs about shared/spool/spool.py without faults; test_trouble.py has the faults.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from shared.mail.message import Address
from shared.mail.partition import channel
from shared.postgres import database
from tests.fixtures.daemons.submissions import SPOOL, recipient, running_spool, submission
from tests.fixtures.database.listening import LISTEN, first
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


async def test_submit_returns_only_when_every_row_is_visible(factory: Factory) -> None:
    made = submission(recipient("1", "a"), recipient("4", "b"), recipient("other", "c"))
    async with running_spool(factory.uri) as spool:
        with factory.another() as other:
            other.execute("LOCK TABLE pillarbox.queue IN EXCLUSIVE MODE")
            submitting = asyncio.create_task(spool.submit(made))
            await until(lambda: factory.waiting(SPOOL), "the spool to wait for the lock")
            assert not submitting.done()
            assert factory.one("SELECT count(*) FROM pillarbox.messages") == 0
        await submitting
        assert [(r.recipientlocalpart, r.leaf, r.status) for r in factory.queue()] == [
            ("a", "queue_def_123", "DELIVER"),
            ("b", "queue_def_456", "DELIVER"),
            ("c", "queue_def_def", "DELIVER"),
        ]
    [body] = factory.bodies().values()
    assert (body.id, body.content, body.refcount, body.released) == (made.id, made.content, 3, None)


async def test_every_column_has_the_submitted_value(factory: Factory) -> None:
    made = submission(
        recipient("2", "held", hold=True, metadata={"_quarantineid": "review", "tenant": 'a"\\\n'}),
        recipient("2", "sent", transportid="relay"),
        sender=Address("von", "münchen.example"),
        smtputf8=True,
        saslusername="alice",
        senderhelo="[IPv6:::1]",
    )
    async with running_spool(factory.uri) as spool:
        await spool.submit(made)
    held, sent = factory.queue()
    assert (held.actionid, held.status, held.leaf) == (1, "HOLD", "queue_hold")
    assert held.metadata == {"_quarantineid": "review", "tenant": 'a"\\\n', "_partid": "2"}
    assert (sent.actionid, sent.status, sent.transportid) == (2, "DELIVER", "relay")
    assert (sent.senderlocalpart, sent.senderdomain) == ("von", "münchen.example")
    assert (sent.senderip, sent.serverid, sent.senderhelo) == ("192.0.2.1", "default", "[IPv6:::1]")
    assert (sent.saslusername, sent.size, sent.retry_count, sent.token) == ("alice", len(made.content), 0, None)
    assert factory.bodies()[made.id].smtputf8


async def test_the_null_sender_has_neither_localpart_nor_domain(factory: Factory) -> None:
    async with running_spool(factory.uri) as spool:
        await spool.submit(submission(sender=None))
    [row] = factory.queue()
    assert (row.senderlocalpart, row.senderdomain) == (None, None)


async def test_concurrent_submissions_share_transactions(factory: Factory, heard: Heard) -> None:
    async with running_spool(factory.uri, committers=2) as spool:
        await asyncio.gather(*(spool.submit(submission()) for _ in range(300)))
    groups = heard.all("spool.group")
    assert sum(group["messages"] for group in groups) == 300
    # xmin is the transaction that inserted the row: it confirms the events.
    assert factory.one("SELECT count(DISTINCT xmin::text) FROM pillarbox.messages") == len(groups) <= 10
    assert factory.one("SELECT count(*) FROM pillarbox.queue") == 300


async def test_a_group_commit_ends_at_its_limits(factory: Factory, heard: Heard) -> None:
    limits = {"maxmessages": 7, "maxbytes": 1000}
    async with running_spool(factory.uri, group=limits) as spool:
        await asyncio.gather(*(spool.submit(submission(content=b"x")) for _ in range(30)))
        await asyncio.gather(*(spool.submit(submission(content=b"x" * 400)) for _ in range(9)))
    groups = [(group["messages"], group["bytes"]) for group in heard.all("spool.group")]
    assert max(messages for messages, _ in groups) == 7
    # One that crosses the limit still goes in; the next one does not.
    assert (3, 1200) in groups
    assert sum(messages for messages, _ in groups) == 39


async def test_large_messages_share_smaller_groups(factory: Factory, heard: Heard) -> None:
    large = b"Subject: large\r\n\r\n" + b"x" * (1 << 20)
    async with running_spool(factory.uri, committers=2) as spool:
        await asyncio.gather(*(spool.submit(submission(content=large)) for _ in range(12)))
    assert max(group["messages"] for group in heard.all("spool.group")) == 4


async def test_the_send_buffer_holds_a_large_message(factory: Factory) -> None:
    connection = await database.connect(factory.uri, "roomy")
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        before = end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        database.widen(connection)
        after = end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        if end.family == socket.AF_UNIX:
            assert after >= max(before, min(1 << 21, _most()))
        else:  # a server in a container: the kernel's own buffer grows by itself
            assert after == before
    await connection.close()


def _most() -> int:
    return int(Path("/proc/sys/net/core/wmem_max").read_text())


async def test_the_space_of_deleted_bodies_is_kept_for_reuse(factory: Factory) -> None:
    async with running_spool(factory.uri) as spool:
        await spool.submit(submission(content=b"Subject: large\r\n\r\n" + b"x" * (10 << 20)))
    size = "SELECT pg_table_size('pillarbox.messages')"
    before = factory.one(size)
    factory.sql("DELETE FROM pillarbox.queue")
    factory.sql("DELETE FROM pillarbox.messages")
    factory.sql("VACUUM pillarbox.messages")
    assert factory.one(size) >= before > 10 << 20


async def test_each_partition_is_notified_once_and_held_mail_notifies_none(factory: Factory) -> None:
    with psycopg.connect(factory.uri, autocommit=True) as listener:
        listener.execute(LISTEN)
        async with running_spool(factory.uri) as spool:
            crowd = [recipient(partid, str(n)) for n in range(20) for partid in ("1", "5")]
            await spool.submit(submission(*crowd, recipient("3", hold=True)))
            heard = await first(listener, 2)
            await spool.submit(submission(recipient("3", hold=True)))
            await spool.submit(submission(recipient("6")))
            heard += await first(listener)
    assert [n.payload for n in heard] == ["1", "5", "6"]
    assert [n.channel for n in heard] == [channel(partid) for partid in ("1", "5", "6")]


async def test_a_body_of_20_megabytes_arrives_octet_for_octet(factory: Factory) -> None:
    content = os.urandom(20_000_000)
    made = submission(content=content)
    async with running_spool(factory.uri) as spool:
        await spool.submit(made)
    [row] = factory.sql("SELECT sha256(content) AS digest, size FROM pillarbox.messages")
    assert (row.digest, row.size) == (hashlib.sha256(content).digest(), len(content))


async def test_synchronous_commit_is_set_as_configured_for_the_transaction_only(factory: Factory) -> None:
    factory.sql("CREATE TABLE public.seen (setting text)")
    factory.sql(
        """CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS
           $$BEGIN INSERT INTO public.seen SELECT current_setting('synchronous_commit'); RETURN NULL; END$$"""
    )
    factory.sql(
        "CREATE TRIGGER see AFTER INSERT ON pillarbox.messages FOR EACH STATEMENT EXECUTE FUNCTION public.see()"
    )
    for asked in ("on", "off", "local"):
        async with running_spool(factory.uri, synchronous_commit=asked) as spool:
            for count in (1, 3, 30):  # each goes another way: one statement, one round trip, COPY
                await spool.submit(submission(*(recipient("1", str(n)) for n in range(count))))
    seen = [row.setting for row in factory.sql("SELECT setting FROM public.seen")]
    assert seen == ["on"] * 3 + ["off"] * 3 + ["local"] * 3


async def test_drained_returns_when_nothing_waits(factory: Factory) -> None:
    async with running_spool(factory.uri) as spool:
        await spool.drained()
        submitting = [asyncio.create_task(spool.submit(submission())) for _ in range(5)]
        await asyncio.sleep(0)
        await spool.drained()
        await asyncio.gather(*submitting)
    assert factory.one("SELECT count(*) FROM pillarbox.messages") == 5
