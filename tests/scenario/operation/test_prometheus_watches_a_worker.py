"""test_prometheus_watches_a_worker — a scrape shows a worker's deliveries, and its readiness follows PostgreSQL

Owns: the comparison of a scrape with the table of metrics and with the history; /healthy and /ready through an outage.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

from shared.observe.queued_table import METRICS
from shared.postgres import migrate
from shared.postgres.embedded import embedded
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.daemons.system import System
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.web.scrape import got, scraped
from tests.fixtures.servers.postgres import LEAVES, temporary_var
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books

TREES = ["oak.example", "elm.example"]
ON: dict[str, Any] = {
    "metrics": {"listen": "127.0.0.1:0", "refresh": "100ms", "destinations": {"trees": TREES}},
}
DELIVERED, REFUSED = 20, 3


def domains(count: int) -> list[str]:
    return [sample.recipients[0].rpartition("@")[2] for sample in numbered(count)]


async def test_a_scrape_agrees_with_the_history(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, "watched", transport={"retry": {"intervals": ["1h"]}}, **ON)
    assert await got(worker, "/healthy") == (200, "healthy\n")
    await eventually(lambda: worker.said("wakeup.listening"), "it listens")
    assert await got(worker, "/ready") == (200, "ready\n")
    await books.submit(smtpd, numbered(DELIVERED))
    await books.submit(smtpd, numbered(REFUSED, first=100, box="permerror"))
    await books.submit(smtpd, numbered(REFUSED, first=200, box="temperror"))
    await system.until("SELECT count(*) = %s FROM attempts", DELIVERED + 2 * REFUSED)
    # Commits are counted a moment later.
    await eventually(lambda: len(worker.said("result.deferred")) == REFUSED, "the last result is logged")
    await eventually(lambda: len(worker.said("result.delivered")) == DELIVERED, "every delivery is logged")

    async def settled() -> bool:
        found = await scraped(worker)
        deferred = {name: value for name, value in found.items() if name[0] == "pillarbox_queue_recipients"}
        return sum(deferred.values()) == REFUSED and all(state == "DEFER" for _, (state, _) in deferred)

    await eventually(settled, "the queue's figures are read again")
    figures = await scraped(worker)
    scraped_outcomes = {
        labels[0]: value for (name, labels), value in figures.items() if name == "pillarbox_attempts_total" and value
    }
    history = await system.rows("SELECT outcome, count(*) FROM attempts GROUP BY 1")
    assert scraped_outcomes == {str(outcome): count for outcome, count in history}
    assert figures["pillarbox_attempt_seconds_count", ("default",)] == DELIVERED + 2 * REFUSED
    assert figures["pillarbox_delivery_seconds_count", ("default",)] == DELIVERED
    assert figures["pillarbox_destination_attempts_total", ("delivered", "trees")] == sum(
        numbered_domain in TREES for numbered_domain in domains(DELIVERED)
    )
    assert figures["pillarbox_record_results_sum", ()] == DELIVERED + 2 * REFUSED
    assert figures["pillarbox_claimed_recipients_total", ()] == DELIVERED + 2 * REFUSED
    assert figures["pillarbox_events_total", ("result.failed", "warning")] == REFUSED
    assert figures["pillarbox_wakeups_heard_total", ()] >= 1
    assert figures["pillarbox_listening", ()] == 1
    assert figures["pillarbox_recipients_in_hand", ()] == 0
    assert figures["pillarbox_results_unrecorded", ()] == 0
    assert figures["pillarbox_worker", ("watched",)] == 1
    # Every metric is present except those for overdue and unserved mail, of which there is none.
    names = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name, _ in figures}
    unserved = {"pillarbox_unserved_overdue_seconds", "pillarbox_unserved_recipients"}
    assert METRICS.keys() - names <= {"pillarbox_queue_overdue_seconds", *unserved}


async def test_workers_of_one_file_listen_side_by_side(system: System, books: Books) -> None:
    port = free_port(together=2)
    workers = [{"id": name, "where": "true"} for name in ("other", "second")]
    second = await system.worker(books.sink.port, "second", workers=workers, metrics={"listen": f"127.0.0.1:{port}"})
    assert second.said("daemon.started")[0]["metrics"] == f"127.0.0.1:{port + 1}"


async def test_the_metrics_server_is_off_by_default(system: System, books: Books) -> None:
    worker = await system.worker(books.sink.port)
    assert "metrics" not in worker.said("daemon.started")[0]


async def test_ready_follows_postgresql_and_healthy_does_not(books: Books, tmp_path: Path) -> None:
    with temporary_var() as var:
        uri = embedded.ensure_running(var)
        migrate.migrate(uri, LEAVES)
        system = System(uri, tmp_path)
        try:
            worker = await system.worker(books.sink.port, **ON)

            async def ready() -> bool:
                return await got(worker, "/ready") == (200, "ready\n")

            await eventually(ready, "the worker is ready")
            running = embedded.status(var)
            assert running is not None
            os.kill(running.pid, signal.SIGKILL)

            async def waits_for_postgresql() -> bool:
                status, why = await got(worker, "/ready")
                return status == 503 and why.startswith("not ready: PostgreSQL ")

            await eventually(waits_for_postgresql, "the worker is not ready")
            assert await got(worker, "/healthy") == (200, "healthy\n")

            async def says_so() -> bool:
                return (await scraped(worker))["pillarbox_queue_known", ()] == 0

            await eventually(says_so, "a scrape reports that the queue is unknown")
            await asyncio.to_thread(embedded.ensure_running, var)
            await eventually(ready, "the worker is ready again")
            figures = await scraped(worker)
            assert figures["pillarbox_wakeups_lost_total", ("lost",)] >= 1
        finally:
            await system.close()
        assert system.faults() == []


async def test_a_worker_that_stops_is_not_ready(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, shutdown={"timeout": "5s"}, **ON)
    await books.submit(smtpd, numbered(1, box="hangdot"))
    await eventually(lambda: len(books.sink.received) == 1, "the sink has it")
    worker.signal(signal.SIGTERM)
    await worker.until_said("daemon.stopping")
    assert await got(worker, "/ready") == (503, "not ready: stopping\n")
    assert (await got(worker, "/healthy"))[0] == 200
    assert await worker.ended() == 0
