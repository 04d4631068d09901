"""test-faults — endpoints that fail, hang, ask for time, are gone, or lead where they must not

Owns: proofs about queued/webhooks/endpoint.py, answer.py, post.py and run.py.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from queued.webhooks import answer, run
from queued.webhooks.answer import Answer
from shared.config.queued.webhooks import Webhooks
from shared.postgres import database as db
from tests.fixtures.heard import until
from tests.fixtures.queue.hooked import SECRET, declared
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard
    from tests.fixtures.peers.web.hooks import Hooks
    from tests.fixtures.queue.hooked import Hook

    type Make = Callable[[], Awaitable[Hooks]]

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def state(factory: Factory, name: str = "app") -> Any:
    [row] = factory.sql(
        """SELECT w.state, w.reason, c.tries, c.error, c.due, c.failing, c.sent
             FROM pillarbox.webhooks w JOIN pillarbox.webhook_cursors c ON c.webhook = w.name
            WHERE w.name = %(name)s""",
        name=name,
    )
    return row


class Killed(BaseException):
    """The worker ends here."""


async def test_a_day_of_outage_and_killed_workers_lose_and_invent_nothing(
    factory: Factory, hooked: Hook, hooks: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker = await hooks()
    hook = hooked(taker.url, events=["accepted", "held"], batch=7)
    chance = Random(24)

    def dies(_point: str) -> None:
        if chance.random() < 0.2:
            raise Killed

    async def passes(span: timedelta) -> None:
        with suppress(Killed):
            await hook.after(span)
        if chance.random() < 0.5:
            await hook.begin_again()

    monkeypatch.setattr("queued.webhooks.endpoint.reach", dies)
    expected: set[tuple[int, str]] = set()
    taker.answer = "503 Down"
    for each in range(2 * 24):
        status, kinds = ("HOLD", ("accepted", "held")) if each % 3 == 0 else ("DELIVER", ("accepted",))
        expected |= {(row, kind) for row in factory.rows(3, status=status) for kind in kinds}
        await passes(HOUR / 2)
    refused = taker.taken
    assert refused
    taker.requests.clear()
    taker.answer = "200 OK"
    for _ in range(100):
        await passes(HOUR)
        if {(event["data"]["id"], event["type"]) for event in taker.taken} == expected:
            break
    assert {(event["data"]["id"], event["type"]) for event in taker.taken} == expected
    ids = {(event["data"]["id"], event["type"], event["id"]) for event in refused + taker.taken}
    assert {each[:2] for each in ids} == expected
    assert len(ids) == len(expected)  # an event has one id, however often it came
    assert len(taker.taken) > len(expected)  # and some came twice, since workers died
    assert len(_in_order(taker.taken)) == len({row for row, _ in expected})


def _in_order(taken: list[dict[str, Any]]) -> dict[int, str]:
    """The first kind of event of each recipient, which must be that it was accepted."""
    first: dict[int, str] = {}
    for event in taken:
        first.setdefault(event["data"]["id"], event["type"])
    assert set(first.values()) == {"accepted"}
    return first


@pytest.mark.parametrize(("url", "reason"), [("https://[x]/", "IP"), ("http://a:x/", "Port")])
async def test_a_url_that_cannot_be_asked_is_a_failure_of_its_endpoint(
    factory: Factory, hooked: Hook, url: str, reason: str
) -> None:
    hook = hooked(url)
    factory.row()
    await hook.settled()
    assert (state(factory).tries, reason in state(factory).error) == (1, True)


async def test_retry_after_is_honoured_and_the_schedule_otherwise(factory: Factory, hooked: Hook, hooks: Make) -> None:
    taker = await hooks()
    hook = hooked(taker.url)
    factory.row()
    taker.answer = "500 Oops"
    await hook.settled()
    assert timedelta(seconds=5) <= state(factory).due - hook.now <= timedelta(seconds=5.5)
    taker.answer = "429 Slow\r\nRetry-After: 77"
    await hook.after(timedelta(seconds=6))
    assert state(factory).due - hook.now == timedelta(seconds=77)
    assert state(factory).error == "answered 429"
    taker.answer = f"503 Later\r\nRetry-After: {format_datetime(hook.now + 3 * HOUR)}"
    await hook.after(timedelta(seconds=78))
    assert 2.9 * HOUR < state(factory).due - hook.now <= 3 * HOUR
    requests = len(taker.requests)
    await hook.after(HOUR)
    assert len(taker.requests) == requests == 3
    taker.answer = "204 Thanks"
    await hook.after(2 * HOUR)
    assert (state(factory).tries, state(factory).failing, state(factory).sent) == (0, None, 1)
    assert {event["id"] for event in taker.taken} == {taker.taken[0]["id"]}


@pytest.mark.parametrize(
    "text", ["Fri, 01 Jan 99999999999999999999 00:00:00 GMT", "Fri, 01 Jan 2027 00:00:00 +99999999999999999999", "soon"]
)
def test_a_retry_after_that_is_no_time_counts_as_none(text: str) -> None:
    assert answer.read(503, text, datetime.now(UTC)) == Answer("answered 503")


def test_the_schedule_is_the_specifications_with_jitter() -> None:
    waits = [answer.next_try(tries, Answer("no"), Random(1)) for tries in range(1, 12)]
    assert all(least <= wait <= least * 1.1 for least, wait in zip(answer.TRIES, waits, strict=False))
    assert sum(answer.TRIES, timedelta(0)) == answer.PATIENCE
    assert int(answer.PATIENCE.total_seconds()) == 75 * 3600 + 35 * 60 + 5
    assert waits[-1] >= timedelta(hours=24)


async def test_an_endpoint_that_is_gone_gets_no_more(factory: Factory, hooked: Hook, hooks: Make, heard: Heard) -> None:
    taker = await hooks()
    hook = hooked(taker.url)
    factory.row()
    taker.answer = "410 Gone"
    await hook.settled()
    assert (state(factory).state, state(factory).reason) == ("disabled", "the endpoint answered 410 Gone")
    assert heard.all("webhook.disabled")[0]["webhook"] == "app"


async def test_an_endpoint_that_fails_for_days_is_paused_and_goes_on_where_it_was(
    factory: Factory, hooked: Hook, hooks: Make, heard: Heard
) -> None:
    taker = await hooks()
    hook = hooked(taker.url)
    row = factory.row()
    taker.answer = "302 Found\r\nLocation: http://127.0.0.1:1/"  # which is not followed
    for _ in range(100):
        await hook.after(HOUR)
        if state(factory).state == "paused":
            break
    assert 75 * HOUR < hook.now - state(factory).failing < 90 * HOUR
    assert "answered 302" in state(factory).reason
    assert heard.all("webhook.paused")
    assert len(taker.requests) <= 11
    factory.sql("UPDATE pillarbox.webhooks SET state = 'enabled', reason = NULL")
    factory.sql("UPDATE pillarbox.webhook_cursors SET tries = 0, failing = NULL, due = NULL")
    taker.answer = "200 OK"
    taker.requests.clear()
    await hook.begin_again()
    await hook.settled()
    assert [event["data"]["id"] for event in taker.taken] == [row]


@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/", "http://localhost:{}/", "http://[::ffff:127.0.0.1]:{}/"])
async def test_a_private_address_is_refused_also_behind_a_name(
    factory: Factory, hooked: Hook, hooks: Make, url: str
) -> None:
    taker = await hooks()
    hook = hooked(url.format(taker.port), private=False)
    factory.row()
    await hook.settled()
    assert "is not an address of the public Internet" in state(factory).error
    assert not taker.requests


async def test_a_name_that_means_another_address_a_moment_later_leads_nowhere_else(
    factory: Factory, hooked: Hook, hooks: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker = await hooks()
    asked: list[str] = []

    async def rebinding(_loop: object, host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        address = "192.0.2.1" if len(asked) == 1 else "127.0.0.1"  # which is not reached: see below
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr("queued.webhooks.post.may_connect", lambda address, **_: str(address) == "192.0.2.1")
    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", rebinding)
    connected: list[str] = []

    async def connect(client: object, method: str, url: str, *rest: Any, **named: Any) -> Any:
        connected.append(url)
        raise TimeoutError

    monkeypatch.setattr("shared.http.HttpClient.ask", connect)
    hook = hooked(f"http://rebind.example:{taker.port}/x?y=1", private=False)
    factory.row()
    await hook.settled()
    assert connected == [f"http://192.0.2.1:{taker.port}/x?y=1"]  # an address, not a name that is looked up again
    await hook.begin_again()
    await hook.after(HOUR)
    assert connected == [f"http://192.0.2.1:{taker.port}/x?y=1"]
    assert "127.0.0.1 is not an address" in state(factory).error


async def test_a_long_answer_is_not_read_to_its_end(factory: Factory, hooked: Hook, hooks: Make) -> None:
    taker = await hooks()
    taker.content = b"x" * 1_000_000
    hook = hooked(taker.url)
    factory.row()
    await hook.settled()
    assert "more than 65536 octets" in state(factory).error


async def test_a_secret_is_in_no_event_and_no_error(
    factory: Factory, hooked: Hook, hooks: Make, heard: Heard, tmp_path: Path
) -> None:
    taker = await hooks()
    kept = tmp_path / "secret"
    kept.write_text("whsec_short")
    hook = hooked(taker.url, secrets=[SECRET, f"file:{kept}"])
    factory.row()
    await hook.settled()
    assert state(factory).error.startswith(f"file:{kept}: not a secret")
    kept.write_text(SECRET + "\n")
    await hook.begin_again()
    await hook.after(MINUTE)
    assert len(taker.requests[0].headers["webhook-signature"].split()) == 2
    said = repr(heard.events) + repr(factory.sql("SELECT error FROM pillarbox.webhook_cursors"))
    assert SECRET[6:] not in said
    assert "short" not in said


async def test_a_slow_endpoint_delays_no_other_and_one_worker_serves_them(
    factory: Factory, database: str, hooks: Make
) -> None:
    quick, slow = await hooks(), await hooks()
    stuck, free = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        stuck.set()
        await free.wait()

    slow.before = hang
    declared(factory, slow.url, "slow")
    declared(factory, quick.url, "quick")
    pool = await db.open_pool(database, "webhooks", 4)
    workers = [run.WebhookTask(pool, name, Webhooks.model_validate({})) for name in ("one", "two")]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        factory.row()
        await asyncio.wait_for(stuck.wait(), PATIENCE)
        await until(lambda: len(quick.taken) == 1, "the first event")
        rows = factory.rows(20)
        await until(lambda: len(quick.taken) == 21, "the other events")
        assert not slow.requests
        assert [event["data"]["id"] for event in quick.taken][1:] == rows or len({*rows}) == 20
        free.set()
        await until(lambda: len(slow.taken) == 21, "the events of the slow one")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await workers[0].leave()
        await pool.close()
    assert max(Counter(event["id"] for event in quick.taken).values()) == 1


async def test_endpoints_of_the_configuration_are_declared_and_removed(
    factory: Factory, database: str, hooks: Make, tmp_path: Path
) -> None:
    taker = await hooks()
    (tmp_path / "secret").write_text(SECRET)
    endpoint = {"id": "yaml", "url": taker.url, "events": ["held"], "secrets": [f"file:{tmp_path}/secret"]}
    pool = await db.open_pool(database, "webhooks", 4)
    task = run.WebhookTask(pool, "one", Webhooks.model_validate({"endpoints": [{**endpoint, "private": True}]}))
    running = asyncio.create_task(task.run())
    try:
        await until(lambda: factory.sql("SELECT FROM pillarbox.webhooks WHERE origin = 'queued.yaml'"), "the endpoint")
        row = factory.row(status="HOLD")
        await until(lambda: taker.taken, "the event")
        assert taker.taken[0]["data"]["id"] == row
        task.use(Webhooks.model_validate({}))
        await until(lambda: not factory.sql("SELECT FROM pillarbox.webhooks"), "its end")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await pool.close()
