"""health — whether a daemon is alive, and whether it can do its work now

Owns: the answers to /healthy and /ready, from events and from queries; serving them beside /metrics.
Guarantees: an answer is None or one line with the reason, without secrets. PostgreSQL is queried at most once a second
    for any number of requests, and an answer takes at most two seconds. Being ready needs PostgreSQL; being alive does
    not, so that no worker is restarted because the database is away.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from shared.observe.metrics_server import MetricsServer, Page
from shared.postgres.cached_answer import Latest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from shared.config.metrics import ListenAddress
    from shared.observe.events import Watcher
    from shared.postgres import database

_PATIENCE: Final = 2.0  # seconds for PostgreSQL; a busy server takes milliseconds
_FRESH: Final = 1.0  # seconds an answer of PostgreSQL holds


class Health:
    """The state of this process's health. Each check says why the daemon cannot work now, or None."""

    def __init__(self, *checks: Callable[[], Awaitable[str | None]]) -> None:
        self._checks = checks
        self._died: str | None = None
        self._stopping = False

    def watchers(self) -> Mapping[str, list[Watcher]]:
        """The watchers by event."""
        return {"daemon.failed": [self._failed], "daemon.stopping": [self._asked_to_stop]}

    async def not_alive(self) -> str | None:
        """Why not; that we can answer proves that the event loop turns."""
        return self._died

    async def not_ready(self) -> str | None:
        """Why not: the first reason there is."""
        if self._died or self._stopping:
            return self._died or "stopping"
        for check in self._checks:
            if why := await check():
                return why
        return None

    def _failed(self, fields: Mapping[str, object]) -> None:
        # A fault within an attempt defers that attempt's mail; the worker goes on.
        if fields.get("part") != "attempt":
            self._died = f"a part died: {fields.get('part')}"

    def _asked_to_stop(self, _: Mapping[str, object]) -> None:
        self._stopping = True


class Answering:
    """The check that PostgreSQL answers over this pool, which is the way the daemon itself asks."""

    def __init__(self, pool: database.Pool) -> None:
        self._latest = Latest(pool, _answered, fresh=_FRESH, patience=_PATIENCE)

    async def __call__(self) -> str | None:
        """None when it answered within the last second, asking it if need be."""
        return None if await self._latest.answer() else "PostgreSQL does not answer"

    async def close(self) -> None:
        """Ask no more."""
        await self._latest.close()


async def _answered(_: database.Connection) -> bool:
    return True  # the pool hands out no connection that has not answered just now


@asynccontextmanager
async def serving(address: ListenAddress, health: Health, metrics: Callable[[], Awaitable[Page]]) -> AsyncIterator[str]:
    """The pages /metrics, /healthy and /ready as long as the block lasts; the address as bound."""
    pages = {
        "/metrics": metrics,
        "/healthy": _page(health.not_alive, "healthy"),
        "/ready": _page(health.not_ready, "ready"),
    }
    server = MetricsServer(pages)
    bound = await server.open(address, "metrics.listen")
    try:
        yield bound
    finally:
        await server.close()


def _page(question: Callable[[], Awaitable[str | None]], yes: str) -> Callable[[], Awaitable[Page]]:
    """A page of one line: 200 and `yes`, or 503 and why not."""

    async def answer() -> Page:
        why = await question()
        if why is None:
            return Page(f"{yes}\n".encode())
        return Page(f"not {yes}: {why}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)

    return answer
