"""test_client_http — the client for Python sends through a running httpd, once, and asks what became of it

Owns: proofs about clients/python/pillarbox_client/http.py and django_http.py.
See: tests/integration/client/test_client_sql.py; docs/how-to/send/send-by-http.md.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from pillarbox_client import Attachment, Message, Tag, Unsubscribe
from pillarbox_client.http import Client, Problem

from tests.fixtures.daemons.programs import blocks, ran

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api

DJANGO: Final = """
import json, os
import django
from django.conf import settings

OPTIONS = {"url": os.environ["URL"], "key": os.environ["KEY"]}
settings.configure(
    MAILERS={
        "default": {"BACKEND": "pillarbox_client.django_http.HttpBackend", "OPTIONS": OPTIONS},
        "quiet": {
            "BACKEND": "pillarbox_client.django_http.HttpBackend",
            "OPTIONS": {**OPTIONS, "fail_silently": True},
        },
    },
    USE_TZ=True,
)
django.setup()
from django.core.mail import EmailMessage, send_mail

assert send_mail("Kept", "Grüße", "Shop <shop@example.com>", ["ann@example.net", "bob@example.net"]) == 1
email = EmailMessage("Extra", "x", "shop@example.com", ["ann@example.net"])
email.metadata, email.tags, email.esp_extra = {"order": 7}, ["spring"], {"idempotency_key": "k", "priority": 4}
assert email.send() == 1
refused = []
for wrong in ({"from_email": "ann@other.example"}, {"esp_extra": {"job": "x"}}, {"template_id": "t"}):
    wrongly = EmailMessage("Wrong", "x", "shop@example.com", ["ann@example.net"])
    for name, value in wrong.items():
        setattr(wrongly, name, value)
    try:
        wrongly.send()
    except Exception as error:
        refused.append(type(error).__name__)
    assert wrongly.send(using="quiet") == 0
print(json.dumps({"id": email.anymail_status.message_id, "refused": refused}))
"""


class LosesTheFirstAnswer(httpx.HTTPTransport):
    """A connection that breaks after the first request was answered, or a proxy that gives it this status."""

    def __init__(self, status: int | None) -> None:
        super().__init__()
        self.requests: list[httpx.Request] = []
        self._status = status

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Ask, and lose the first answer."""
        self.requests.append(request)
        answer = super().handle_request(request)
        if len(self.requests) == 1:
            answer.read()
            if self._status is not None:
                return httpx.Response(self._status, request=request)
            raise httpx.ReadError("the connection broke")
        return answer


def message(**other: Any) -> Message:
    """A message with these other values."""
    return Message(**{"sender": "shop@example.com", "to": ["ann@example.net"], "text": "Thanks.\n", **other})


async def client(api: Api, **how: Any) -> Client:
    """A client with a key of the application shop."""
    return Client(api.url, await api.key("shop", senders=["example.com"]), pause=0.01, **how)


async def test_every_field_is_taken_and_the_message_is_shown(api: Api) -> None:
    said = message(
        cc="carl@example.net",
        bcc=["dora@example.net"],
        reply_to="help@example.com",
        subject="Ihre Bestellung: 5 €",
        html="<p>Thanks.</p>",
        headers={"X-Order": "4711"},
        attachments=[Attachment(filename="a.pdf", content=b"%PDF", content_type="application/pdf")],
        tags=[Tag(name="kind", value="order")],
        metadata={"number": 7, "paid": True},
        list_unsubscribe=Unsubscribe(url="https://example.com/u"),
        priority=3,
        scheduled_at=datetime.now(UTC) + timedelta(hours=1),
    )
    with await client(api) as shop:
        id_ = await asyncio.to_thread(shop.send, said)
        shown = await asyncio.to_thread(shop.message, id_)
        assert [each["address"] for each in shown["recipients"]] == [*said.recipients]
        assert await asyncio.to_thread(shop.reschedule, id_, datetime.now(UTC) + timedelta(hours=2)) == 3
        assert await asyncio.to_thread(shop.cancel, id_) == 3
    [[metadata]] = await api.system.rows("SELECT DISTINCT metadata - '_partid' FROM queue")
    assert {key: metadata[key] for key in ("kind", "number", "paid")} == {"kind": "order", "number": 7, "paid": True}


@pytest.mark.parametrize("status", [None, 502, 504])
async def test_a_message_whose_answer_was_lost_is_sent_once(api: Api, status: int | None) -> None:
    transport = LosesTheFirstAnswer(status)
    with await client(api, transport=transport) as shop:
        id_ = await asyncio.to_thread(shop.send, message())
        assert len(transport.requests) == 2
        assert await api.system.rows("SELECT id FROM messages") == [(id_,)]
        raw = Message(sender="shop@example.com", to=["bob@example.net"], raw=b"From: shop@example.com\r\n\r\n\xe4\r\n")
        first = await asyncio.to_thread(shop.send, raw, idempotency_key="order-7")
        assert await asyncio.to_thread(shop.send, raw, idempotency_key="order-7") == first
        with pytest.raises(Problem) as refused:
            await asyncio.to_thread(shop.send, message(subject="another"), idempotency_key="order-7")
        assert (refused.value.status, refused.value.code) == (409, "idempotency_key_reused")
    assert await api.system.value("SELECT count(*) FROM messages") == 2


async def test_each_message_of_a_batch_has_its_answer(api: Api) -> None:
    said = [message(subject="one"), message(sender="ann@other.example"), message(to=["bob@example.net"])]
    with await client(api) as shop:
        answers = await asyncio.to_thread(shop.send_batch, said)
    assert [(each.status, each.id is not None, each.problem is not None) for each in answers] == [
        (202, True, False),
        (403, False, True),
        (202, True, False),
    ]


async def test_a_refusal_has_the_words_of_the_server(api: Api) -> None:
    with await client(api) as shop:
        with pytest.raises(Problem, match=r"^403 ") as refused:
            await asyncio.to_thread(shop.send, message(sender="ann@other.example"))
        assert refused.value.status == 403
    with Client(api.url, "pb_wrong", tries=1) as stranger, pytest.raises(Problem) as unknown:
        await asyncio.to_thread(stranger.send, message())
    assert unknown.value.status == 401
    with Client("http://127.0.0.1:1", "x", tries=2, pause=0.01) as nobody, pytest.raises(httpx.ConnectError):
        await asyncio.to_thread(nobody.send, message())


async def test_django_sends_by_http_with_what_anymail_adds(api: Api) -> None:
    key = await api.key("shop", senders=["example.com"])
    said = json.loads(await ran(DJANGO, URL=api.url, KEY=key))
    assert said["refused"] == ["Problem", "UnsupportedFeature", "UnsupportedFeature"]
    assert await api.system.rows("SELECT subject FROM messages ORDER BY id") == [("Kept",), ("Extra",)]
    [[priority, metadata]] = await api.system.rows(
        "SELECT priority, metadata FROM queue WHERE messages__id = %s", said["id"]
    )
    assert (priority, metadata["order"], metadata["spring"]) == (4, 7, "true")


async def test_the_code_on_its_page_sends(api: Api) -> None:
    _, program, _, _ = blocks()
    program = program.replace("http://127.0.0.1:8025", api.url)
    assert "'address': 'ann@example.net'" in await ran(program, KEY=await api.key("shop", senders=["example.com"]))
    assert await api.system.value("SELECT subject FROM messages") == "Your order"
