"""metrics — httpd's counts and health, for Prometheus and for health checks

Owns: the pages /metrics, /healthy and /ready of httpd.
Guarantees: without `metrics.listen` nothing is opened and nothing is counted.
Raises: ListenFailed when the address cannot be bound.
See: docs/how-to/watch-with-prometheus.md; shared/observe/httpd_table.py.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from shared.observe import events
from shared.observe.httpd_table import CODES, HTTPD
from shared.observe.metrics import Label, ProcessCounts
from shared.observe.metrics_server import Page
from shared.observe.metrics_totals import CONTENT_TYPE, Reading
from shared.observe.queued_table import CODE
from shared.postgres.health import Answering, Health, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from httpd.server.serving import Server
    from httpd.service import Service
    from shared.config.httpd.settings import HttpdMetrics


@asynccontextmanager
async def observing(settings: HttpdMetrics, service: Service, server: Server) -> AsyncIterator[str | None]:
    """Count, and answer over HTTP, as long as the block lasts; the address as bound, None when that is off."""
    if settings.listen is None:
        yield None
        return
    async with AsyncExitStack() as stack:
        answering = Answering(service.pool)
        stack.push_async_callback(answering.close)
        health = Health(answering)
        counts = ProcessCounts({CODE: Label(CODES, lambda fields: str(fields.get("status")))}, HTTPD)
        stack.enter_context(events.watched(counts.watchers()))
        stack.enter_context(events.watched(health.watchers()))

        async def metrics() -> Page:
            readings = [
                Reading("pillarbox_httpd_connections", server.connections),
                Reading("pillarbox_httpd_requests", server.requests),
                Reading("pillarbox_httpd_ready", await health.not_ready() is None),
            ]
            return Page(counts.exposition(readings), type=CONTENT_TYPE)

        bound = await stack.enter_async_context(serving(settings.listen, health, metrics))
        yield bound
