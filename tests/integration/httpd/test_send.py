"""test_send — mail by HTTP: composed and raw, one and many, through the same rooms as by SMTP into the same queue

Owns: proofs about httpd/sending and httpd/routes/messages.py.
"""

from __future__ import annotations

import email.policy
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from typing import TYPE_CHECKING, Any

from tests.fixtures.daemons.api import Api

if TYPE_CHECKING:
    from email.message import EmailMessage

    from tests.fixtures.daemons.system import System

MAIL: dict[str, Any] = {"from": "shop@example.com", "to": "ann@example.net", "subject": "Order", "text": "Thanks.\n"}
RAW = b"From: shop@example.com\r\nSubject: raw\r\n\r\nbody \xc3\xa4\r\n"


async def stored(api: Api, id_: str) -> EmailMessage:
    """The message as it is queued."""
    content = await api.system.value("SELECT content FROM messages WHERE id = %s", id_)
    return message_from_bytes(bytes(content), policy=email.policy.default)


async def test_a_message_in_parts_is_composed_and_queued(api: Api) -> None:
    client = await api.caller("shop", senders=["example.com"])
    answer = await client.post(
        "/v1/messages",
        json={
            "from": "Müller & Söhne <shop@example.com>",
            "to": ["Ann <ann@example.net>", "bob@example.net"],
            "cc": "carl@example.net",
            "bcc": ["dora@example.net"],
            "reply_to": "help@example.com",
            "subject": "Ihre Bestellung: 5 €",
            "text": "Grüße\n",
            "html": '<p>Grüße <img src="cid:logo"></p>',
            "headers": {"X-Order": "4711"},
            "attachments": [
                {"filename": "a.pdf", "content": b64encode(b"%PDF").decode()},
                {"filename": "logo.png", "content": b64encode(b"PNG").decode(), "content_id": "logo"},
            ],
            "tags": [{"name": "kind", "value": "order"}],
            "metadata": {"number": 4711},
            "list_unsubscribe": {"url": "https://example.com/u?id=1"},
            "priority": 3,
        },
    )
    assert answer.status_code == 202, answer.text
    id_ = answer.json()["id"]
    message = await stored(api, id_)
    assert message["from"] == "Müller & Söhne <shop@example.com>"
    assert (message["to"], message["cc"], message["bcc"]) == ("Ann <ann@example.net>, bob@example.net", "carl@example.net", None)  # fmt: skip  # noqa: E501
    assert (message["subject"], message["x-order"]) == ("Ihre Bestellung: 5 €", "4711")
    assert message["list-unsubscribe"] == "<https://example.com/u?id=1>"
    assert message["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
    assert message["date"]
    assert re.search(r"with HTTP\b", message["received"])
    kinds = [part.get_content_type() for part in message.walk()]
    assert kinds == [
        *("multipart/mixed", "multipart/alternative", "text/plain", "multipart/related", "text/html", "image/png"),
        "application/pdf",
    ]
    rows = await api.system.rows(
        """SELECT recipientlocalpart, priority, saslusername, serverid, metadata->>'kind', metadata->'number'
             FROM queue ORDER BY actionid"""
    )
    names = ("ann", "bob", "carl", "dora")
    assert rows == [(name, 3, "shop", "http", "order", 4711) for name in names]
    shown = (await client.get(f"/v1/messages/{id_}")).json()
    assert [each["address"] for each in shown["recipients"]] == [f"{name}@example.net" for name in names]
    assert shown["message_id"] == message["message-id"].strip("<>")


async def test_a_raw_message_is_queued_octet_for_octet_as_base64_or_by_itself(api: Api) -> None:
    client = await api.caller("shop")
    one = await client.post(
        "/v1/messages", json={"from": "shop@example.com", "to": ["ann@example.net"], "raw": b64encode(RAW).decode()}
    )
    two = await client.post(
        "/v1/messages",
        params={"from": "shop@example.com", "to": ["ann@example.net", "bob@example.net"], "priority": "-2"},
        content=RAW,
        headers={"Content-Type": "message/rfc822"},
    )
    for answer in (one, two):
        assert answer.status_code == 202, answer.text
        content = await api.system.value("SELECT content FROM messages WHERE id = %s", answer.json()["id"])
        assert bytes(content).endswith(RAW)
    assert await api.system.rows("SELECT count(*), min(priority) FROM queue") == [(3, -2)]


async def test_the_senders_of_a_principal_and_of_the_from_field_are_its_own(api: Api) -> None:
    client = await api.caller("shop", senders=["shop@example.com"])
    foreign = {**MAIL, "from": "boss@example.com"}
    refused = await client.post("/v1/messages", json=foreign)
    assert (refused.status_code, refused.json()["code"]) == (403, "sender_not_allowed")
    raw = b64encode(b"From: boss@example.com\r\n\r\nx\r\n").decode()
    hidden = await client.post("/v1/messages", json={"from": "shop@example.com", "to": "a@example.net", "raw": raw})
    assert (hidden.status_code, hidden.json()["code"]) == (403, "sender_not_allowed")
    for more in (b"Sender: boss@example.com", b"Resent-From: boss@example.com"):
        raw = b64encode(b"From: shop@example.com\r\n" + more + b"\r\n\r\nx\r\n").decode()
        hidden = await client.post("/v1/messages", json={"from": "shop@example.com", "to": "a@example.net", "raw": raw})
        assert (hidden.status_code, hidden.json()["code"]) == (403, "sender_not_allowed")
    viewer = await api.caller("ann", "viewer", kind="person")
    assert (await viewer.post("/v1/messages", json=MAIL)).status_code == 403
    assert await api.system.value("SELECT count(*) FROM queue") == 0


async def test_policy_limits_and_suppressions_decide_as_by_smtp(system: System) -> None:
    rules = {
        "policy": {
            "rules": [
                {"id": "no", "phase": "rcptto", "if": {"recipientdomain": ["blocked.example"]},
                 "then": {"reject": "550 5.7.1 not there"}},
                {"id": "later", "phase": "eod", "if": {"header": {"Subject": ["*later*"]}},
                 "then": {"defer": "451 4.7.1 later"}},
                {"id": "keep", "phase": "eod", "if": {"header": {"Subject": ["*hold*"]}}, "then": {"hold": "review"}},
            ]
        },
        "rates": {"user": {"messages": 6}, "window": "1h"},
        "servers": [{"id": "mx", "hostname": "mx.test", "phases": {"data": {"maxsize": "2KiB"}}}],
    }  # fmt: skip
    async with Api(system, await system.httpd(smtpd=rules)) as api:
        client = await api.caller("shop")
        refused = await client.post("/v1/messages", json={**MAIL, "to": ["a@example.net", "b@blocked.example"]})
        assert (refused.status_code, refused.json()["errors"]) == (422, [{"where": "body.to[1]", "why": "not there"}])
        later = await client.post("/v1/messages", json={**MAIL, "subject": "later"})
        assert (later.status_code, later.json()["detail"], "retry-after" in later.headers) == (503, "later", True)
        held = await client.post("/v1/messages", json={**MAIL, "subject": "hold"})
        assert held.status_code == 202
        assert await system.rows("SELECT status::text, metadata->>'_quarantineid' FROM queue") == [("HOLD", "review")]
        assert (await client.post("/v1/messages", json={**MAIL, "text": "x" * 3000})).status_code == 413
        answers = [(await client.post("/v1/messages", json=MAIL)).status_code for _ in range(5)]
        assert answers[-1] == 429


async def test_mail_waits_until_it_is_scheduled_and_can_be_rescheduled_and_cancelled(api: Api) -> None:
    client, other = await api.caller("shop"), await api.caller("other")
    at = datetime.now(UTC) + timedelta(days=1)
    id_ = (await client.post("/v1/messages", json={**MAIL, "scheduled_at": at.isoformat()})).json()["id"]
    path = f"/v1/messages/{id_}"
    shown = (await client.get(path)).json()["recipients"][0]
    assert (shown["state"], datetime.fromisoformat(shown["next_retry"])) == ("scheduled", at)
    sooner = (at - timedelta(hours=5)).isoformat()
    for verb, where, body in (("PATCH", path, {"scheduled_at": sooner}), ("POST", f"{path}/cancel", None)):
        assert (await other.request(verb, where, json=body)).status_code == 404
    moved = await client.patch(path, json={"scheduled_at": sooner})
    assert moved.json() == {"id": id_, "recipients": 1}
    assert await api.system.value("SELECT next_retry = %s::timestamptz FROM queue", sooner)
    assert (await client.post(f"{path}/cancel")).json() == {"id": id_, "recipients": 1}
    assert (await client.get(path)).json()["recipients"][0]["state"] == "delete"
    again = await client.post(f"{path}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "not_now")
    far = {**MAIL, "scheduled_at": (at + timedelta(days=30)).isoformat()}
    assert (await client.post("/v1/messages", json=far)).json()["errors"][0]["where"] == "body.scheduled_at"


async def test_each_message_of_a_batch_has_its_own_answer(api: Api) -> None:
    client = await api.caller("shop")
    batch = [MAIL, {**MAIL, "to": "nowhere"}, {**MAIL, "colour": "red"}, MAIL]
    answer = await client.post("/v1/messages/batch", json=batch)
    assert answer.status_code == 207
    data = answer.json()["data"]
    assert [each["status"] for each in data] == [202, 422, 422, 202]
    assert [fault["where"] for fault in data[1]["problem"]["errors"]] == ["body.to"]
    assert data[2]["problem"]["errors"][0]["where"] == "body.colour"
    assert await api.system.value("SELECT count(*) FROM queue") == 2
    assert (await client.post("/v1/messages/batch", json=[MAIL] * 300)).status_code == 202
    assert await api.system.value("SELECT count(*) FROM queue") == 302
    assert (await client.post("/v1/messages/batch", json=[])).status_code == 422
    assert (await client.post("/v1/messages/batch", json=[MAIL] * 1001)).status_code == 422


async def test_the_list_has_pages_conditions_and_only_own_mail_for_a_sender(api: Api) -> None:
    shop, other = await api.caller("shop"), await api.caller("other")
    await shop.post("/v1/messages/batch", json=[{**MAIL, "to": f"r{n}@example.net"} for n in range(5)])
    await other.post("/v1/messages", json=MAIL)
    page = (await shop.get("/v1/messages", params={"limit": 3})).json()
    assert len(page["data"]) == 3
    rest = (await shop.get("/v1/messages", params={"limit": 3, "after": page["next"]})).json()
    assert ([each["recipient"] for each in rest["data"]], rest["next"]) == (["r3@example.net", "r4@example.net"], None)
    found = (await shop.get("/v1/messages", params={"condition": "recipient=r2@example.net"})).json()
    assert [each["recipient"] for each in found["data"]] == ["r2@example.net"]
    wrong = await shop.get("/v1/messages", params={"condition": "colour=red"})
    assert (wrong.status_code, "colour" in wrong.json()["detail"]) == (422, True)
    viewer = await api.caller("ann", "viewer", kind="person")
    assert len((await viewer.get("/v1/messages")).json()["data"]) == 6


async def test_what_is_sent_is_delivered(api: Api, books: Any) -> None:
    await api.system.worker(books.sink.port)
    client = await api.caller("shop")
    id_ = (await client.post("/v1/messages", json=MAIL)).json()["id"]
    await api.system.until("SELECT count(*) = 1 FROM archive")
    shown = (await client.get(f"/v1/messages/{id_}")).json()["recipients"][0]
    assert (shown["state"], shown["attempts"][0]["outcome"]) == ("success", "delivered")
