"""test_one_trace_follows_a_message — from RCPT to the last reply, through both daemons, under one trace id

Owns: the spans that a collector gets for mail that is delivered at once or at the second try; a
    collector that is down or refuses has no effect on mail.
See: shared/observe/tracing.py; docs/how-to/observe/trace-a-message.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.peers.web.collector import Collector
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


def tracing(endpoint: str, **more: Any) -> dict[str, Any]:
    return {"tracing": {"endpoint": endpoint, "timeout": "2s", **more}}


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_delivery_is_one_trace(system: System, books: Books, processes: int) -> None:
    async with Collector() as collector:
        on = tracing(collector.endpoint)
        smtpd = await system.smtpd(processes=processes, **on)
        await system.worker(books.sink.port, **on)
        await books.submit(smtpd, numbered(1))
        await system.until_finished()
        await eventually(lambda: len(collector.spans) >= 4, "the spans have come")
        [receive], [spool], [attempt], [result] = (
            collector.of(name) for name in ("smtpd.receive", "smtpd.spool", "queued.attempt", "queued.result")
        )
        assert len({span.trace for span in collector.spans}) == 1
        assert [span.service for span in (receive, attempt)] == ["pillarbox smtpd", "pillarbox queued"]
        assert (receive.parent, spool.parent, attempt.parent, result.parent) == ("", *[receive.id] * 3)
        assert receive.began < spool.began < spool.ended <= receive.ended
        assert receive.attributes["smtp.reply"].startswith("250 ")
        assert attempt.attributes["pillarbox.id"] == receive.attributes["pillarbox.id"]
        assert attempt.attributes["pillarbox.outcome"] == "delivered"
        assert result.attributes["pillarbox.recipient"] == "000000.r@ash.example"
        phases = [name for name, _ in attempt.events]
        assert phases == ["smtp.greeting", "smtp.helo", "smtp.mail", "smtp.rcpt", "smtp.data", "smtp.dot"]
        assert attempt.events[-1][1]["smtp.reply"].startswith("250")


async def test_every_try_is_in_the_trace_of_its_message(system: System, books: Books) -> None:
    async with Collector() as collector:
        on = tracing(collector.endpoint)
        smtpd = await system.smtpd(**on)
        await system.worker(books.sink.port, **on)
        await books.submit(smtpd, numbered(3, box="greylist"))
        await system.until_finished()
        await eventually(lambda: len(collector.of("queued.result")) == 6, "two results of each message")
        await eventually(lambda: len(collector.of("smtpd.receive")) == 3, "the three were received")
        for receive in collector.of("smtpd.receive"):
            mine = [span for span in collector.spans if span.trace == receive.trace]
            tries = [span.attributes["pillarbox.try"] for span in mine if span.name == "queued.attempt"]
            outcomes = [span.attributes["pillarbox.outcome"] for span in mine if span.name == "queued.result"]
            assert tries == [1, 2]
            assert outcomes == ["deferred", "delivered"]


async def test_a_trace_unsampled_by_smtpd_stays_unsampled_in_queued(system: System, books: Books) -> None:
    async with Collector() as collector:
        smtpd = await system.smtpd(**tracing(collector.endpoint, ratio=0))
        worker = await system.worker(books.sink.port, **tracing(collector.endpoint))
        await books.submit(smtpd, numbered(3))
        await system.until_finished()
        await worker.stop()
        assert collector.spans == []
        assert collector.asked == 0


async def test_mail_without_a_trace_begins_one_at_its_attempt(system: System, books: Books) -> None:
    async with Collector() as collector:
        smtpd = await system.smtpd()
        await books.submit(smtpd, numbered(1))
        assert await system.value("SELECT metadata ? '_traceparent' FROM queue") is False
        await system.worker(books.sink.port, **tracing(collector.endpoint))
        await eventually(lambda: collector.of("queued.attempt"), "the attempt has come")
        assert collector.of("queued.attempt")[0].parent == ""


@pytest.mark.parametrize("status", [0, 503])
async def test_a_failing_collector_does_not_delay_mail(system: System, books: Books, status: int) -> None:
    async with Collector(status or 200) as collector:
        endpoint = collector.endpoint if status else "http://127.0.0.1:1/v1/traces"
        smtpd = await system.smtpd(**tracing(endpoint))
        worker = await system.worker(books.sink.port, **tracing(endpoint))
        await books.submit(smtpd, numbered(20), 4)
        await system.until_finished()
        [line] = await worker.until_said("tracing.failed")
        assert int(line["spans"]) > 0
        assert await worker.stop() == 0
        assert await smtpd.stop() == 0
        assert "Traceback" not in worker.log + smtpd.log
