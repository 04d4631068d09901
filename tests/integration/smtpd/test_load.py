"""test_load — a full or slow server refuses new clients at once, without effect on open sessions

Owns: proofs about `load`: sessions, lag, the shorter time of a stressed process.
See: smtpd/session/overload.py; RFC 5321 section 3.1 (a greeting other than 220).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from shared.config.smtpd.overload import Load as Settings
from smtpd import replies
from smtpd.session.overload import Load
from tests.fixtures.daemons.serving import Dialogue, serving
from tests.fixtures.heard import until
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.heard import Heard

BUSY = replies.R421_TOO_BUSY


async def greeting(port: int) -> str:
    async with Dialogue(port, ehlo=None) as client:
        return client.greeting[0]


async def test_a_full_process_refuses_with_421_until_a_session_ends(database: str, heard: Heard) -> None:
    async with serving(database, load={"sessions": 5}) as port:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Dialogue(port)) for _ in range(5)]
            for _ in range(3):
                assert await greeting(port) == BUSY
            [shedding] = heard.all("load.shedding")
            assert (shedding["reason"], shedding["sessions"]) == ("sessions", 5)
            for client in clients:
                assert (await client.submit()).startswith("250")

        async def welcome() -> bool:
            return (await greeting(port)).startswith("220")

        await eventually(welcome, "the ended session is released")
    assert len(heard.all("session.opened")) == 6, "a refused client is not a session"


async def test_open_sessions_do_not_wait_for_refused_clients(database: str) -> None:
    """300 clients knock all the time; the one that is served gets each reply before the most of them."""
    async with serving(database, load={"sessions": 1}) as port, Dialogue(port) as client:
        turned_away = 0

        async def knock() -> None:
            nonlocal turned_away
            while True:
                assert await greeting(port) == BUSY
                turned_away += 1

        knocking = [asyncio.create_task(knock()) for _ in range(20)]
        most = 0
        while turned_away < 300:
            before = turned_away
            assert (await client.ask(b"NOOP")).startswith("250")
            most = max(most, turned_away - before)
        for each in knocking:
            each.cancel()
        await asyncio.gather(*knocking, return_exceptions=True)
    assert most <= 3 * 20, "so many are turned away while one command waits"


async def test_a_lagging_process_refuses_clients_until_it_has_caught_up(database: str, heard: Heard) -> None:
    async with serving(database, load={"lag": "200ms"}) as port, Dialogue(port) as client:
        # `serving` does not watch the clock for us as smtpd.process.serve does.
        load = Load(Settings(), ())
        watching = asyncio.create_task(load.watch())
        await asyncio.sleep(0)  # it has looked at the clock once
        assert load.refusal() is None
        time.sleep(1.2)  # noqa: ASYNC251 - nothing else makes an event loop late
        assert load.refusal() == BUSY
        await until(lambda: load.refusal() is None, "it has caught up")
        watching.cancel()
        assert (await client.ask(b"NOOP")).startswith("250")
    [shedding] = heard.all("load.shedding")
    assert shedding["reason"] == "lag"
    assert shedding["lag"] > 1


async def test_a_stressed_process_gives_each_client_less_time(database: str, heard: Heard) -> None:
    settings = {"sessions": 4, "stress": 0.5, "patience": "2s"}
    async with serving(database, load=settings) as port, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Dialogue(port)) for _ in range(3)]
        assert (await clients[2].reply())[0].startswith("421")
        await until(lambda: len(heard.all("session.closed")) >= 1, "silence was not put up with")


@pytest.mark.parametrize(("sessions", "stressed"), [(80, False), (81, True)])
def test_stress_begins_above_the_configured_share(sessions: int, stressed: bool) -> None:  # noqa: FBT001 - a table
    load = Load(Settings.model_validate({"sessions": 100}), range(sessions))
    assert load.stressed == stressed
    assert load.patience(300) == (10 if stressed else 300)
    assert load.patience(5) == 5
