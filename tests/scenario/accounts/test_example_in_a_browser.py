"""test_example_in_a_browser — a person signs up, follows the link of the mail, forgets the password and recovers it

Owns: a run of docs/examples/accounts/app.py beside `pillarbox up` on the embedded database, whose sink takes the mail.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from operate.mime.render import render
from scripts.cli import main
from scripts.sink.show import folder as of_sink
from scripts.sink.store import Store
from shared.postgres.embedded import embedded
from tests.fixtures.daemons.running_up import Up
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.peers.web.chromium import browsing, chromium
from tests.fixtures.servers.postgres import temporary_var
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

_LISTENING: Final = re.compile(r"running on (http://127\.0\.0\.1:\d+)")
NO_FIELDS: Final[Mapping[str, str]] = {}
_LINK: Final = re.compile(r"http://127\.0\.0\.1:\d+/\S+token=\S+")


def configure(folder: Path, var: Path, application: str) -> None:
    """Every file of `pillarbox up`, with a collector whose links lead to the application."""
    environment = {"database": {"uri": "embedded:"}, "var": str(var)}
    files: dict[str, dict[str, Any]] = {
        "smtpd": {"servers": [{"hostname": "mx.test", "listeners": [{"port": 0}]}]},
        "queued": {"workers": [{"id": "w", "where": "true"}], "claim": {"poll": "500ms"}},
        "collect": {
            "enabled": True,
            "accounts": {"schema": "accounts"},
            "keys": [{"id": "2026-11", "file": str(folder / "accounts.key")}],
            "mail": {
                "sender": "accounts@example.com",
                "activate": f"{application}/activate?token={{token}}",
                "recover": f"{application}/recover?token={{token}}",
            },
        },
    }
    for name, sections in files.items():
        (folder / f"{name}.yaml").write_text(json.dumps({"environment": environment, **sections}))


@asynccontextmanager
async def application(folder: Path, uri: str) -> AsyncIterator[str]:
    """The example as its first lines say; where it answers."""
    command = ("-m", "uvicorn", "--app-dir", "docs/examples/accounts", "app:app", "--port", "0")
    given = {"DATABASE_URI": uri, "ACCOUNTS_KEY": str(folder / "accounts.key")}
    log = folder / "application.log"
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, cwd=ROOT, env={**os.environ, **given}, stderr=written, stdout=written
        )
    try:
        await eventually(lambda: _LISTENING.search(log.read_text()), "the application answers")
        found = _LISTENING.search(log.read_text())
        assert found
        yield found[1]
    finally:
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            await process.wait()
    assert "Traceback" not in log.read_text(), log.read_text()


async def mailed(var: Path, subject: str) -> str:
    """The text of the one mail with this subject, once the sink has it."""
    store = Store(of_sink(var))

    def taken() -> list[Any]:
        every = (store.read(number) for number in store.numbers())
        return [each for each in every if each and each.subject == subject]

    await eventually(taken, f"the sink has {subject!r}")
    [mail] = taken()
    return render(mail.file.read_bytes()).text


@pytest.mark.slow
async def test_from_the_form_to_an_active_account_and_through_recovery(tmp_path: Path) -> None:
    chromium()  # before anything is started
    (tmp_path / "accounts.key").write_text("cafebabe" * 8)
    (tmp_path / "accounts.key").chmod(0o600)
    with temporary_var() as var:
        uri = await asyncio.to_thread(embedded.ensure_running, var)
        assert await asyncio.to_thread(main, ["accounts", "install", "--schema", "accounts", "--database", uri]) == 0
        async with application(tmp_path, uri) as base:
            configure(tmp_path, var, base)
            up = Up(tmp_path)
            await up.start("--sink")
            try:
                await walk(base, var)
            finally:
                status = await up.stop()
            assert status == 0, up.err.read_text()


async def walk(base: str, var: Path) -> None:
    """What the person does."""
    async with browsing() as page:

        async def sent(at: str, name: str, fields: Mapping[str, str] = NO_FIELDS) -> str:
            """Fill in the form at this address; the title of the page that follows."""
            await page.goto(at)
            form = page.locator("form", has=page.get_by_role("button", name=name))
            for field, value in fields.items():
                await form.locator(f"[name={field}]").fill(value)
            async with page.expect_navigation():
                await form.get_by_role("button", name=name).click()
            return await page.title()

        ann = {"email": "ann@example.net", "login": "ann", "password": "first"}
        assert await sent(base, "Sign up", ann) == "Look into your mail"
        assert await sent(base, "Log in", {"login": "ann", "password": "first"}) == (
            "Wrong login or password, or not active yet"
        )
        [link] = _LINK.findall(await mailed(var, "Activate your account"))
        assert await sent(link, "Activate") == "Your account is active"
        assert await sent(link, "Activate") == "This link is used or has expired"
        assert await sent(base, "Log in", {"login": "ann", "password": "first"}) == "Hello ann"

        assert await sent(base, "Forgot your password?", {"email": "bob@example.net"}) == "Look into your mail"
        assert await sent(base, "Forgot your password?", {"email": "ann@example.net"}) == "Look into your mail"
        text = await mailed(var, "Choose a new password")
        [link], [code] = _LINK.findall(text), re.findall(r"this code: (\d{5})", text)
        wrong = f"{(int(code) + 1) % 100_000:05}"
        refused = "The code is wrong, or the link is used or has expired"
        assert await sent(link, "Change password", {"code": wrong, "password": "second"}) == refused
        assert await sent(link, "Change password", {"code": code, "password": "second"}) == "Your password is changed"
        assert await sent(link, "Change password", {"code": code, "password": "third"}) == refused
        assert await sent(base, "Log in", {"login": "ann", "password": "first"}) == (
            "Wrong login or password, or not active yet"
        )
        assert await sent(base, "Log in", {"login": "ann", "password": "second"}) == "Hello ann"

        # An address that has an account is not given away, and gets no second account.
        assert (
            await sent(base, "Sign up", {"email": "ann@example.net", "login": "eve", "password": "x"})
            == "Look into your mail"
        )
        assert (
            await sent(base, "Log in", {"login": "eve", "password": "x"})
            == "Wrong login or password, or not active yet"
        )
