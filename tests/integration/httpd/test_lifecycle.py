"""test_lifecycle — httpd starts, reloads, drains and reports as the other daemons do

Owns: proofs about httpd/daemon.py, httpd/reload.py, httpd/process/metrics.py and httpd/server.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, LiteralString
from uuid import uuid4

import httpx
import psycopg
import pytest

from scripts.daemons import DaemonFailed
from tests.fixtures.daemons.api import Api
from tests.fixtures.slow_file import SlowFile
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import Daemon, System
    from tests.fixtures.peers.certificates import Authority

PATH = f"/v1/messages/{uuid4()}"


WAITS: LiteralString = (
    "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE '%httpd'"
)


async def refused(api: Api) -> bool:
    """Whether a new connection is refused."""
    try:
        await (await api.client()).get(PATH)
    except httpx.ConnectError:
        return True
    return False


def changed(daemon: Daemon, system: System, **sections: object) -> None:
    """Lay these sections over the daemon's file."""
    path = system.folder / f"{daemon.name}.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), **sections}))


async def test_a_stop_lets_the_request_end_that_has_begun_and_no_other(api: Api) -> None:
    client = await api.caller("ann", "viewer", kind="person")
    await client.get(PATH)
    # The request waits for a lock that we hold, so it is under way when the signal comes.
    async with await psycopg.AsyncConnection.connect(api.system.uri) as blocker:
        await blocker.execute("LOCK TABLE pillarbox.archive IN ACCESS EXCLUSIVE MODE")
        asking = asyncio.create_task(client.get(PATH))
        await api.system.until(WAITS)
        api.daemon.signal(signal.SIGTERM)
        await api.daemon.until_said("daemon.stopping")
        await eventually(lambda: refused(api), "no connection is accepted")
        await blocker.rollback()
    answer = await asking
    assert answer.status_code == 404
    assert await api.daemon.ended() == 0


async def test_a_reload_uses_what_it_can_and_names_the_rest(api: Api) -> None:
    client = await api.caller("shop")
    assert (await client.get(PATH)).status_code == 404
    changed(api.daemon, api.system, rates={"requests": 1, "window": "1h"}, listen="127.0.0.1:1")
    api.daemon.signal(signal.SIGHUP)
    [ignored] = await api.daemon.until_said("daemon.reload_ignored")
    assert ignored["keys"] == "listen"
    await api.daemon.until_said("daemon.reloaded")
    assert [(await client.get(PATH)).status_code for _ in range(2)] == [404, 429]
    changed(api.daemon, api.system, rates={"requests": "many"})
    api.daemon.signal(signal.SIGHUP)
    [refused] = await api.daemon.until_said("daemon.reload_refused")
    assert "rates.requests" in refused["error"]


@pytest.mark.parametrize("file", ["httpd.yaml", "httpd-rules.yaml"])
async def test_requests_are_answered_while_files_are_read(api: Api, file: str) -> None:
    client = await api.caller("shop")
    slow = SlowFile(api.system.folder / file)
    api.daemon.signal(signal.SIGHUP)
    await slow.reading()
    assert (await client.get(PATH)).status_code == 404
    assert api.daemon.said("daemon.reloaded") == []
    slow.give()
    await api.daemon.until_said("daemon.reloaded")


async def test_metrics_count_answers_and_health_asks_postgresql(system: System) -> None:
    async with Api(system, await system.httpd(metrics={"listen": "127.0.0.1:0"})) as api:
        [started] = await api.daemon.until_said("daemon.started")
        await (await api.client()).get(PATH)
        async with httpx.AsyncClient(base_url=f"http://{started['metrics']}", trust_env=False) as pages:
            assert (await pages.get("/ready")).text == "ready\n"
            assert (await pages.get("/healthy")).text == "healthy\n"
            counted = (await pages.get("/metrics")).text
        assert 'pillarbox_httpd_requests_total{code="401"} 1' in counted
        assert "pillarbox_httpd_keys_refused_total 1" in counted
        assert 'pillarbox_httpd_ready{process="httpd"} 1' in counted


async def test_https_is_served_with_the_configured_certificate(system: System, authority: Authority) -> None:
    daemon = await system.httpd(tls=authority.issue("127.0.0.1"))
    async with httpx.AsyncClient(verify=authority.trust(), trust_env=False) as client:
        answer = await client.get(f"https://127.0.0.1:{daemon.address[1]}{PATH}")
    assert answer.status_code == 401


async def test_a_port_in_use_and_an_unknown_key_are_one_clear_line(api: Api) -> None:
    with pytest.raises(DaemonFailed, match=r"listen: 127\.0\.0\.1:\d+: cannot listen"):
        await api.system.httpd("second", listen=f"127.0.0.1:{api.daemon.address[1]}")
    with pytest.raises(DaemonFailed, match=r"third\.yaml:\d+: lissten"):
        await api.system.httpd("third", lissten="127.0.0.1:0")


async def test_the_description_is_openapi_and_the_page_for_people_loads_nothing(api: Api) -> None:
    client = await api.client()
    described = (await client.get("/v1/openapi.json")).json()
    assert described["openapi"].startswith("3.1.")
    assert "/v1/messages/{id}" in described["paths"]
    assert "ProblemForm" in described["components"]["schemas"]
    page = await client.get("/v1/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "/v1/messages/{id}" in page.text
    assert "<script" not in page.text
    assert "http://" not in page.text.replace(api.url, "")
