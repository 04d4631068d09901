"""test_browser — the console in a real Chromium: a reviewer's walk, the keys, and mail that wants to reach out

Owns: proofs about the pages as people see them, and that a hostile message makes no browser ask anybody anything.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from playwright.async_api import expect

from httpd.console.body import HEADERS
from tests.fixtures.daemons.console import PASSWORD, link, set_password
from tests.fixtures.database.reviewing import hold
from tests.fixtures.peers.web.chromium import browsing
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from playwright.async_api import Page

    from tests.fixtures.daemons.api import Api
    from tests.fixtures.database.factory import Factory

#: Each would fetch, or send, something of this listener; {} is its address.
HOSTILE: Final = [
    '<img src="{}/img">',
    '<img srcset="{}/srcset 1x">',
    '<picture><source srcset="{}/source"><img></picture>',
    '<p style="background-image:url({}/style)">styled</p>',
    "<style>@import url({}/import); @font-face{{font-family:f;src:url({}/font)}} p{{font-family:f}}</style><p>font</p>",
    '<link rel="stylesheet" href="{}/stylesheet">',
    '<link rel="prefetch" href="{}/prefetch"><link rel="preload" as="image" href="{}/preload">',
    '<link rel="icon" href="{}/icon">',
    '<script src="{}/script"></script>',
    "<script>fetch('{}/fetch'); new Image().src='{}/object'; top.location='{}/top'</script>",
    '<img src="x:" onerror="fetch(\'{}/onerror\')">',
    '<svg width="9" height="9"><image href="{}/svg" width="9" height="9"/></svg>',
    '<iframe src="{}/iframe"></iframe><iframe srcdoc="&lt;img src={}/srcdoc&gt;"></iframe>',
    '<object data="{}/data"></object><embed src="{}/embed">',
    '<video src="{}/video" poster="{}/poster" autoplay></video><audio src="{}/audio" autoplay></audio>',
    '<table background="{}/background"><tr><td>cell</td></tr></table>',
    '<input type="image" src="{}/input">',
    '<form action="{}/form" id="f"></form><script>f.submit()</script>',
    '<meta http-equiv="refresh" content="0;url={}/refresh">',
    '<base href="{}/base/"><img src="relative">',
]
#: In those that would leave the page, so that the others could not be heard.
LEAVING: Final = ("top.location", "submit()", "refresh")


class Listener:
    """A server on loopback that has two pages of its own, and notes what else it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.address = ""
        self.pages: dict[str, tuple[Mapping[str, str], str]] = {}  # header fields and HTML, by path

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, which counts if it asks anything but a page."""
        with suppress(ConnectionError):
            line = (await reader.readline()).decode("latin-1")
            path = line.split(" ")[1] if " " in line else "(nothing)"
            headers, html = self.pages.get(path, ({}, ""))
            if path not in self.pages and path != "(nothing)":
                self.asked.append(path)
            fields = {**headers, "Content-Type": "text/html", "Content-Length": str(len(html)), "Connection": "close"}
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n{html}".encode())
            await writer.drain()
        writer.close()


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    """A listener that a message must not reach."""
    listener = Listener()
    server = await asyncio.start_server(listener.answer, "127.0.0.1", 0)
    listener.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield listener
    finally:
        server.close()


async def sign_in(page: Page, api: Api) -> None:
    """As a person does it."""
    await page.goto(api.url)
    await page.get_by_label("Name").fill("rita")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()


async def test_a_reviewer_who_has_never_seen_it_releases_deletes_and_undoes(api: Api, factory: Factory) -> None:
    content = b"Subject: =?utf-8?q?Caf=C3=A9?=\r\nContent-Type: text/html\r\n\r\n<p>Dear <b>Ann</b></p>\r\n"
    one, two, three = hold(factory, "spam", count=3, message=factory.message(content))
    path = await link(api, "rita", "reviewer")
    async with browsing() as page:
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        await page.goto(f"{api.url}{path}")
        await page.get_by_label("Password, of").fill(PASSWORD)
        await page.get_by_label("The same again").fill(PASSWORD)
        await page.get_by_role("button", name="Set the password").click()
        await page.get_by_role("link", name="spam").click()
        await page.get_by_role("link", name="Café").first.click()
        frame = page.frame_locator("iframe")
        await expect(frame.locator("b")).to_have_text("Ann")
        await page.get_by_role("button", name="Release").click()
        await page.get_by_label("Reason").fill("ours")
        await page.get_by_role("button", name="Release 1 recipient").click()
        await expect(page.get_by_role("status")).to_contain_text("1 recipient of 1 changed, by rita")
        assert factory.queue(one)[0].status == "DELIVER"
        await page.get_by_role("button", name="Undo").click()
        await expect(page.get_by_role("status")).to_contain_text("It undid")
        assert factory.queue(one)[0].status == "HOLD"

        # The second and the third with the keys alone: down, down, select, up, down, down, select.
        await page.get_by_role("link", name="Back to the list").click()
        await expect(page.get_by_text("Keys:")).to_be_visible()  # the script has shown it
        for key in "jjxkjjx":
            await page.keyboard.press(key)
        await page.keyboard.press("d")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Delete 2 recipients?")
        await page.wait_for_load_state()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status")).to_contain_text("2 recipients of 2 changed")
        await page.wait_for_load_state()
        await page.keyboard.press("u")
        await expect(page.locator("tr[data-id]")).to_have_count(1)
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert wrong == []
    assert [row.status for row in factory.queue(one, two, three)] == ["HOLD", "DELETE", "DELETE"]


async def test_the_pages_work_without_scripts_and_fit_a_narrow_window(api: Api, factory: Factory) -> None:
    [held] = hold(factory, "spam", reason="x" * 200)
    await set_password(api, "rita", "reviewer")
    async with browsing() as scripted:
        browser = scripted.context.browser
        assert browser is not None
        context = await browser.new_context(java_script_enabled=False, viewport={"width": 320, "height": 640})
        page = await context.new_page()
        await sign_in(page, api)
        for path in ("quarantine", "held", f"held/{held}", f"decide?verb=release&id={held}", "account"):
            await page.goto(f"{api.url}/console/{path}")
            box = await page.locator("main").bounding_box()
            assert box is not None
            assert box["width"] <= 320, path
        await page.goto(f"{api.url}/console/held")
        await page.get_by_label(f"Select {held}").check()
        await page.get_by_role("button", name="Delete selected").click()
        await page.get_by_role("button", name="Delete 1 recipient").click()
        await expect(page.get_by_role("status")).to_contain_text("1 recipient of 1 changed")
    assert factory.queue(held)[0].status == "DELETE"


async def test_hostile_mail_makes_the_browser_ask_nobody_anything(api: Api, factory: Factory) -> None:
    await set_password(api, "rita", "reviewer")
    async with listening() as listener, browsing() as page:
        attacks = [each.replace("{{", "{").replace("}}", "}").replace("{}", listener.address) for each in HOSTILE]
        every = "<p>hello</p>" + "".join(attacks)
        await sign_in(page, api)
        for each in (every, *attacks):
            content = f"Subject: hostile\r\nContent-Type: text/html\r\n\r\n<p>hello</p>{each}\r\n".encode()
            [held] = hold(factory, "spam", message=factory.message(content))
            await page.goto(f"{api.url}/console/held/{held}")
            await expect(page.frame_locator("iframe").locator("p").first).to_have_text("hello")
            assert page.url == f"{api.url}/console/held/{held}"
        await page.wait_for_load_state("networkidle")
        assert listener.asked == []

        # The answer's own policy suffices: the same without cleaning, on an answer with these header fields.
        listener.pages["/unclean"] = HEADERS, every
        await page.goto(f"{listener.address}/unclean", wait_until="networkidle")
        assert [path for path in listener.asked if path != "/favicon.ico"] == []

        # The listener hears what an unprotected page asks.
        listener.pages["/open"] = {}, "".join(each for each in attacks if not any(word in each for word in LEAVING))
        await page.goto(f"{listener.address}/open", wait_until="commit")
        wanted = {"/img", "/srcset", "/style", "/stylesheet", "/script", "/svg", "/iframe", "/data", "/background"}
        await eventually(lambda: wanted <= set(listener.asked), "the unprotected page asks for everything")
