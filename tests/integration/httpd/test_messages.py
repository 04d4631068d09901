"""test_messages — GET /v1/messages/{id}: what became of a message

Owns: proofs about httpd/routes/messages.py and operate/queue/message.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api
    from tests.fixtures.daemons.submit import Books


async def test_a_message_shows_its_recipients_their_states_and_every_try(api: Api, books: Books) -> None:
    smtpd = await api.system.smtpd()
    await books.submit(smtpd, numbered(1, box="temperror"))
    [[message]] = await api.system.rows("SELECT id FROM messages")
    client = await api.caller("ann", "viewer", kind="person")
    waiting = (await client.get(f"/v1/messages/{message}")).json()
    assert [(each["state"], each["attempts"]) for each in waiting["recipients"]] == [("active", [])]
    await api.system.worker(books.sink.port, transport={"retry": {"count": 1}})
    await api.system.until("SELECT count(*) = 1 FROM archive")
    shown = (await client.get(f"/v1/messages/{message}")).json()
    [recipient] = shown["recipients"]
    assert shown["id"] == str(message)
    assert (recipient["state"], recipient["next_retry"], recipient["finished"] is not None) == ("expired", None, True)
    assert [(each["outcome"], each["reply_code"]) for each in recipient["attempts"]] == [("deferred", 451)] * 2
    assert recipient["attempts"][0]["reply_text"] == "451 4.1.1 scripted in the recipient"


async def test_what_is_not_there_is_404_and_what_is_no_id_is_422(api: Api) -> None:
    client = await api.caller("ann", "viewer", kind="person")
    absent = await client.get(f"/v1/messages/{uuid4()}", headers={"X-Request-Id": "mine-1"})
    assert (absent.status_code, absent.json()["code"]) == (404, "not_found")
    assert absent.json()["request_id"] == absent.headers["x-request-id"] == "mine-1"
    wrong = await client.get("/v1/messages/17")
    assert (wrong.status_code, wrong.json()["errors"][0]["where"]) == (422, "path.id")
    assert (await client.get("/v1/nothing")).status_code == 404
    no_method = await client.put("/v1/messages/17")
    assert (no_method.status_code, no_method.headers["allow"]) == (405, "GET, PATCH")
