"""test_dashboard_shows_a_running_system — a real Prometheus answers every query of the shipped dashboard

Owns: a run of all daemons with mail, scraped by Debian's Prometheus; every query is valid there and finds series.
See: scripts/dev/dashboard.py; tests/unit/pages/test_dashboard.py for the form of the file.
Bugs: Grafana itself does not run here, so that nothing proves how the panels look.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
import yaml

from scripts.dev import dashboard
from scripts.dev.peers import find_peer, how_to_get
from shared.postgres import account_schema
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MAIL: Final = 50
WAITS: Final = "SELECT pillarbox.enqueue('', '{b@b.example}', 'Subject: x', deliver_at => now() + interval '1 day')"
#: Queries that rightly find nothing in this run, with the reason.
EMPTY: Final = {
    "pillarbox_queue_overdue_seconds": "no mail is due",
    "pillarbox_unserved_overdue_seconds": "no mail is unserved",
    "pillarbox_events_total": "nothing is wrong",
    "pillarbox_smtpd_space_free_bytes": "no volume is reported",
    "pillarbox_logins_refused_total": "no next hop asks for a login",
    "pillarbox_smtpd_limited_total": "no limit is reached",
    "pillarbox_smtpd_shed_total": "no client is turned away",
    "pillarbox_smtpd_logins_total": "no client logs in",
}


class Prometheus:
    """A server that scrapes each half second."""

    def __init__(self, folder: Path, targets: list[int]) -> None:
        self.port = free_port()
        program = find_peer("prometheus")
        assert program is not None
        scrape = {"job_name": "pillarbox", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in targets]}]}
        settings = {"global": {"scrape_interval": "500ms", "scrape_timeout": "400ms"}, "scrape_configs": [scrape]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"),
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )

    async def ask(self, client: httpx.AsyncClient, query: str) -> list[Any]:
        """The series that a query finds; none while the server does not answer yet."""
        try:
            answer = await client.get(f"http://127.0.0.1:{self.port}/api/v1/query", params={"query": query})
        except httpx.TransportError:
            return []
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return []
        assert answer.status_code == httpx.codes.OK, answer.text
        found: list[Any] = answer.json()["data"]["result"]
        return found

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard, with its panel, as Grafana sends it for all instances."""
    for panel in json.loads(dashboard.FILE.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$instance", ".*")
            yield panel["title"], text.replace("$__rate_interval", "1m").replace("$__range", "1m")


@pytest.mark.slow
async def test_prometheus_answers_every_query(system: System, books: Books, tmp_path: Path) -> None:
    if find_peer("prometheus") is None:
        pytest.skip(how_to_get("prometheus"))
    ports = [free_port() for _ in range(4)]
    listen = [{"listen": f"127.0.0.1:{port}"} for port in ports]
    smtpd = await system.smtpd(metrics=listen[0])
    await system.worker(books.sink.port, metrics=listen[1])
    httpd = await system.httpd(metrics=listen[2])
    await asyncio.to_thread(account_schema.install, system.uri, "accounts")
    key = tmp_path / "accounts.key"
    key.write_text("cafebabe" * 8)
    key.chmod(0o600)
    await system.collector(
        metrics=listen[3],
        accounts={"schema": "accounts"},
        keys=[{"id": "k", "file": str(key)}],
        mail={verb: f"https://a.example/{verb}?token={{token}}" for verb in ("activate", "recover")}
        | {"sender": "accounts@a.example"},
    )
    prometheus = Prometheus(tmp_path, ports)
    try:
        async with httpx.AsyncClient(timeout=10.0) as client:
            await eventually(
                lambda: _count(prometheus, client, "up == 1", len(ports)), "every daemon is scraped", limit=60
            )
            await books.submit(smtpd, numbered(MAIL))
            await system.rows(WAITS)
            host, port = httpd.address
            await client.get(f"http://{host}:{port}/v1/messages")
            await books.until_arrived(MAIL)
            await asyncio.gather(*(_found(prometheus, client, *each) for each in queries()))
            instances = await prometheus.ask(client, 'count by (instance) ({__name__=~"pillarbox_.+"})')
            assert len(instances) == len(ports)
    finally:
        prometheus.close()


async def _count(prometheus: Prometheus, client: httpx.AsyncClient, query: str, count: int) -> bool:
    return len(await prometheus.ask(client, query)) == count


async def _found(prometheus: Prometheus, client: httpx.AsyncClient, title: str, query: str) -> None:
    """A query is valid, and finds series unless there is a reason."""
    if any(metric in query for metric in EMPTY):
        await prometheus.ask(client, query)
        return
    await eventually(lambda: prometheus.ask(client, query), f"{title} shows something: {query}")
