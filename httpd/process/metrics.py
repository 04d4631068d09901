"""metrics — httpd's counts and health, for Prometheus and for health checks

Owns: the pages /metrics, /healthy and /ready of httpd; the report of one process about itself.
Guarantees: without `metrics.listen` nothing is opened and nothing is counted. A page asks only our own processes.
Raises: ListenFailed when the address cannot be bound.
See: docs/how-to/observe/watch-with-prometheus.md; shared/observe/httpd_table.py; smtpd/process/metrics_children.py,
    which adds up several processes.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from shared.observe import events
from shared.observe.httpd_table import CODES, HTTPD
from shared.observe.metrics import Label, ProcessCounts
from shared.observe.metrics_totals import Reading, Totals
from shared.observe.queued_table import CODE
from shared.postgres.health import Answering
from smtpd.process.metrics import pages, processes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from httpd.process.serving import Serving
    from shared.config.httpd.settings import HttpdMetrics
    from smtpd.process.metrics import ProcessFigures

ALONE: Final = "httpd"  # the one process's name in labels


class Alone:
    """The figures of a process that serves by itself (smtpd.process.metrics.ProcessFigures)."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._answering = Answering(serving.pool)

    async def totals(self, own: Totals) -> Totals:
        """Its own."""
        return own

    async def readings(self) -> list[Reading]:
        """Its own."""
        ready = await self._answering() is None
        return [*processes(1, 1, ALONE), *_readings(self._serving, ALONE, ready=ready)]

    async def trouble(self) -> str | None:
        """Whether PostgreSQL answers."""
        return await self._answering()

    async def close(self) -> None:
        """Ask no more."""
        await self._answering.close()


class Reporting:
    """A child's report to the supervisor."""

    def __init__(self, counts: ProcessCounts, serving: Serving, process: str) -> None:
        self._counts = counts
        self._serving = serving
        self._process = process
        self._answering = Answering(serving.pool)

    async def report(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        trouble = await self._answering()
        return {
            "snapshot": self._counts.totals.snapshot(),
            "readings": _readings(self._serving, self._process, ready=trouble is None),
            "trouble": trouble,
        }

    async def close(self) -> None:
        """Ask no more."""
        await self._answering.close()


def _readings(serving: Serving, process: str, *, ready: bool) -> list[Reading]:
    """The gauges of one process."""
    return [
        Reading("pillarbox_httpd_connections", serving.server.connections, (process,)),
        Reading("pillarbox_httpd_requests", serving.server.requests, (process,)),
        Reading("pillarbox_httpd_ready", ready, (process,)),
    ]


@contextmanager
def counting() -> Iterator[ProcessCounts]:
    """Count as long as the block lasts."""
    counts = ProcessCounts({CODE: Label(CODES, lambda fields: str(fields.get("status")))}, HTTPD)
    with events.watched(counts.watchers()):
        yield counts


@asynccontextmanager
async def observing(settings: HttpdMetrics, figures: ProcessFigures) -> AsyncIterator[str | None]:
    """Count, and answer over HTTP, as long as the block lasts; the address as bound, None when that is off."""
    if settings.listen is None:
        yield None
        return
    with counting() as counts:
        async with pages(settings.listen, figures, counts) as bound:
            yield bound
