"""listener — an application that hears of its mail by webhooks, while the workers that bring its events are killed

Owns: Listener, a server on loopback that takes every event; the promise to it: every event at least once, under one id,
    none invented, `accepted` before `delivered`.
See: sql/README.md, "Webhooks"; docs/how-to/send/webhooks.md.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from queued.webhooks.signature import new_secret
from tests.fixtures.peers.web.hooks import Hooks
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.chaos.arena import Arena

_KINDS: Final = ("accepted", "delivered")
_LATEST: Final = 60.0  # seconds; a worker that died had the lease of webhooks for up to 15, and may have met two pauses


class Listener:
    """One endpoint; `section` is that of queued.yaml."""

    def __init__(self, hooks: Hooks, folder: Path) -> None:
        self._hooks = hooks
        (folder / "webhook.secret").write_text(new_secret())
        endpoint = {
            "id": "app",
            "url": hooks.url,
            "events": list(_KINDS),
            "secrets": [f"file:{folder}/webhook.secret"],
            "private": True,
            "batch": 5,
        }
        self.section: dict[str, Any] = {"endpoints": [endpoint]}

    async def broken(self, arena: Arena) -> list[str]:
        """What it was not notified of, and what it was notified of wrongly, once everything is finished."""
        finished = {row for (row,) in await arena.rows("SELECT id FROM archive")}
        expected = {(row, kind) for row in finished for kind in _KINDS}
        with suppress(AssertionError, TimeoutError):
            await eventually(lambda: expected <= set(self._events()), "every event came", limit=_LATEST)
        events = self._events()
        ids: dict[tuple[int, str], set[str]] = {}
        first: dict[tuple[int, str], int] = {}
        for place, event in enumerate(self._hooks.taken):
            what = event["data"]["id"], event["type"]
            ids.setdefault(what, set()).add(event["id"])
            first.setdefault(what, place)
        late = [row for row in finished if first.get((row, "accepted"), 0) > first.get((row, "delivered"), len(events))]
        found = {
            f"{len(expected - set(events))} of {len(expected)} events never came": not expected <= set(events),
            f"{len(set(events) - expected)} events were invented": not set(events) <= expected,
            f"{sum(len(each) > 1 for each in ids.values())} events have two ids": any(
                len(each) > 1 for each in ids.values()
            ),
            f"{len(late)} recipients were delivered before they were accepted": bool(late),
        }
        return [what for what, is_so in found.items() if is_so]

    def _events(self) -> list[tuple[int, str]]:
        return [(event["data"]["id"], event["type"]) for event in self._hooks.taken]


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[Listener]:
    """A listener for the block."""
    hooks = Hooks()
    server = await asyncio.start_server(hooks.talk, "127.0.0.1", 0)
    hooks.port = server.sockets[0].getsockname()[1]
    try:
        yield Listener(hooks, folder)
    finally:
        server.close()
        hooks.hang_up()
        await server.wait_closed()
