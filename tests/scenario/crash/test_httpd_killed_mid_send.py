"""test_httpd_killed_mid_send — httpd is killed before COMMIT, after it and before its answer; each request is sent once

Owns: rows 21 to 23 of the crash table in sql/README.md: a client that sends again under the same key until it gets an
    answer has every message accepted exactly once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.fixtures.daemons.api import Api

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import Daemon, System

MAIL: dict[str, Any] = {"from": "shop@example.com", "subject": "x", "text": "x\n"}
MESSAGES = 36
SENDERS = 2


async def keep_up(daemon: Daemon, deaths: list[int]) -> None:
    """Start it again each time that it has died, on the port that it had."""
    while True:
        deaths.append(await daemon.ended(limit=120))
        await daemon.start()


async def until_answered(client: httpx.AsyncClient, path: str, body: Any, key: str) -> httpx.Response:
    """Send it under the key until there is an answer that is no trouble of the server."""
    while True:
        try:
            answer = await client.post(path, json=body, headers={"Idempotency-Key": key})
        except httpx.TransportError:
            await asyncio.sleep(0.05)
            continue
        if answer.status_code not in {409, 503}:
            return answer
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("point", ["spool.before_commit", "spool.after_commit", "receive.before_reply"])
async def test_a_client_that_sends_again_under_its_key_has_each_message_accepted_once(
    system: System, point: str
) -> None:
    # Each process dies at its twelfth passing, so that the client's work is cut off again.
    system.environment["PILLARBOX_FAIL"] = f"{point}:kill:12"
    daemon = await system.httpd()
    async with Api(system, daemon) as api:
        pinned(system, daemon)
        client = await api.caller("shop")
        deaths: list[int] = []
        keeping = asyncio.create_task(keep_up(daemon, deaths))
        ids: dict[int, str] = {}

        async def send(first: int) -> None:
            for number in range(first, MESSAGES, SENDERS):
                body = {**MAIL, "to": f"r{number}@example.net"}
                answer = await until_answered(client, "/v1/messages", body, f"key-{number}")
                assert answer.status_code == 202, answer.text
                ids[number] = answer.json()["id"]

        await asyncio.gather(*(send(first) for first in range(SENDERS)))
        batch = [{**MAIL, "to": f"b{number}@example.net"} for number in range(20)]
        whole = await until_answered(client, "/v1/messages/batch", batch, "batch")
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        assert whole.status_code == 202, whole.text
        assert deaths
        answered = {*ids.values(), *(each["id"] for each in whole.json()["data"])}
        queued = await system.rows("SELECT messages__id::text, recipientlocalpart FROM queue")
        assert len(answered) == len(queued) == MESSAGES + 20
        assert {id_ for id_, _ in queued} == answered
        assert len({recipient for _, recipient in queued}) == MESSAGES + 20


def pinned(system: System, daemon: Daemon) -> None:
    """From now on it listens where it listens now, so that its client finds it again."""
    path = system.folder / f"{daemon.name}.yaml"
    path.write_text(path.read_text().replace("127.0.0.1:0", ":".join(map(str, daemon.address))))
