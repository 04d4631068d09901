"""metrics — a collector's counts and health, for Prometheus and for health checks

Owns: the pages /metrics, /healthy and /ready of a collector; which tokens wait, as PostgreSQL knows it.
Guarantees: without `metrics.listen` nothing is opened, counted or queried. PostgreSQL is queried on a scrape, at most
    once in `metrics.refresh` and for two seconds; a scrape never fails because PostgreSQL is away.
Raises: ListenFailed when the address cannot be bound; DatabaseUnavailable.
See: docs/how-to/observe/watch-with-prometheus.md; shared/observe/collect_table.py.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from shared.observe import events
from shared.observe.collect_table import COLLECT
from shared.observe.metrics import ProcessCounts
from shared.observe.metrics_server import Page
from shared.observe.metrics_totals import CONTENT_TYPE, Reading
from shared.postgres import database
from shared.postgres.cached_answer import Latest
from shared.postgres.health import Answering, Health, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from shared.config.collect.settings import CollectMetrics
    from shared.observe.events import Watcher

_CONNECTIONS: Final = 1  # of its own, so that a scrape waits for no batch
_PATIENCE: Final = 2.0  # seconds for the tokens that wait
_MOST: Final = 1000  # tokens counted of each action; the table of metrics says so


class _Listening:
    """Whether the collector listens, by its events."""

    def __init__(self) -> None:
        self.now = False

    def watchers(self) -> Mapping[str, list[Watcher]]:
        """The watchers by event."""
        return {"wakeup.listening": [self._heard], "wakeup.lost": [self._lost]}

    def _heard(self, _: Mapping[str, object]) -> None:
        self.now = True

    def _lost(self, _: Mapping[str, object]) -> None:
        self.now = False


@asynccontextmanager
async def observing(settings: CollectMetrics, conninfo: str, schema: str) -> AsyncIterator[str | None]:
    """Count, and answer over HTTP, as long as the block lasts; the address as bound, None when that is off."""
    if settings.listen is None:
        yield None
        return

    async def ask(connection: database.Connection) -> list[Reading]:
        found = [Reading("pillarbox_tokens_known", 1)]
        rows = await database.fetch_filled(connection, "tokens_by_action", {"schema": schema}, keep=True, most=_MOST)
        for row in rows:
            found.append(Reading("pillarbox_tokens_waiting", row.waiting, (row.action,)))
            found.append(Reading("pillarbox_tokens_oldest_seconds", row.oldest, (row.action,)))
        return found

    async with AsyncExitStack() as stack:
        pool = await database.open_pool(conninfo, "pillarbox collect metrics", _CONNECTIONS)
        stack.push_async_callback(pool.close)
        answering, listening, counts = Answering(pool), _Listening(), ProcessCounts({}, COLLECT)
        tokens = Latest(pool, ask, fresh=settings.refresh.total_seconds(), patience=_PATIENCE)
        for asked in (answering, tokens):
            stack.push_async_callback(asked.close)
        health = Health(answering)
        for each in (counts, health, listening):
            stack.enter_context(events.watched(each.watchers()))

        async def metrics() -> Page:
            waiting = await tokens.answer() or [Reading("pillarbox_tokens_known", 0)]
            readings = [
                Reading("pillarbox_collect_listening", listening.now),
                Reading("pillarbox_collect_ready", await health.not_ready() is None),
                *waiting,
            ]
            return Page(counts.exposition(readings), type=CONTENT_TYPE)

        bound = await stack.enter_async_context(serving(settings.listen, health, metrics))
        yield bound
