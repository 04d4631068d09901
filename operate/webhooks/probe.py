"""probe — sends an endpoint one event that did not happen, signed like any other

Guarantees: the request is the one that a worker would send, with the same checks of the address; the position of the
    endpoint stays. No transaction is open meanwhile.
Raises: NotThere.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from operate.webhooks.endpoints import listed
from queued.webhooks import signature
from queued.webhooks.post import Post
from shared.postgres import database

if TYPE_CHECKING:
    from datetime import timedelta


class Probed(NamedTuple):
    """What came of it. error: why it was not taken."""

    id: str
    error: str | None


async def probe(connection: database.Connection, name: str, limit: timedelta) -> Probed:
    """Send the event `test` now; `limit`: how long that may take."""
    await listed(connection, name)
    [row] = await database.fetch(connection, "webhook_secrets", name=name)
    event = f"evt_test_{uuid4().hex}"
    payload = {"id": event, "type": "test", "timestamp": datetime.now(UTC).isoformat(), "data": {"webhook": name}}
    post = Post(row.url, private=row.private, limit=limit.total_seconds())
    try:
        keys = [signature.key_of(secret) for secret in row.secrets]
        answer = await post.send(event, json.dumps(payload).encode(), keys, lambda: datetime.now(UTC))
    finally:
        await post.close()
    return Probed(event, answer.error)
