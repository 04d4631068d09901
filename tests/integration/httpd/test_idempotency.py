"""test_idempotency — a request that comes again under its key gets its first answer, and sends nothing again

Owns: proofs about httpd/sending/idempotency.py, shared/spool/commit.py and idempotency_take.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg

from tests.fixtures.daemons.api import Api
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    import httpx

    from tests.fixtures.daemons.system import System

MAIL: dict[str, Any] = {"from": "shop@example.com", "to": "ann@example.net", "subject": "Order", "text": "Thanks.\n"}
KEY = {"Idempotency-Key": "order-4711"}
ENQUEUE = (
    "SELECT pillarbox.enqueue('shop@example.com', '{ann@example.net}', 'Subject: x', idempotency_key => 'order-4711')"
)


async def post(client: httpx.AsyncClient, mail: dict[str, Any] = MAIL, key: str = "order-4711") -> httpx.Response:
    """Send it under the key."""
    return await client.post("/v1/messages", json=mail, headers={"Idempotency-Key": key})


async def test_the_same_request_replays_the_answer_and_another_is_refused(api: Api) -> None:
    client = await api.caller("shop")
    first = await post(client)
    again = await post(client, {name: MAIL[name] for name in reversed(MAIL)})  # the same, written otherwise
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    other = await post(client, {**MAIL, "text": "No."})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reused")
    assert await api.system.value("SELECT count(*) FROM queue") == 1
    # Keys are the principal's own.
    assert (await post(await api.caller("other"))).json()["id"] != first.json()["id"]


async def test_what_was_refused_is_judged_again(api: Api) -> None:
    client = await api.caller("shop", senders=["example.org"])
    assert (await post(client)).status_code == 403
    await api.system.rows("UPDATE principals SET senders = '{}' WHERE name = 'shop'")

    async def is_sent() -> bool:
        return (await post(client)).status_code == 202

    await eventually(is_sent, "the change of the principal is used")


async def test_of_many_requests_at_once_one_sends_and_the_others_are_told_to_come_again(api: Api) -> None:
    client = await api.caller("shop")
    answers = await asyncio.gather(*(post(client) for _ in range(20)))
    assert {each.status_code for each in answers} <= {202, 409}
    assert len({each.json()["id"] for each in answers if each.status_code == 202}) == 1
    assert all("retry-after" in each.headers for each in answers if each.status_code == 409)
    assert await api.system.value("SELECT count(*) FROM queue") == 1


async def test_two_servers_send_it_once(system: System) -> None:
    one, two = await system.httpd("one"), await system.httpd("two")
    async with Api(system, one) as first, Api(system, two) as second:
        key = await first.key("shop")
        clients = [await first.client(key), await second.client(key)]
        answers = await asyncio.gather(*(post(client) for client in clients for _ in range(10)))
        assert {each.status_code for each in answers} <= {202, 409}
        assert len({each.json()["id"] for each in answers if each.status_code == 202}) == 1
    assert await system.value("SELECT count(*) FROM queue") == 1


async def test_a_key_in_an_open_transaction_of_sql_is_under_way_and_delays_no_other_mail(api: Api) -> None:
    client = await api.caller("shop")
    assert (await client.post("/v1/messages", json=MAIL)).status_code == 202
    async with await psycopg.AsyncConnection.connect(api.system.uri) as session:
        await session.execute("SELECT pillarbox.act_as('shop')")
        await session.execute(ENQUEUE.encode())
        busy, other = await asyncio.gather(post(client), client.post("/v1/messages", json=MAIL))
        assert (busy.status_code, busy.json()["code"]) == (409, "idempotency_key_busy")
        assert "retry-after" in busy.headers
        assert other.status_code == 202
        await session.commit()
    # The same key for what enqueue was given is another request's.
    assert (await post(client)).json()["code"] == "idempotency_key_reused"


async def test_a_batch_under_a_key_sends_each_message_once(api: Api) -> None:
    client = await api.caller("shop")
    batch = [{**MAIL, "to": f"r{n}@example.net"} for n in range(5)]
    first = await client.post("/v1/messages/batch", json=batch, headers=KEY)
    # As if a crash had come between: the rest is sent, and what was committed is not sent again.
    await api.system.rows("DELETE FROM idempotency WHERE key = 'order-4711#3'")
    again = await client.post("/v1/messages/batch", json=batch, headers=KEY)
    before, after = ([each["id"] for each in answer.json()["data"]] for answer in (first, again))
    assert [number for number in range(5) if before[number] != after[number]] == [3]
    assert await api.system.value("SELECT count(*) FROM queue") == 6
    changed = await client.post("/v1/messages/batch", json=batch[:3], headers=KEY)
    assert changed.status_code == 409


async def test_a_key_that_cannot_be_kept_is_refused(api: Api) -> None:
    client = await api.caller("shop")
    for key in ("x" * 257, "\x7f"):
        assert (await post(client, key=key)).status_code in {400, 422}
    assert (await post(client, key="x" * 256)).status_code == 202
