"""test_history — people find in the console what is finished, read reports, and keep views of the queue

Owns: proofs about httpd/console/history.py, operate/queue/finished.py, and the views and completion of queue.py.
"""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.fixtures.daemons.console import PASSWORD, path_of, post, set_password, signed_in
from tests.fixtures.peers.web.chromium import browsing

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api
    from tests.fixtures.database.factory import Factory

_ARCHIVED = """
INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderlocalpart, senderdomain,
            recipientlocalpart, recipientdomain, size, metadata, transportid, priority, retry_count, msgid,
            subject)
SELECT 1000000 + n, gen_random_uuid(), 1, now() - n * interval '1 minute',
       CASE mod(n, 3) WHEN 0 THEN 'failed' ELSE 'success' END, now() - interval '1 day',
       'shop', 'example.com', 'u' || n,
       CASE mod(n, 2) WHEN 0 THEN 'a.example' ELSE 'b.example' END, 1000, '{"_partid": "1"}', 'default', 0, 1,
       'm' || n || '@shop', 'Invoice ' || n
  FROM generate_series(1, 120) AS n
"""
_REPORT = """
INSERT INTO pillarbox.reports (since, until, section, made, origin, more, columns, rows)
VALUES ('2026-11-01Z', '2026-11-08Z', 'outcomes', now(), 'postgresql', false, '["domain", "success_rate"]',
        %(rows)s::jsonb)
"""
_NUMBER = re.compile(r'href="/console/queue/(\d+)"')


async def test_finished_mail_is_found_by_its_columns_page_by_page_and_reports_are_shown(
    api: Api, factory: Factory
) -> None:
    factory.sql(_ARCHIVED)
    factory.sql(_REPORT, rows=json.dumps([{"domain": "<b>a.example", "success_rate": 0.98765}]))
    client = await signed_in(api, "vera", "viewer")

    async def found(condition: str) -> tuple[list[int], str]:
        page = (await client.get("/console/history", params={"condition": condition})).text
        return [int(each) - 1_000_000 for each in _NUMBER.findall(page)], page

    for condition, wanted in (
        ("msgid=m17@shop", [17]),
        ("<m17@shop>", [17]),
        ('subject="Invoice 18"', [18]),
        ("recipient=u19@b.example", [19]),
        ("recipient~u12", [12, 120]),
        ("sender=shop@example.com result=failed finished>now-10m30s", [3, 6, 9]),
        ("id=1000020 or id=1000021", [20, 21]),
        ("msgid=m17@other", []),
    ):
        assert (await found(condition))[0] == wanted, condition
    assert "No finished mail fits" in (await found("recipientdomain=nowhere.example"))[1]

    ids, page = await found("recipientdomain=a.example")
    assert ids == list(range(2, 102, 2))
    more = re.search(r'href="([^"]+)" rel="next"', page)
    assert more
    rest = (await client.get(html.unescape(more[1]))).text
    assert [int(each) - 1_000_000 for each in _NUMBER.findall(rest)] == list(range(102, 121, 2))
    assert 'rel="next"' not in rest

    wrong = await client.get("/console/history?condition=state%3DDEFER")
    assert (wrong.status_code, "unknown field state" in wrong.text, "^" in wrong.text) == (422, True, True)
    assert (await client.get("/console/history?condition=age%3E1h&after=x")).status_code == 404

    start = (await client.get("/console/history")).text
    report = re.search(r'href="(/console/history/report\?[^"]+)"', start)
    assert report
    shown = (await client.get(html.unescape(report[1]))).text
    assert "&lt;b&gt;a.example" in shown
    assert "0.9877" in shown
    assert (await client.get("/console/history/report?since=x&until=y")).status_code == 404
    assert (await client.get("/console/history/report?since=2026-01-01&until=2026-01-02")).status_code == 404


async def test_views_are_kept_for_each_person_and_forgotten(api: Api, factory: Factory) -> None:
    vera, olga = await signed_in(api, "vera", "viewer"), await signed_in(api, "olga", "operator")
    page, address = "/console/queue?condition=state%3DDEFER", "/console/queue/views"
    kept = await post(vera, page, address, act="keep", name="my <view>", condition="state=DEFER", by="recipientdomain")
    assert (kept.status_code, path_of(kept)) == (303, "/console/queue?condition=state%3DDEFER&by=recipientdomain")
    shown = (await vera.get("/console/queue")).text
    assert "my &lt;view&gt;" in shown
    assert "Forget the view" in (await vera.get(path_of(kept))).text
    assert "my &lt;view&gt;" not in (await olga.get("/console/queue")).text
    await post(olga, page, address, act="forget", name="my <view>")
    assert "my &lt;view&gt;" in (await vera.get("/console/queue")).text
    for bad in ({"name": ""}, {"name": "x" * 61}, {"name": "x", "condition": "state=DEFERED"}):
        refused = await post(vera, page, address, **{"act": "keep", "condition": "", "by": "", **bad})
        assert refused.status_code == 422, bad
    factory.sql("INSERT INTO pillarbox.web_views SELECT 'vera', n::text, '', '' FROM generate_series(1, 49) AS n")
    full = await post(vera, page, address, act="keep", name="one more", condition="", by="")
    assert (full.status_code, "50 views already" in full.text) == (422, True)
    again = await post(vera, page, address, act="keep", name="my <view>", condition="age>1d", by="")
    assert again.status_code == 303
    await post(vera, page, address, act="forget", name="my <view>")
    assert "my &lt;view&gt;" not in (await vera.get("/console/queue")).text


async def test_a_condition_is_completed_word_by_word_with_what_is_known(api: Api, factory: Factory) -> None:
    factory.rows(1)
    factory.sql("INSERT INTO pillarbox.transports (id, seen) VALUES ('bulk mail', now())")
    await set_password(api, "vera", "viewer")

    async with browsing() as page:
        await page.goto(f"{api.url}/console/queue")
        await page.get_by_label("Name").fill("vera")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in").click()
        condition = page.get_by_label("Condition")

        async def offered(typed: str) -> list[str]:
            await condition.fill(typed)
            options: list[str] = await page.eval_on_selector_all("#words option", "all => all.map(each => each.value)")
            return options

        assert await offered("sta") == ["state=ACTIVE", "state=SCHEDULED", "state=SENDING", "state=DEFER",
                                        "state=HOLD", "state=DELETE", "state=BOUNCE"]  # fmt: skip
        assert await offered("age>1h state=DEF") == ["age>1h state=DEFER"]
        assert await offered("age>1h or (tra") == ['age>1h or (transport="bulk mail"']
        assert "age>1h size>" in await offered("age>1h size")
        assert "state!=HOLD" in await offered("state!=H")
        assert "not partition=1" in await offered("not partition=")
        await offered("state=ACTIVE partition=1")
        await page.get_by_role("button", name="Show").click()
        await page.get_by_label("Keep this view as").fill("ready")
        await page.get_by_role("button", name="Keep").click()
        await expect(page.get_by_role("link", name="ready")).to_have_attribute("aria-current", "page")
