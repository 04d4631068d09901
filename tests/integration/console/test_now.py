"""test_now — the console's first page: what it shows, and that it renews itself for everybody from one reading

Owns: proofs about httpd/console/now.py, httpd/live.py and operate/now.py, in a browser too.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import PASSWORD, set_password, signed_in
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.web.chromium import browsing
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory


async def figures(answer: httpx.Response) -> AsyncIterator[str]:
    """The figures of a stream, as they come."""
    event: list[str] = []
    async for line in answer.aiter_lines():
        if line:
            event.append(line)
        elif event:
            if event[0] == "event: figures":
                yield "\n".join(each.removeprefix("data: ") for each in event[1:])
            event = []


async def test_the_page_shows_states_destinations_and_partitions_without_a_worker(api: Api, factory: Factory) -> None:
    factory.rows(3, domain="slow.example", partid="7", tries=2, due=timedelta(hours=1))
    factory.sql("UPDATE pillarbox.queue SET last_error = '450 <b>later</b>'")
    factory.rows(2, partid="8", due=timedelta(minutes=-30))
    factory.rows(1, status="HOLD")
    factory.sql(
        """INSERT INTO pillarbox.unserved (queue__id, leaf, partid, due, noted)
           VALUES (1, 'queue_def_8', '8', now() - interval '30 min', now() - interval '1 h')"""
    )
    factory.sql(
        """INSERT INTO pillarbox.suspends (selection, reason, who, made)
           VALUES ('{"destination": ["slow.example"]}', 'test', 'olga', now())"""
    )
    client = await signed_in(api, "vera", "viewer")
    page = (await client.get("/console/now")).text
    assert "No worker serves partition 8" in page
    assert "450 &lt;b&gt;later&lt;/b&gt;" in page
    assert re.search(r"slow\.example</bdi></a> <b>suspended</b><td class=\"number\">3", page)
    for state, count in (("DEFER", 3), ("ACTIVE", 2), ("HOLD", 1)):
        assert re.search(rf'{state}</a><td class="number">{count}<td>', page), state


async def test_the_page_shows_what_daemons_report_about_themselves(api: Api, factory: Factory) -> None:
    factory.rows(2)
    factory.sql(
        """INSERT INTO pillarbox.daemons
           SELECT id || '@mx1:' || pid, 'queued', id, '0.0.9', 'mx1', pid, session_user, now() - silent, now() - silent,
                  '1 min',
                  '{0,0,0}', '{10,200,70000}', '{0,0,0}', '{0,0,0}', '{slow.example,<b>.example}', '{2,0}', '{5,0}',
                  '{40,0}'
             FROM (VALUES ('w1', 1, '0 s'::interval), ('w2', 2, '0 s'), ('w2', 3, '1 h'), ('w3', 4, '2 h'))
                  AS d(id, pid, silent)"""
    )
    client = await signed_in(api, "vera", "viewer")
    page = re.sub(r'<span class="lead">[^<]*</span>', "", (await client.get("/console/now")).text)
    rows = [re.sub(r"<[^>]+>", " ", row.partition("</tr>")[0]).split() for row in page.split("<tr>")]
    assert ["delivered", "20", "400", "140,000"] in rows, "those that are alive, together"
    assert ["accepted", "2", "2", "2"] in rows, "mail that no daemon has counted"
    assert ["slow.example", "4", "10", "80", "2"] in rows
    assert ["&lt;b&gt;.example", "does", "not", "answer", "0", "0", "0", "2"] in rows
    daemons = [row[:4] for row in rows if "mx1" in row]
    assert daemons == [
        ["w1", "mx1", "0.0.9", "alive"],
        ["w2", "mx1", "0.0.9", "alive"],
        ["w3", "mx1", "0.0.9", "silent"],
    ]
    assert '<b class="error">0.0.9</b>' in page, "not the version of this httpd"
    assert "none has signed on" in page, "smtpd"


async def test_the_minutes_that_a_stream_counted_are_a_chart(api: Api, factory: Factory) -> None:
    client = await signed_in(api, "vera", "viewer")
    assert "The last hour" not in (await client.get("/console/now")).text
    factory.sql(
        """INSERT INTO pillarbox.report_minutes (minute, outcome, attempts, seconds)
           SELECT date_trunc('minute', now()) - ago * interval '1 minute', outcome, attempts, 1
             FROM (VALUES (2, 'delivered', 30), (2, 'failed', 10), (9, 'deferred', 5), (90, 'delivered', 7000))
                  AS m (ago, outcome, attempts)"""
    )
    async with asyncio.timeout(PATIENCE), client.stream("GET", "/console/now/events") as answer:
        async for page in figures(answer):
            if "The last hour" in page:
                break
    assert 'aria-label="30 delivered, 5 deferred, 10 failed, at most 40 in a minute"' in page
    assert len(re.findall(r'<rect class="(?:delivered|deferred|failed)" x="\d+" y="[\d.]+" width="4"', page)) == 3


async def test_all_viewers_get_the_same_reading_and_see_mail_that_comes(api: Api, factory: Factory) -> None:
    client = await signed_in(api, "vera", "viewer")
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        streams = []
        for _ in range(5):
            answer = await stack.enter_async_context(client.stream("GET", "/console/now/events"))
            assert answer.headers["content-type"].startswith("text/event-stream")
            streams.append(figures(answer))
        factory.rows(4)
        # The reading that first shows the mail is the same one for all, to the microsecond.
        seen = set()
        for stream in streams:
            async for text in stream:
                if "ACTIVE" in text:
                    seen.add(re.findall(r'Read <time datetime="([^"]+)"', text)[0])
                    break
        assert len(seen) == 1


async def test_a_viewer_does_not_keep_httpd_from_stopping(api: Api) -> None:
    client = await signed_in(api, "vera", "viewer")
    async with asyncio.timeout(PATIENCE), client.stream("GET", "/console/now/events") as answer:
        stream = figures(answer)
        await anext(stream)
        assert await api.daemon.stop() == 0
    assert not [said for said in api.daemon.said("daemon.waiting") if said["step"] == "requests"]


@pytest.mark.parametrize("processes", [1, 2])
async def test_the_page_in_a_browser_goes_on_after_a_restart_of_httpd(
    system: System, factory: Factory, processes: int
) -> None:
    """With two processes, the stream may come from one, and the page from another."""
    daemon = await system.httpd(listen=f"127.0.0.1:{free_port()}", processes=processes)
    async with Api(system, daemon) as api, browsing() as page:
        await set_password(api, "vera", "viewer")
        await page.goto(api.url)
        await page.get_by_label("Name").fill("vera")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#connection")).to_have_text("live", timeout=30_000)
        await expect(page.get_by_text("Nothing is queued.")).to_be_visible()
        factory.rows(3)
        await expect(page.get_by_role("row", name="ACTIVE")).to_contain_text("3", timeout=30_000)
        await daemon.kill()
        await expect(page.locator("#connection")).to_contain_text("the connection is lost", timeout=30_000)
        factory.rows(2)
        await daemon.start()
        await expect(page.get_by_role("row", name="ACTIVE")).to_contain_text("5", timeout=60_000)
        await expect(page.locator("#connection")).to_have_text("live")
