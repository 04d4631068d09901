"""test_prometheus_watches_smtpd — one page has the metrics of all smtpd processes

Owns: the comparison of a scrape with the clients' replies, with one process and several; a dead process; health.
See: smtpd/process/metrics.py, smtpd/process/metrics_children.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from shared.postgres import migrate
from shared.postgres.embedded import embedded
from tests.fixtures.daemons.serving import Dialogue
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.daemons.system import System
from tests.fixtures.peers.web.scrape import got, scraped
from tests.fixtures.servers.postgres import LEAVES, temporary_var
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import Daemon

ON: dict[str, Any] = {"metrics": {"listen": "127.0.0.1:0"}}
MESSAGES = 30


async def value(smtpd: Daemon, name: str, *labels: str) -> float:
    return (await scraped(smtpd))[f"pillarbox_smtpd_{name}", labels]


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_scrape_agrees_with_the_replies_of_clients(system: System, books: Books, processes: int) -> None:
    smtpd = await system.smtpd(processes=processes, **ON)
    assert await got(smtpd, "/healthy") == (200, "healthy\n")
    assert await got(smtpd, "/ready") == (200, "ready\n")
    await books.submit(smtpd, numbered(MESSAGES), 6)
    async with AsyncExitStack() as stack:
        for _ in range(5):
            client = await stack.enter_async_context(Dialogue(smtpd.address[1]))
            assert (await client.ask(b"VERB")).startswith("500")
        found = await scraped(smtpd)
    assert found["pillarbox_smtpd_messages_total", ()] == MESSAGES
    assert found["pillarbox_smtpd_recipients_total", ()] == MESSAGES
    assert found["pillarbox_smtpd_bytes_total", ()] == await system.value("SELECT sum(size) FROM messages")
    assert found["pillarbox_smtpd_sessions_total", ()] == 6 + 5
    assert found["pillarbox_smtpd_replies_total", ("500",)] == 5
    assert found["pillarbox_smtpd_replies_total", ("220",)] == 6 + 5
    assert found["pillarbox_smtpd_commit_messages_sum", ()] == MESSAGES
    assert found["pillarbox_smtpd_commit_seconds_count", ()] == found["pillarbox_smtpd_commit_messages_count", ()]
    assert found["pillarbox_smtpd_processes", ("ready",)] == processes
    open_now = {labels[0]: n for (name, labels), n in found.items() if name == "pillarbox_smtpd_sessions"}
    assert sum(open_now.values()) == 5
    assert len(open_now) == processes

    async def reported() -> bool:
        found = await scraped(smtpd)
        rows = {labels: n for (name, labels), n in found.items() if name == "pillarbox_queue_leaf_rows"}
        return sum(rows.values()) == MESSAGES and rows["queue_hold",] == 0

    await eventually(reported, "smtpd says how much mail waits, for no worker runs")


async def test_counts_of_a_dead_process_are_kept(system: System, books: Books) -> None:
    smtpd = await system.smtpd(processes=2, **ON)
    await books.submit(smtpd, numbered(MESSAGES), 6)
    assert await value(smtpd, "messages_total") == MESSAGES
    for line in smtpd.said("child.started"):
        os.kill(int(line["pid"]), signal.SIGKILL)
    await smtpd.until_said("child.started", 4)

    async def all_serve() -> bool:
        return await value(smtpd, "processes", "ready") == 2

    await eventually(all_serve, "both places are taken again")
    await books.submit(smtpd, numbered(MESSAGES, first=100), 6)
    found = await scraped(smtpd)
    assert found["pillarbox_smtpd_messages_total", ()] == 2 * MESSAGES
    assert found["pillarbox_events_total", ("child.died", "warning")] == 2


async def test_refused_clients_are_counted(system: System) -> None:
    smtpd = await system.smtpd(
        processes=1,
        load={"sessions": 1},
        rates={"exempt": [], "address": {"messages": 1}},
        **ON,
    )
    async with Dialogue(smtpd.address[1]) as first:
        reader, writer = await asyncio.open_connection(*smtpd.address)
        assert (await reader.readline()).startswith(b"421 4.3.2")
        writer.close()
        assert (await first.submit()).startswith("250")
        assert (await first.ask(b"MAIL FROM:<a@sender.example>")).startswith("450")
        found = await scraped(smtpd)
    assert found["pillarbox_smtpd_shed_total", ("sessions",)] == 1
    assert found["pillarbox_smtpd_shed_total", ("lag",)] == 0
    assert found["pillarbox_smtpd_limited_total", ("message",)] == 1
    assert found["pillarbox_smtpd_replies_total", ("450",)] == 1


async def test_the_metrics_server_is_off_by_default(system: System) -> None:
    smtpd = await system.smtpd()
    assert "metrics" not in smtpd.said("daemon.started")[0]


async def test_ready_follows_the_commits_and_healthy_does_not(tmp_path: Path) -> None:
    with temporary_var() as var:
        uri = embedded.ensure_running(var)
        migrate.migrate(uri, LEAVES)
        system = System(uri, tmp_path)
        try:
            smtpd = await system.smtpd(processes=2, **ON)
            running = embedded.status(var)
            assert running is not None
            os.kill(running.pid, signal.SIGKILL)

            async def refused_everywhere() -> bool:
                async with AsyncExitStack() as stack:
                    for _ in range(6):
                        client = await stack.enter_async_context(Dialogue(smtpd.address[1]))
                        await client.envelope()
                        if (await client.ask(b"DATA")).startswith("354"):
                            await client.ask(b"Subject: x\r\n\r\n.")
                return (await got(smtpd, "/ready"))[0] == 503

            await eventually(refused_everywhere, "no process would commit")
            assert (await got(smtpd, "/healthy"))[0] == 200
            await asyncio.to_thread(embedded.ensure_running, var)

            async def ready() -> bool:
                return await got(smtpd, "/ready") == (200, "ready\n")

            await eventually(ready, "smtpd is ready again")
        finally:
            await system.close()


async def test_an_address_in_use_is_one_clear_line(system: System) -> None:
    first = await system.smtpd(processes=1, **ON)
    taken = first.said("daemon.started")[0]["metrics"]
    with pytest.raises(Exception, match=r"metrics\.listen: 127\.0\.0\.1:\d+: cannot listen"):
        await system.smtpd(processes=2, metrics={"listen": taken})
