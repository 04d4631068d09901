"""test_collect_metrics — Prometheus sees what a collector collects and what waits for it; the alert fires for a wait"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import yaml

from tests.fixtures.database.accounts import aged
from tests.fixtures.peers.web.scrape import Samples, samples
from tests.fixtures.waiting import eventually
from tests.integration.accounts.test_accounts_command import count, daemon, write

if TYPE_CHECKING:
    from tests.fixtures.database.accounts import Accounts

_ALERTS = Path(__file__).parents[3] / "deploy" / "prometheus-alerts.yml"
_ON: dict[str, Any] = {"metrics": {"listen": "127.0.0.1:0", "refresh": "1ms"}}


async def address(log: Path) -> str:
    """Where the collector answers."""
    await eventually(lambda: "daemon.started" in log.read_text(), "it runs")
    return "http://" + log.read_text().partition(" metrics=")[2].split()[0].strip('"')  # noqa: ASYNC240 - a small file


async def got(base: str, page: str) -> httpx.Response:
    """One page, asked as Prometheus would."""
    async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
        return await client.get(page)


async def scraped(base: str) -> Samples:
    """The metrics."""
    return samples((await got(base, "/metrics")).text)


async def test_a_scrape_agrees_with_the_tokens(accounts_beside_queue: Accounts, tmp_path: Path) -> None:
    accounts = accounts_beside_queue
    write(tmp_path, accounts.uri, **_ON)
    async with daemon(tmp_path):
        base = await address(tmp_path / "log")

        async def ready() -> bool:
            return (await scraped(base))["pillarbox_collect_listening", ()] == 1

        await eventually(ready, "it listens")
        assert (await got(base, "/ready")).text == "ready\n"
        assert (await got(base, "/healthy")).text == "healthy\n"
        for name in ("one", "two", "three"):
            accounts.add(name)
        accounts.add("bad", email="a..b@example.com")
        await eventually(lambda: count(accounts) == 3, "their mail is queued")
        await eventually(
            lambda: accounts.one("SELECT count(*) = 0 FROM tokens WHERE collected_at IS NULL"), "all are collected"
        )

        async def counted() -> bool:
            return (await scraped(base))["pillarbox_collect_tokens_total", ()] == 4

        await eventually(counted, "the last COMMIT is counted")
        figures = await scraped(base)
    assert figures["pillarbox_collect_refused_total", ()] == 1
    assert figures["pillarbox_collect_batch_tokens_sum", ()] == 4
    assert figures["pillarbox_events_total", ("collect.refused", "error")] == 1
    assert figures["pillarbox_tokens_known", ()] == 1
    assert figures["pillarbox_tokens_waiting", ("activation",)] == 0
    assert figures["pillarbox_tokens_waiting", ("password_recovery",)] == 0


async def test_a_token_that_waits_raises_the_alert(accounts_beside_queue: Accounts, tmp_path: Path) -> None:
    accounts = accounts_beside_queue
    [rule] = [
        each
        for each in yaml.safe_load(_ALERTS.read_text())["groups"][0]["rules"]
        if each["alert"] == "PillarboxTokensWait"
    ]
    metric, _, bound = rule["expr"].removeprefix("max by (action) (").replace(")", "").partition(" > ")
    accounts.add()
    aged(accounts, 500)
    write(tmp_path, accounts.uri, **_ON)
    with accounts.session() as locking:
        locking.execute("BEGIN")
        locking.execute("SELECT FROM tokens FOR UPDATE")  # so collectors pass it over
        async with daemon(tmp_path):
            base = await address(tmp_path / "log")
            assert (await scraped(base))[metric, ("activation",)] > float(bound), "it fires"
            locking.execute("ROLLBACK")
            await eventually(lambda: count(accounts) == 1, "its mail is queued")

            async def quiet() -> bool:
                return (await scraped(base))[metric, ("activation",)] < float(bound)

            await eventually(quiet, "it ends")
