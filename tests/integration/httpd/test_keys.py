"""test_keys — API keys over HTTP: who is let in, for what, and what is kept of a key

Owns: proofs about httpd/access, operate/keys.py and sql/schema/21_key.sql over real connections.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from operate import keys
from operate.errors import Refused
from operate.queue.act import By
from operate.shapes.settings import ApiKeyRevoked
from tests.fixtures.daemons.api import Api
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    import httpx

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

PATH = f"/v1/messages/{uuid4()}"


async def until_status(client: httpx.AsyncClient, path: str, status: int) -> None:
    """Ask until the answer has this status."""

    async def has() -> bool:
        return (await client.get(path)).status_code == status

    await eventually(has, f"{path} is answered {status}")


async def test_requests_need_a_key_that_is_valid(api: Api) -> None:
    key = await api.key("shop")
    wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
    for shown in (None, wrong, keys.made().key, "nothing", key[:20]):
        refused = await (await api.client(shown)).get(PATH)
        assert refused.status_code == 401
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert refused.json()["code"] == "not_authenticated"
    assert (await (await api.client(key)).get(PATH)).status_code == 404
    basic = await api.client(Authorization="Basic eDp5")
    assert (await basic.get(PATH)).status_code == 401
    assert key not in api.daemon.log
    assert key[16:] not in api.daemon.log


async def test_what_is_kept_of_a_key_is_its_digest(api: Api) -> None:
    key = await api.key("shop")
    kept = await api.system.rows("SELECT k::text FROM api_keys k")
    assert kept
    assert key[16:] not in str(kept)


async def test_a_key_ends_when_it_is_revoked_or_expires_or_its_principal_is_disabled(api: Api) -> None:
    soon = await api.key("one", expires=datetime.now(UTC) + timedelta(seconds=1))
    revoked, disabled = await api.key("two"), await api.key("three")
    clients = [await api.client(key) for key in (soon, revoked, disabled)]
    assert [(await client.get(PATH)).status_code for client in clients][1:] == [404, 404]
    async with await psycopg.AsyncConnection.connect(api.system.uri, autocommit=True) as connection:
        done = await keys.revoke(connection, By(), revoked[:15])
        assert isinstance(done, ApiKeyRevoked)
        assert done.principal == "two"
        assert [key.state for key in await keys.listed(connection, "two")] == ["revoked"]
    await api.system.rows("UPDATE principals SET disabled = true WHERE name = 'three'")

    for client in clients:
        await until_status(client, PATH, 401)
    assert (await clients[1].get(PATH)).json()["detail"] == "this API key is revoked"


async def test_scopes_and_roles_must_both_allow_what_is_asked(api: Api, factory: Factory) -> None:
    message = factory.message()
    factory.row(message=message)
    path = f"/v1/messages/{message}"
    viewer = await api.caller("ann", "viewer", kind="person")
    assert (await viewer.get(path)).status_code == 200
    # The mail of others is not there for one who may only send.
    sender = await api.caller("shop", "sender")
    assert (await sender.get(path)).status_code == 404
    # Nor for an operator's key that was made for sending.
    narrow = await api.caller("olga", "operator", "sender", kind="person", scopes=["send"])
    assert (await narrow.get(path)).status_code == 404
    # A principal that has lost its role is refused, whatever the scopes of its key are.
    await api.system.rows("UPDATE principals SET roles = '{}' WHERE name = 'ann'")
    again = await api.client(viewer.headers["authorization"].removeprefix("Bearer "))
    await until_status(again, path, 403)
    assert "allowed: principals with the role" in (await again.get(path)).json()["detail"]


async def test_a_key_has_no_scope_that_its_principal_has_no_role_for(api: Api) -> None:
    await api.key("shop")
    async with await psycopg.AsyncConnection.connect(api.system.uri, autocommit=True) as connection:
        with pytest.raises(Refused, match="has no role for the scope operate"):
            await keys.add(connection, By(), "shop", scopes=["send", "operate"], expires=None, label=None)


async def test_failures_are_limited_by_address_and_lock_no_valid_key_out(system: System) -> None:
    async with Api(system, await system.httpd(rates={"failures": 3, "window": "1h"})) as api:
        known = await api.caller("shop")
        assert (await known.get(PATH)).status_code == 404
        guesses = [await (await api.client(keys.made().key)).get(PATH) for _ in range(6)]
        assert [each.status_code for each in guesses][:3] == [401] * 3
        assert guesses[-1].status_code == 429
        assert int(guesses[-1].headers["retry-after"]) > 0
        assert (await known.get(PATH)).status_code == 404


async def test_the_requests_of_a_key_are_limited(system: System) -> None:
    async with Api(system, await system.httpd(rates={"requests": 2, "window": "1h"})) as api:
        client = await api.caller("shop")
        answers = [(await client.get(PATH)) for _ in range(4)]
        assert [each.status_code for each in answers] == [404, 404, 429, 429]
        assert answers[-1].json()["code"] == "too_many_requests"


async def test_the_last_use_of_a_key_is_noted_when_httpd_stops(api: Api) -> None:
    client = await api.caller("shop")
    await client.get(PATH)
    assert await api.daemon.stop() == 0
    assert await api.system.value("SELECT used > now() - interval '1 minute' FROM api_keys")
