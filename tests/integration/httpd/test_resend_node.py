"""test_resend_node — Resend's own Node library sends once under a key, in batches and later, and reads our errors

Owns: proofs about httpd/routes/emails.py.
See: tests/fixtures/peers/web/resend_node/use.cjs; test_resend.py, for Python's.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tests.fixtures.peers.web
from tests.fixtures.peers.web.npm import installed

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api

SCRIPT: Final = Path(tests.fixtures.peers.web.__path__[0]) / "resend_node" / "use.cjs"
MAIL: Final[dict[str, Any]] = {
    "from": "Shop <shop@example.com>",
    "to": ["ann@example.net"],
    "subject": "Order",
    "html": "<p>Thanks.</p>",
    "replyTo": "help@example.com",
    "tags": [{"name": "kind", "value": "order"}],
    "attachments": [{"filename": "a.txt", "content": "aGVsbG8="}],
}


async def test_the_library_sends_looks_reschedules_and_cancels(api: Api) -> None:
    folder = await asyncio.to_thread(installed, SCRIPT.with_name("package.json"), "resend", "Resend's Node library")
    key = await api.key("shop", senders=["example.com"])
    program = await asyncio.create_subprocess_exec(
        *("node", str(SCRIPT), str(folder)),
        env={"PATH": os.environ["PATH"], "RESEND_BASE_URL": api.url, "KEY": key},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, faults = await program.communicate(json.dumps(MAIL).encode())
    assert program.returncode == 0, faults.decode()
    sent, again, other, shown, batch, refused, later, moved, ended = map(json.loads, said.splitlines())
    assert (sent["error"], again["data"]["id"]) == (None, sent["data"]["id"])
    assert other["error"]["name"] == "invalid_idempotent_request"
    assert (shown["data"]["to"], shown["data"]["last_event"]) == (["ann@example.net"], "queued")
    assert len(batch["data"]["data"]) == 2
    assert (refused["data"], "to" in refused["error"]["message"]) == (None, True)
    assert moved["data"]["id"] == ended["data"]["id"] == later["data"]["id"]
    found = await api.system.rows(
        """SELECT DISTINCT q.metadata->>'kind', convert_from(m.content, 'UTF8') LIKE '%Reply-To: help@example.com%'
             FROM queue q JOIN messages m ON m.id = q.messages__id"""
    )
    assert found == [("order", True)]
    assert await api.system.value("SELECT count(*) FROM messages") == 1 + 2 + 1  # a key, a batch, the later one
