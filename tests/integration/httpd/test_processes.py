"""test_processes — several processes of httpd behave as one: limits, memory, metrics, reloads, and the death of one

Owns: proofs about httpd/process, httpd/tally.py and smtpd/process/supervisor.py with httpd.
See: docs/how-to/send/send-by-http.md; tests/integration/smtpd/test_supervise.py for children that hang or cannot start.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx

from httpd.tally import Tally
from operate import keys
from tests.fixtures.daemons.api import Api
from tests.fixtures.waiting import eventually
from tests.integration.httpd.test_lifecycle import changed

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System

PATH = f"/v1/messages/{uuid4()}"
MAIL = {"from": "shop@example.com", "to": "ann@example.net", "subject": "x", "text": "x"}
CONNECTIONS = 24  # at once: that all of them meet one of two processes happens once in eight million times


async def everywhere(api: Api, key: str, method: str = "GET", path: str = PATH, **more: Any) -> list[int]:
    """The statuses of as many requests, each on a connection of its own, all open at once."""
    clients = [await api.client(key) for _ in range(CONNECTIONS)]
    answers = await asyncio.gather(*(each.request(method, path, **more) for each in clients))
    return [each.status_code for each in answers]


async def gauge(url: str, name: str) -> dict[str, float]:
    """A gauge by process."""
    async with httpx.AsyncClient(trust_env=False) as client:
        page = (await client.get(f"http://{url}/metrics")).text
    return {label: float(value) for label, value in re.findall(rf'{name}{{\w+="([\w-]+)"}} (\S+)', page)}


async def test_limits_hold_for_all_processes_together_and_each_of_them_answers(system: System) -> None:
    rates = {"requests": 10, "failures": 5, "window": "1h"}
    metrics = {"listen": "127.0.0.1:0"}
    async with Api(system, await system.httpd(processes=2, rates=rates, metrics=metrics)) as api:
        [started] = await api.daemon.until_said("daemon.started")
        assert started["processes"] == "2"
        looking = await api.key("ann", "viewer", kind="person")
        # A count that does not come in time, on a busy machine, is each process's own (smtpd/rates/client.py).
        found = sorted(await everywhere(api, looking))
        assert found == [404] * 10 + [429] * (CONNECTIONS - 10) or api.daemon.said("rates.unanswered")
        known = await api.key("bob", "viewer", kind="person")
        assert (await (await api.client(known)).get(PATH)).status_code == 404
        guesses = await everywhere(api, keys.made().key)
        assert set(guesses) == {401, 429}
        assert guesses.count(401) <= 5 or api.daemon.said("rates.unanswered")
        # A key that one process knows is refused by none for the failures of others from the same address.
        assert (await everywhere(api, known)).count(404) == 9 or api.daemon.said("rates.unanswered")
        open_at = await gauge(started["metrics"], "pillarbox_httpd_connections")
        assert set(open_at) == {"httpd-1", "httpd-2"}
        assert min(open_at.values()) > 0
        assert sum(open_at.values()) == 3 * CONNECTIONS + 1
        assert await gauge(started["metrics"], "pillarbox_httpd_processes") == {"wanted": 2, "ready": 2}


async def test_mail_is_counted_and_sent_once_by_all_processes_together(system: System) -> None:
    smtpd = {"rates": {"user": {"messages": 6}, "window": "1h"}}
    async with Api(system, await system.httpd(processes=2, smtpd=smtpd)) as api:
        shop, other = await api.key("shop"), await api.key("other")
        found = sorted(await everywhere(api, shop, "POST", "/v1/messages", json=MAIL))
        assert found == [202] * 6 + [429] * 18 or api.daemon.said("rates.unanswered")
        headers = {"Idempotency-Key": "one"}
        same = await everywhere(api, other, "POST", "/v1/messages", json=MAIL, headers=headers)
        assert set(same) <= {202, 409, 429}
        assert same.count(202) >= 1
        assert await system.value("SELECT count(*) FROM messages") == found.count(202) + 1


async def test_a_process_that_dies_is_replaced_and_all_of_them_reload(system: System) -> None:
    async with Api(system, await system.httpd(processes=2, metrics={"listen": "127.0.0.1:0"})) as api:
        [started] = await api.daemon.until_said("daemon.started")
        ann = await api.key("ann", "viewer", kind="person")
        assert set(await everywhere(api, ann)) == {404}
        victim, other = (int(each["pid"]) for each in await api.daemon.until_said("child.started", 2))
        os.kill(victim, signal.SIGKILL)
        await api.daemon.until_said("child.started", 3)
        assert await gauge(started["metrics"], "pillarbox_httpd_ready") != {}
        await eventually(lambda: _both(started["metrics"]), "both serve again")
        changed(api.daemon, system, rates={"requests": 1, "window": "1h"}, processes=3)
        api.daemon.signal(signal.SIGHUP)
        [ignored] = await api.daemon.until_said("daemon.reload_ignored")
        assert ignored["keys"] == "processes"
        await api.daemon.until_said("daemon.reloaded")
        found = sorted(await everywhere(api, ann))
        assert found == [404] + [429] * (CONNECTIONS - 1) or api.daemon.said("rates.unanswered")
        changed(api.daemon, system, rates={"requests": "many"})
        api.daemon.signal(signal.SIGHUP)
        await api.daemon.until_said("daemon.reload_refused")
        assert await api.daemon.stop() == 0
    for pid in (victim, other):
        assert not await _lives(pid)


async def _both(url: str) -> bool:
    return await gauge(url, "pillarbox_httpd_ready") == {"httpd-1": 1, "httpd-2": 1}


async def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_processes_hold_is_added_up_and_gone_with_them() -> None:
    supervisor, file = Tally.shared(3)
    one, two, three = (Tally(3, number, file) for number in (1, 2, 3))
    assert [one.hold(100), two.hold(20), three.hold(3), one.hold(-50)] == [100, 120, 123, 73]
    assert [two.connected(4), three.connected(5), two.connected(1)] == [4, 9, 6]
    two.begin(17)
    three.begin(18)
    assert one.changes(17)
    two.end(17)
    assert not one.changes(17)
    assert one.changes(18)
    supervisor.clear(3)
    assert not one.changes(18)
    assert [one.hold(0), one.connected(0)] == [70, 1]
    os.close(file)
