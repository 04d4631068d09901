"""test_resend — Resend's own Python library sends, looks, reschedules, cancels and reads our errors

Owns: proofs about httpd/routes/emails.py.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import resend
from resend.exceptions import ResendError

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api

MAIL: Any = {
    "from": "Shop <shop@example.com>",
    "to": ["ann@example.net"],
    "subject": "Order",
    "html": "<p>Thanks.</p>",
    "reply_to": "help@example.com",
    "tags": [{"name": "kind", "value": "order"}],
    "attachments": [{"filename": "a.txt", "content": list(b"hello")}],
}


def changed(**fields: Any) -> Any:
    """The mail with these fields."""
    return {**MAIL, **fields}


@pytest.fixture
async def library(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """The library, pointed at our httpd."""
    monkeypatch.setattr(resend, "api_url", api.url)
    monkeypatch.setattr(resend, "api_key", await api.key("shop", senders=["example.com"]))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return api


async def test_the_library_sends_once_under_a_key_and_sees_what_became_of_it(library: Api) -> None:
    options: Any = {"idempotency_key": "order-4711"}
    sent = await asyncio.to_thread(resend.Emails.send, MAIL, options)
    again = await asyncio.to_thread(resend.Emails.send, MAIL, options)
    assert sent["id"] == again["id"]
    assert await library.system.rows("SELECT metadata->>'kind' FROM queue") == [("order",)]
    shown: Any = await asyncio.to_thread(resend.Emails.get, sent["id"])
    assert (shown["from"], shown["to"], shown["last_event"]) == ("shop@example.com", ["ann@example.net"], "queued")
    with pytest.raises(ResendError) as refused:
        await asyncio.to_thread(resend.Emails.send, changed(subject="Other"), options)
    assert (refused.value.code, refused.value.error_type) == (409, "invalid_idempotent_request")


async def test_the_library_sends_batches(library: Api) -> None:
    batch = await asyncio.to_thread(resend.Batch.send, [MAIL, MAIL, MAIL])
    assert len(batch["data"]) == 3
    wrong: Any = [MAIL, {**MAIL, "to": "nowhere"}]
    with pytest.raises(ResendError) as refused:
        await asyncio.to_thread(resend.Batch.send, wrong)
    assert refused.value.code == 422
    assert "body[1].to" in str(refused.value)
    permissive: Any = {"batch_validation": "permissive"}
    some: Any = await asyncio.to_thread(resend.Batch.send, wrong, permissive)
    assert (len(some["data"]), [each["index"] for each in some["errors"]]) == (1, [1])
    assert await library.system.value("SELECT count(*) FROM queue") == 4


async def test_the_library_schedules_reschedules_and_cancels(library: Api) -> None:
    at = datetime.now(UTC) + timedelta(days=1)
    sent = await asyncio.to_thread(resend.Emails.send, changed(scheduled_at=at.isoformat()))
    later: Any = {"id": sent["id"], "scheduled_at": (at + timedelta(hours=1)).isoformat()}
    assert (await asyncio.to_thread(resend.Emails.update, later))["id"] == sent["id"]
    shown: Any = await asyncio.to_thread(resend.Emails.get, sent["id"])
    assert shown["last_event"] == "scheduled"
    await asyncio.to_thread(resend.Emails.cancel, sent["id"])
    ended: Any = await asyncio.to_thread(resend.Emails.get, sent["id"])
    assert ended["last_event"] == "canceled"


async def test_the_library_reads_our_errors(library: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for change, code in (({"from": "boss@example.org"}, 403), ({"text": "a\0"}, 422), ({"colour": "red"}, 422)):
        with pytest.raises(ResendError) as refused:
            await asyncio.to_thread(resend.Emails.send, changed(**change))
        assert refused.value.code == code
        assert refused.value.message
    monkeypatch.setattr(resend, "api_key", "re_123")
    with pytest.raises(ResendError) as unknown:
        await asyncio.to_thread(resend.Emails.send, MAIL)
    assert unknown.value.code == 401
