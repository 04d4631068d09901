"""test_webhooks — endpoints of webhooks by HTTP, the same as by command

Owns: proofs about httpd/routes/webhooks.py over real connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standardwebhooks.webhooks import Webhook

from tests.fixtures.database.operating import write_config
from tests.fixtures.peers.web.http_peer import HttpPeer

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api

URL = "https://app.example.com/hook"
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"


async def test_an_endpoint_is_added_listed_changed_and_removed(api: Api) -> None:
    client = await api.caller("olga", "operator", kind="person")
    made = (await client.post("/v1/webhooks", json={"name": "app", "url": URL, "events": ["failed"]})).json()
    [shown] = (await client.get("/v1/webhooks")).json()
    assert (shown["name"], shown["url"], shown["events"], shown["who"]) == ("app", URL, ["failed"], "olga")
    assert made["secret"] not in str(shown)
    assert (await client.post("/v1/webhooks", json={"name": "app", "url": URL})).status_code == 409

    await client.post("/v1/webhooks/app/disable", json={"reason": "the application moves"})
    [shown] = (await client.get("/v1/webhooks")).json()
    assert (shown["state"], shown["reason"]) == ("disabled", "the application moves")
    await client.post("/v1/webhooks/app/enable", json={"skip": True})
    assert (await client.get("/v1/webhooks")).json()[0]["state"] == "enabled"

    rotated = (await client.post("/v1/webhooks/app/rotate")).json()
    assert rotated["secret"] != made["secret"]
    assert (await client.get("/v1/webhooks")).json()[0]["secrets"] == 2

    replayed = await client.post("/v1/webhooks/app/replay", json={"since": "2026-01-02T03:04Z"})
    assert replayed.json()["since"] == "2026-01-02T03:04:00Z"
    assert (await client.get("/v1/webhooks")).json()[0]["again"] == "2026-01-02T03:04:00Z"
    for wrong in ("yesterday", "0001-01-01T00:00+23:00", "9999-01-01T00:00Z"):
        assert (await client.post("/v1/webhooks/app/replay", json={"since": wrong})).status_code == 422, wrong
    unnamed = await client.post("/v1/webhooks/a%20b/replay", json={"since": "2026-11-20T08:30Z"})
    assert (unnamed.status_code, unnamed.json()["detail"]) == (
        422,
        'path.name: "a b" is not usable here; allowed: 1 to 64 of letters, digits, dot, underscore and hyphen',
    )

    assert (await client.delete("/v1/webhooks/app")).json()["name"] == "app"
    assert (await client.get("/v1/webhooks")).json() == []
    assert (await client.delete("/v1/webhooks/app")).status_code == 404


async def test_wrong_values_and_what_is_for_the_command_alone_are_refused(api: Api) -> None:
    client = await api.caller("olga", "operator", kind="person")
    good = {"name": "app", "url": URL}
    for wrong in (
        {"events": ["eaten"]},
        {"condition": "size>"},
        {"url": "ftp://app.example.com"},
        {"batch": 0},
        {"name": "a b"},
        {"private": True},
        {"secrets": ["file:/etc/passwd"]},
    ):
        assert (await client.post("/v1/webhooks", json={**good, **wrong})).status_code == 422, wrong
    assert (await client.get("/v1/webhooks")).json() == []


async def test_a_test_is_signed_and_answers_what_the_endpoint_said(api: Api) -> None:
    write_config(api.system.folder, api.system.uri)
    client = await api.caller("olga", "operator", kind="person")
    async with HttpPeer(TAKEN) as peer:
        secret = (await client.post("/v1/webhooks", json={"name": "app", "url": peer.url})).json()["secret"]
        refused = (await client.post("/v1/webhooks/app/test")).json()
        assert refused["error"]
        assert peer.requests == []  # an address of this host alone
        await api.system.rows("UPDATE webhooks SET private = true")
        answer = (await client.post("/v1/webhooks/app/test")).json()
        assert (answer["name"], answer["error"]) == ("app", None)
        [request] = peer.requests
        assert Webhook(secret).verify(request.body, dict(request.headers))["type"] == "test"
