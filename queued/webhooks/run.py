"""run — brings events to every endpoint, from one worker at a time

Owns: the lease of this task, and a task for each endpoint.
Guarantees: of all workers the one that has the lease does it; one that died delays events by the lease at most. Two at
    once, which a stopped process can cause, send events twice and skip none. Each endpoint has a task of its own, so
    one that is slow or down delays no other. What cannot be done is logged, and tried again.
See: queued/webhooks/endpoint.py; sql/README.md, "Webhooks".
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.webhooks.endpoint import Endpoint, Target
from queued.webhooks.history import History
from queued.webhooks.post import Post
from shared.errors import PillarboxError
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from shared.config.queued.webhooks import WebhookEndpoint, Webhooks

_LEASE: Final = timedelta(seconds=15)
_GLANCE: Final = 3.0  # seconds between two looks at the table of endpoints
_PAUSE: Final = 5.0  # seconds after trouble with PostgreSQL
_LONG_PAUSE: Final = 60.0  # after what should not happen
#: Connections that this task needs of its own.
CONNECTIONS: Final = 2


class WebhookTask:
    """What one worker does for webhooks."""

    def __init__(self, pool: database.Pool, worker: str, settings: Webhooks) -> None:
        self._pool, self._worker, self._settings = pool, worker, settings
        self._declared = self._leaving = False
        self._history = History()
        self._running: dict[Target, tuple[Endpoint, asyncio.Task[None]]] = {}

    def use(self, settings: Webhooks) -> None:
        """From now on go by these."""
        self._settings, self._declared = settings, False

    async def run(self) -> None:
        """Bring events while we have the lease, until cancelled."""
        held = -_LEASE.total_seconds()
        try:
            while True:
                try:
                    async with self._pool.connection() as connection:
                        if self._settings.enabled and not self._leaving and await self._elected(connection):
                            held = monotonic()
                            await self._look(connection)
                        else:
                            await self._end(set(self._running))
                            self._declared = False
                except (*database.OUTAGE, *database.REFUSAL) as error:
                    events.emit("webhook.unavailable", error=database.reason(error), away=database.is_away(error))
                if monotonic() - held >= _LEASE.total_seconds():
                    await self._end(set(self._running))
                await asyncio.sleep(_GLANCE)
        finally:
            await self._end(set(self._running))

    async def leave(self) -> None:
        """End, and give the lease back, so that another worker need not wait for its end."""
        self._leaving = True
        await self._end(set(self._running))
        async with self._pool.connection() as connection:
            await database.fetch(connection, "webhook_resign", worker=self._worker)

    async def _elected(self, connection: database.Connection) -> bool:
        [row] = await database.fetch(connection, "webhook_elect", worker=self._worker, lease=_LEASE)
        return bool(row.elected)

    async def _look(self, connection: database.Connection) -> None:
        """Begin with endpoints that are new or changed, and end with those that are no more."""
        if not self._declared:
            await self._end(set(self._running))  # each begins again by these settings
            declared = json.dumps([_as_json(each) for each in self._settings.endpoints])
            await database.fetch(connection, "webhook_declare", endpoints=declared)
            self._declared = True
        wanted = {
            Target(
                *(row.name, row.url, tuple(row.events), row.condition, tuple(row.secrets), row.private, row.batch)
            ): row.xact
            for row in await database.fetch(connection, "webhook_enabled")
        }
        await self._end(set(self._running) - set(wanted))
        for target, xact in wanted.items():
            if target in self._running:
                self._running[target][0].know(xact)
            else:
                self._begin(target)

    def _begin(self, target: Target) -> None:
        limit = self._settings.timeout.total_seconds()
        try:
            endpoint = Endpoint(
                self._pool, target, Post(target.url, private=target.private, limit=limit), history=self._history
            )
        except (PillarboxError, ValueError) as error:  # somebody wrote the row by hand
            events.emit("webhook.unavailable", webhook=target.name, error=str(error))
            return
        self._running[target] = endpoint, asyncio.create_task(self._serve(target, endpoint))

    async def _serve(self, target: Target, endpoint: Endpoint) -> None:
        """One endpoint, until cancelled."""
        try:
            while True:
                try:
                    wait = await endpoint.step()
                except (*database.OUTAGE, *database.REFUSAL) as error:
                    events.emit(
                        "webhook.unavailable",
                        webhook=target.name,
                        error=database.reason(error),
                        away=database.is_away(error),
                    )
                    wait = _PAUSE
                except Exception as error:  # noqa: BLE001 - the trouble of one endpoint ends neither others nor mail
                    events.emit("webhook.unavailable", webhook=target.name, error=repr(error))
                    wait = _LONG_PAUSE
                await asyncio.sleep(wait)
        finally:
            await endpoint.close()

    async def _end(self, targets: set[Target]) -> None:
        ended = [self._running.pop(target)[1] for target in targets if target in self._running]
        for task in ended:
            task.cancel()
        for each in await asyncio.gather(*ended, return_exceptions=True):
            if isinstance(each, Exception):
                raise each


def _as_json(endpoint: WebhookEndpoint) -> dict[str, object]:
    return {"name": endpoint.id, **endpoint.model_dump(exclude={"id"})}
