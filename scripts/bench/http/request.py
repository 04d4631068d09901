"""request — the requests of a run, as octets

Owns: the forms in which one message is sent by HTTP. Pure.
See: docs/how-to/send/send-by-http.md.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Final, NamedTuple
from urllib.parse import urlencode

from scripts.bench.http.report import BASE64, BATCH, PARTS, SINGLE
from scripts.bench.smtpd.load import RECIPIENT
from scripts.bench.source import SENDER

_JSON: Final = "application/json"


class Form(NamedTuple):
    """A request without its key: where it goes, what it holds, how many messages these are."""

    target: str
    kind: str
    body: bytes
    messages: int = 1

    def octets(self, key: str) -> bytes:
        """The request with this key."""
        head = (
            f"POST {self.target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: {self.kind}\r\nContent-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode("ascii") + self.body


def forms(text: bytes, batch: int) -> dict[str, Form]:
    """The message in each form, by the name of its row."""
    envelope = {"from": SENDER, "to": RECIPIENT}
    raw = {**envelope, "raw": b64encode(text).decode()}
    shown = text.partition(b"\r\n\r\n")[2].decode("ascii")
    parts = {**envelope, "subject": "bench", "text": shown}
    return {
        SINGLE: Form(f"/v1/messages?{urlencode(envelope)}", "message/rfc822", text),
        BASE64: Form("/v1/messages", _JSON, json.dumps(raw).encode()),
        BATCH: Form("/v1/messages/batch", _JSON, json.dumps([raw] * batch).encode(), batch),
        PARTS: Form("/v1/messages", _JSON, json.dumps(parts).encode()),
    }
