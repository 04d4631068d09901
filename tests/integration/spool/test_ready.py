"""test_ready — while nothing can be committed, no client may send; as soon as it can be, all may

Owns: proofs about Spool.ready() and the probes, with the real server out of reach, silent, or slow; and that large
    messages keep no small ones waiting.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from shared.errors import SpoolFull, SpoolUnavailable
from tests.fixtures.daemons.serving import Dialogue, configured, listening
from tests.fixtures.daemons.submissions import SPOOL, recipient, running_spool, submission
from tests.fixtures.heard import until
from tests.fixtures.peers.proxy import relaying

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

LARGE = b"Subject: large\r\n\r\n" + b"x" * (1 << 21)


async def test_the_spool_is_not_ready_while_the_server_is_down(factory: Factory, heard: Heard) -> None:
    async with relaying(factory.uri) as proxy, running_spool(proxy.uri, committers=2) as spool:
        assert spool.ready() is None
        await spool.submit(submission())
        proxy.refuse = True
        proxy.cut()
        with pytest.raises(SpoolUnavailable):
            await spool.submit(submission())
        assert isinstance(spool.ready(), SpoolUnavailable)
        asked = proxy.refused
        await until(lambda: proxy.refused >= asked + 3, "probes")
        assert isinstance(spool.ready(), SpoolUnavailable)
        proxy.refuse = False
        await heard.wait("spool.recovered")
        assert spool.ready() is None
        await asyncio.gather(*(spool.submit(submission()) for _ in range(4)))
    # Two at most at once: one probes, the other takes new mail.
    assert factory.one("SELECT count(*) FROM pillarbox.messages") == 5


async def test_a_submitted_message_probes_the_server(factory: Factory) -> None:
    """A message that was on its way when the server went, and arrives when it is back, does not wait for a probe."""
    async with relaying(factory.uri) as proxy, running_spool(proxy.uri) as spool:
        proxy.refuse = True
        for _ in range(6):  # the next probe is now far away
            with pytest.raises(SpoolUnavailable):
                await spool.submit(submission())
        proxy.refuse = False
        await spool.submit(submission())
        assert spool.ready() is None


async def test_a_silent_server_is_waited_for_once(factory: Factory) -> None:
    async with relaying(factory.uri) as proxy, running_spool(proxy.uri, timeout="2s") as spool:
        await spool.submit(submission())
        proxy.deaf()
        proxy.delay = 30.0  # also for new connections
        with pytest.raises(SpoolUnavailable):
            await spool.submit(submission())
        assert isinstance(spool.ready(), SpoolUnavailable)
        proxy.delay = 0.0
        await until(lambda: spool.ready() is None, "the spool to find the server well")
        await spool.submit(submission())


async def test_no_commit_is_added_to_hanging_ones(factory: Factory) -> None:
    async with running_spool(factory.uri, committers=2, maxlatency="100ms") as spool:
        with factory.another() as other:
            other.execute("LOCK TABLE pillarbox.messages IN EXCLUSIVE MODE")
            hanging = [asyncio.create_task(spool.submit(submission(content=content))) for content in (b"", LARGE)]
            await until(lambda: len(factory.waiting(SPOOL)) == 2, "both committers to wait")
            await until(lambda: spool.ready() is not None, "the spool to notice")
        await asyncio.gather(*hanging)
        assert spool.ready() is None


async def test_mail_over_maxpending_is_refused_in_advance(factory: Factory) -> None:
    async with running_spool(factory.uri, maxpending=1000) as spool:
        with factory.another() as other:
            other.execute("LOCK TABLE pillarbox.messages IN EXCLUSIVE MODE")
            first = asyncio.create_task(spool.submit(submission()))
            await until(lambda: factory.waiting(SPOOL), "the spool to wait for the lock")
            second = asyncio.create_task(spool.submit(submission(content=b"x" * 900)))
            await asyncio.sleep(0)
            assert isinstance(spool.ready(101), SpoolFull)
            assert spool.ready(100) is None
        await asyncio.gather(first, second)
        assert spool.ready(10_000) is None  # one message of any size may always come


async def test_a_client_is_refused_before_354_and_the_session_continues(factory: Factory, heard: Heard) -> None:
    config = configured(spool={"timeout": "1m"})
    async with (
        relaying(factory.uri) as proxy,
        listening(proxy.uri, config) as (port, _),
        Dialogue(port) as client,
    ):
        await client.submit()
        proxy.refuse = True
        proxy.cut()
        await client.envelope()
        # The first one finds out.
        if (await client.ask(b"DATA")).startswith("354"):
            assert (await client.ask(b"Subject: x\r\n\r\n.")).startswith("451 4.3.0")
        # The transaction has ended: a client that sends on without looking adds no recipients to another message.
        assert (await client.ask(b"RCPT TO:<c@example.com>")).startswith("503")
        await client.envelope()
        started = monotonic()
        assert (await client.ask(b"DATA")).startswith("451 4.3.0")
        assert monotonic() - started < 40.0, "the time limit is a minute"
        proxy.refuse = False
        await heard.wait("spool.recovered")
        assert (await client.submit()).startswith("250")


@pytest.mark.parametrize("committers", [2, 3, 4])
async def test_large_messages_do_not_delay_small_ones(factory: Factory, committers: int) -> None:
    """Large ones are held up by a lock on their partition; small ones go on by the committer that is left for them."""
    async with running_spool(factory.uri, committers=committers, group={"maxbytes": 1}) as spool:
        await asyncio.gather(spool.submit(submission()), spool.submit(submission(content=LARGE)))
        with factory.another() as other:
            other.execute("LOCK TABLE pillarbox.queue_def_456 IN EXCLUSIVE MODE")
            large = [asyncio.create_task(spool.submit(submission(recipient("4"), content=LARGE))) for _ in range(3)]
            await until(lambda: len(factory.waiting(SPOOL)) == committers - 1, "committers to wait for the lock")
            for _ in range(5):
                await spool.submit(submission(recipient("1")))
            assert not any(each.done() for each in large)
        await asyncio.gather(*large)
    assert factory.one("SELECT count(*) FROM pillarbox.messages") == 10


async def test_with_one_committer_large_and_small_messages_alternate(factory: Factory) -> None:
    async with running_spool(factory.uri, group={"maxbytes": 1, "maxmessages": 1}) as spool:
        ended: list[str] = []

        async def submit(kind: str, content: bytes) -> None:
            await spool.submit(submission(content=content))
            ended.append(kind)

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(submit("large", LARGE))
                group.create_task(submit("small", b"x"))
    assert ended[:4] in (["large", "small"] * 2, ["small", "large"] * 2)
