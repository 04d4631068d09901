"""test_looks — every page of the console in light, dark and at 320 pixels, where nothing sticks out and axe is content

Owns: the walk through all pages with mail in every state; with PILLARBOX_SCREENSHOTS=DIR it writes a picture of each.
See: https://www.w3.org/TR/WCAG21/; https://github.com/dequelabs/axe-core.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from axe_playwright_python.async_playwright import Axe

from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import PASSWORD, post, set_password, signed_in
from tests.fixtures.database.operating import write_config
from tests.fixtures.database.reviewing import hold
from tests.fixtures.peers.web.chromium import browsing
from tests.fixtures.peers.web.http_peer import HttpPeer, verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

_MAIL: Final = (
    b"From: Accounts <accounts@bank-of-example.com>\r\nTo: ann@example.com\r\n"
    b"Subject: =?utf-8?q?Your_caf=C3=A9_invoice_is_overdue?=\r\nMIME-Version: 1.0\r\n"
    b"Authentication-Results: mx.example.com; spf=fail smtp.mailfrom=bank-of-example.com; dkim=none\r\n"
    b"Content-Type: text/html; charset=utf-8\r\n\r\n"
    b'<h1>Dear Ann</h1><p>Please <a href="https://evil.example/pay?id=4711">pay at once</a>.</p>\r\n'
)
_SEEN: Final = (
    ("light", {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}}),
    ("dark", {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}}),
    ("narrow", {"color_scheme": "light", "viewport": {"width": 320, "height": 700}}),
)
#: Numbers in the rows of a table whose headings are not shown, and which have no words of their own.
_BARE: Final = """[...document.querySelectorAll("table")].filter(table => table.tHead && !table.tHead.offsetHeight)
    .flatMap(table => [...table.querySelectorAll("td.number")])
    .filter(cell => cell.offsetHeight && !cell.querySelector(".lead")).map(cell => cell.parentNode.innerText)"""
#: Cells without content in rows of a table whose headings are not shown, which take a line of their own.
_GAPS: Final = """[...document.querySelectorAll("table")].filter(table => table.tHead && !table.tHead.offsetHeight)
    .flatMap(table => [...table.querySelectorAll("td:empty")])
    .filter(cell => cell.offsetHeight).map(cell => cell.parentNode.innerText)"""


async def filled(api: Api, factory: Factory) -> dict[str, str]:
    """The addresses of all pages, after mail in every state and something in every list."""
    write_config(api.system.folder, api.system.uri)
    held = hold(factory, "spam", count=14, message=factory.message(_MAIL), reason="rspamd: score 14.2, reject")
    hold(factory, "attachments", count=3, reason="an executable file")
    factory.rows(60, partid="1")
    slow = factory.rows(23, domain="slow.example", partid="2", tries=4, due=timedelta(minutes=40))
    factory.rows(7, domain="full.example", partid="3", tries=2, due=timedelta(hours=2))
    factory.sql(
        """UPDATE pillarbox.queue SET last_retry = now() - interval '5 min', last_error = CASE recipientdomain
              WHEN 'slow.example' THEN '192.0.2.25:25 said 450 4.7.1 Greylisted, please try again in some minutes'
              ELSE '192.0.2.80:25 said 452 4.2.2 The mailbox is full' END WHERE retry_count > 0"""
    )
    factory.sql(
        """INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid,
                  recipientdomain, size, remote, outcome, scope, reply_code, reply_text, duration, tls, source)
           SELECT now() - n * interval '9 min', id, messages__id, 5 - n, 7, 'w1@mx1:4711', 'default', recipientdomain,
                  size, '192.0.2.25:25', 'deferred', 'recipient', 450, '450 4.7.1 Greylisted, please try again',
                  '0.4 s', 'TLSv1.3 TLS_AES_256_GCM_SHA384 verified', '192.0.2.1'
             FROM pillarbox.queue, generate_series(1, 4) AS n WHERE id = %(id)s""",
        id=slow[0],
    )
    finished(factory)
    admin = await signed_in(api, "ada", "admin")
    await post(admin, "/console/account", "/console/queue/views", act="keep", name="slow", condition="tries>3", by="")
    form = {"verb": "release", "id": [held[-1]], "reason": "a known customer"}
    sent = await post(admin, "/console/account", "/console/decide", **form)
    await post(
        admin, "/console/account", "/console/suspends", act="add", destination="slow.example", reason="they ask for it"
    )
    await post(
        admin, "/console/account", "/console/suppressions", act="add", targets="gone@example.net", reason="has left"
    )
    await post(admin, "/console/account", "/console/webhooks", act="add", name="crm", url="https://crm.example/hook")
    await post(admin, "/console/account", "/console/keys", act="add", principal="ada", reason="a script")
    return {
        "sign-in": "sign-in",
        "provider-away": "sign-in/provider?next=/console/queue",
        "now": "now",
        "queue": "queue",
        "queue-condition": "queue?condition=state%3DDEFER",
        "queue-error": "queue?condition=state%3DDEFERED",
        "queue-groups": "queue?by=recipientdomain,state",
        "history": "history",
        "history-found": "history?condition=result%3Dfailed",
        "report": "history/report?since=2026-11-01T00:00:00%2B00:00&until=2026-11-08T00:00:00%2B00:00",
        "recipient": f"queue/{slow[0]}",
        "act": "act?verb=hold&all=yes&condition=recipientdomain%3Dslow.example",
        "quarantines": "quarantine",
        "held": "held",
        "message": f"held/{held[0]}",
        "block": f"held/{held[0]}/block",
        "blocked": "blocked",
        "decide": f"decide?verb=delete&id={held[0]}&id={held[1]}",
        "decided": sent.headers["location"].removeprefix("/console/"),
        "gone": f"held/{held[-1]}",
        "missing": "queue/99",
        **{
            name: name
            for name in ("suspends", "suppressions", "schedules", "deadletters", "webhooks", "keys", "people")
        },
        "audit": "audit",
        "account": "account",
        "configuration": "configuration",
    }


def finished(factory: Factory) -> None:
    """Some mail that is finished, a report, the last minutes of a stream, and daemons of which one is silent."""
    factory.sql(
        """INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderlocalpart,
                  senderdomain, recipientlocalpart, recipientdomain, size, transportid, priority, retry_count,
                  last_error, subject)
           SELECT 1000000 + n, gen_random_uuid(), 1, now() - n * interval '3 min', 'failed', now() - interval '5 h',
                  'shop', 'example.com', 'ann' || n, 'gone.example', 4711, 'default', 0, 3,
                  '192.0.2.25:25 said 550 5.1.1 This mailbox does not exist here', 'Your invoice ' || n
             FROM generate_series(1, 12) AS n"""
    )
    factory.sql(
        """INSERT INTO pillarbox.reports (since, until, section, made, origin, more, columns, rows)
           SELECT '2026-11-01Z', '2026-11-08Z', section, now(), 'lake', false, '["domain", "recipients", "p99"]',
                  (SELECT jsonb_agg(jsonb_build_object('domain', 'destination' || n || '.example',
                                                       'recipients', n * 4711, 'p99', n * 1.37))
                     FROM generate_series(1, 6) AS n)
             FROM unnest(ARRAY['destinations', 'time_to_deliver']) AS section"""
    )
    factory.sql(
        """INSERT INTO pillarbox.report_minutes (minute, outcome, attempts, seconds)
           SELECT date_trunc('minute', now()) - n * interval '1 min', outcome, 7 * usual + n * n % (3 * usual), 12.5
             FROM generate_series(1, 58) AS n,
                  (VALUES ('delivered', 41), ('deferred', 7), ('failed', 2)) AS o(outcome, usual)"""
    )
    factory.sql(
        """INSERT INTO pillarbox.workers (worker, id, host, pid, where_condition, started, seen, beat, lease, poll)
           SELECT id || '@mx1:4711-1', id, 'mx1', 4711, condition, now() - interval '9 days', now(), '1 h', '5 min',
                  '30 s'
             FROM (VALUES ('queued-123', $$metadata->>'_partid' IN ('1','2','3')$$),
                          ('queued-456', $$metadata->>'_partid' IN ('4','5','6') OR metadata->>'_partid' IS NULL$$))
               AS w(id, condition)"""
    )
    factory.sql(
        """INSERT INTO pillarbox.daemons
           SELECT id || '@' || host || ':4711-1', kind, id, version, host, 4711, session_user,
                  now() - interval '9 days', now() - silent, '1 h', accepted, delivered, '{2,9,31}', '{0,1,4}',
                  destinations, attempts, allowed, waiting
             FROM (VALUES ('smtpd', 'smtpd', 'mx1', '0.1.0', '0 s'::interval, '{1711,8300,24913}'::bigint[],
                           '{0,0,0}'::bigint[], '{}'::text[], '{}'::int[], '{}'::int[], '{}'::int[]),
                          ('httpd', 'httpd', 'mx1', '0.0.9', '0 s', '{12,60,187}', '{0,0,0}', '{}', '{}', '{}', '{}'),
                          ('collect', 'collect', 'mx2', '0.1.0', '9 h', '{0,0,0}', '{0,0,0}', '{}', '{}', '{}', '{}'),
                          ('queued', 'queued-123', 'mx1', '0.1.0', '0 s', '{0,0,0}', '{1703,8291,24877}',
                           '{slow.example,relay.example,full.example}', '{2,18,0}', '{5,20,0}', '{40,0,0}'),
                          ('queued', 'queued-456', 'mx1', '0.1.0', '0 s', '{0,0,0}', '{13,61,190}',
                           '{slow.example}', '{1}', '{5}', '{0}'))
               AS d(kind, id, host, version, silent, accepted, delivered, destinations, attempts, allowed, waiting)"""
    )


async def serious(page: Page) -> list[str]:
    """What axe finds that keeps people from using the page."""
    found: dict[str, Any] = (await Axe().run(page)).response
    return [
        f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in {"serious", "critical"}
    ]


@pytest.fixture
async def api(system: System) -> AsyncIterator[Api]:
    """An httpd whose content check answers, with a provider at which people sign in and which does not answer."""
    symbols = {"BAYES_SPAM": {"score": 5.1}, "R_SPF_FAIL": {"score": 1.0}}
    async with HttpPeer(verdict("reject", 14.2, symbols=symbols)) as peer:
        rules = {"policy": {"contentcheck": {"url": peer.url}}}
        oidc = {"issuer": "https://127.0.0.1:1", "audience": "pillarbox", "client": {"id": "console"}}
        async with Api(system, await system.httpd(smtpd=rules, oidc=oidc)) as running:
            yield running


class Looks:
    """What is wrong with pages, and their pictures."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: for the pictures; None: none are taken."""
        self._folder = folder
        self.wrong: dict[str, object] = {}

    async def at(self, page: Page, name: str) -> None:
        """Look at this page, which the browser shows."""
        if found := await serious(page):
            self.wrong[name] = found
        wide = await page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth")
        if wide > 0:
            self.wrong[f"{name} sticks out"] = wide
        if gaps := await page.evaluate(_GAPS):
            self.wrong[f"{name} has lines for empty cells"] = gaps
        if bare := await page.evaluate(_BARE):
            self.wrong[f"{name} has numbers of which nothing says what they are"] = bare
        if self._folder is not None:
            await page.screenshot(path=self._folder / f"{name}.png", full_page=False)


async def test_every_page_can_be_used_in_light_dark_and_at_320_pixels(api: Api, factory: Factory) -> None:
    pages = await filled(api, factory)
    await set_password(api, "otto", "admin")
    folder = os.environ.get("PILLARBOX_SCREENSHOTS")
    looks = Looks(Path(folder) if folder else None)
    async with browsing() as first:
        browser = first.context.browser
        assert browser is not None
        for name, settings in _SEEN:
            context = await browser.new_context(**settings)  # type: ignore[arg-type]
            page = await context.new_page()
            await page.goto(f"{api.url}/console/{pages['sign-in']}")
            await looks.at(page, f"sign-in-{name}")
            await page.get_by_label("Name").fill("otto")
            await page.get_by_label("Password").fill(PASSWORD)
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_url("**/console/now")
            for what, path in pages.items():
                if what != "sign-in":
                    await page.goto(f"{api.url}/console/{path}", wait_until="load")
                    await looks.at(page, f"{what}-{name}")
            await page.goto(f"{api.url}/console/{pages['message']}")
            await page.get_by_role("button", name="Check again").click()
            await page.wait_for_url("**/rescan")
            await looks.at(page, f"rescanned-{name}")
            await context.close()
    assert looks.wrong == {}
