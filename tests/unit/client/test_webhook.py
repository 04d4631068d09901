"""test_webhook — the client verifies what the specification's own library signs, and nothing else

Owns: proofs about clients/python/pillarbox_client/webhook.py.
See: https://github.com/standard-webhooks/standard-webhooks.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pillarbox_client.webhook import Refused, verify
from standardwebhooks import Webhook

OLD, NEW = ("whsec_" + b64encode(name * 24).decode() for name in (b"o", b"n"))
NOW: Final = 1_789_997_600
EVENT: Final[dict[str, Any]] = {
    "id": "evt_1",
    "type": "delivered",
    "timestamp": "2026-09-21T13:33:20.5Z",
    "data": {"recipient": "ann@example.net"},
}


def signed(body: bytes, secret: str = NEW, *, at: int = NOW, id_: str = "evt_1") -> dict[str, str]:
    """The headers of a request, signed by the specification's own library."""
    signature = Webhook(secret).sign(id_, datetime.fromtimestamp(at, UTC), body.decode())
    return {"Webhook-Id": id_, "Webhook-Timestamp": str(at), "Webhook-Signature": signature}


def test_an_event_that_was_signed_is_read() -> None:
    body = json.dumps(EVENT).encode()
    event = verify(body, signed(body), NEW, now=NOW + 299)
    assert (event.id, event.type, event.data) == ("evt_1", "delivered", {"recipient": "ann@example.net"})
    assert event.timestamp.timestamp() == NOW + 0.5
    assert event.events == [event]


def test_a_batch_has_its_events_in_order() -> None:
    body = json.dumps({**EVENT, "type": "batch", "data": [EVENT, {**EVENT, "id": "evt_2"}]}).encode()
    assert [each.id for each in verify(body, signed(body), NEW, now=NOW).events] == ["evt_1", "evt_2"]


@given(st.text(min_size=1), st.sampled_from([OLD, NEW]))
def test_either_secret_is_taken_while_one_replaces_the_other(text: str, secret: str) -> None:
    body = json.dumps({**EVENT, "data": text}).encode()
    headers = signed(body, secret)
    headers["Webhook-Signature"] = "v1a,other v1,AAAA " + headers["Webhook-Signature"]
    assert verify(body, headers, [OLD, NEW], now=NOW).data == text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"Webhook-Id": "evt_2"}, "no signature"),
        ({"Webhook-Timestamp": str(NOW + 1)}, "no signature"),
        ({"Webhook-Timestamp": str(NOW - 301)}, "more than 300 s away"),
        ({"Webhook-Timestamp": str(NOW + 301)}, "more than 300 s away"),
        ({"Webhook-Timestamp": "soon"}, "not a number"),
        ({"Webhook-Timestamp": "-1"}, "not a number"),
        ({"Webhook-Timestamp": "1" * 5000}, "not a number"),
        ({"Webhook-Signature": ""}, "no signature"),
        ({"Webhook-Signature": "v1,é"}, "no signature"),
        ({"Webhook-Signature": "v2,AAAA"}, "no signature"),
    ],
)
def test_what_is_not_ours_or_not_from_now_is_refused(change: dict[str, str], reason: str) -> None:
    body = json.dumps(EVENT).encode()
    with pytest.raises(Refused, match=reason):
        verify(body, {**signed(body), **change}, NEW, now=NOW)


def test_another_body_another_secret_or_a_missing_header_is_refused() -> None:
    body = json.dumps(EVENT).encode()
    headers = signed(body)
    with pytest.raises(Refused, match="no signature"):
        verify(body + b" ", headers, NEW, now=NOW)
    with pytest.raises(Refused, match="no signature"):
        verify(body, headers, OLD, now=NOW)
    for name in headers:
        with pytest.raises(Refused, match=f"{name.lower()}.* is missing"):
            verify(body, {key: value for key, value in headers.items() if key != name}, NEW, now=NOW)
    for wrong in (b"[]", b"x", b'{"type": 1}'):
        with pytest.raises(Refused, match="not an event"):
            verify(wrong, signed(wrong), NEW, now=NOW)


def test_a_secret_that_is_not_one_is_an_error_that_does_not_show_it() -> None:
    body = json.dumps(EVENT).encode()
    for secret in ("hush", "whsec_hush\u00fc"):
        with pytest.raises(ValueError, match="24 to 64 octets in base64") as wrong:
            verify(body, signed(body), secret, now=NOW)
        assert "hush" not in str(wrong.value)
