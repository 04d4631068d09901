"""metrics — smtpd's counts and health, for Prometheus and for health checks

Owns: the pages /metrics, /healthy and /ready of smtpd; the report of one process about itself.
Guarantees: without `metrics.listen` nothing is opened and nothing is counted. A page asks our own processes, and
    PostgreSQL for an estimate of what is queued: without its answer in time those series are missing.
Raises: ListenFailed when the address cannot be bound.
See: docs/how-to/observe/watch-with-prometheus.md; shared/observe/smtpd_table.py; smtpd/process/metrics_children.py.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from shared.observe import events
from shared.observe.metrics import ProcessCounts, by_reply
from shared.observe.metrics_server import Page
from shared.observe.metrics_totals import CONTENT_TYPE, Reading, Totals
from shared.observe.smtpd_table import SMTPD
from shared.postgres import database
from shared.postgres.cached_answer import Latest
from shared.postgres.health import Health, serving
from shared.postgres.leaf_rows import leaf_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from shared.config.metrics import ListenAddress, SmtpdMetrics
    from smtpd.process.serve import Serving

ALONE: Final = "smtpd"  # the one process's name in labels
_FRESH: Final = 5.0  # seconds an answer of PostgreSQL holds
_PATIENCE: Final = 2.0  # seconds for PostgreSQL


class ProcessFigures(Protocol):
    """Where the figures of all processes come from."""

    async def totals(self, own: Totals) -> Totals:
        """The counts; `own` are those of the process that answers."""

    async def readings(self) -> list[Reading]:
        """The gauges of this moment."""

    async def trouble(self) -> str | None:
        """Why no mail would be accepted now."""


def readings(serving: Serving, process: str) -> list[Reading]:
    """The gauges of one process."""
    listeners, spool = serving.listeners, serving.spool
    room = [] if spool.free is None else [Reading("pillarbox_smtpd_space_free_bytes", spool.free, (process,))]
    return [
        *room,
        Reading("pillarbox_smtpd_space_known", spool.free is not None, (process,)),
        Reading("pillarbox_smtpd_ready", spool.ready() is None, (process,)),
        Reading("pillarbox_smtpd_sessions", len(listeners.connections), (process,)),
        Reading("pillarbox_smtpd_lag_seconds", listeners.load.lag, (process,)),
        Reading("pillarbox_smtpd_pending_bytes", spool.pending, (process,)),
    ]


def processes(wanted: int, ready: int, daemon: str = ALONE) -> list[Reading]:
    """How many there should be and how many serve."""
    return [
        Reading(f"pillarbox_{daemon}_processes", wanted, ("wanted",)),
        Reading(f"pillarbox_{daemon}_processes", ready, ("ready",)),
    ]


class Alone:
    """The figures of a process that serves by itself (ProcessFigures)."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def totals(self, own: Totals) -> Totals:
        """Its own."""
        return own

    async def readings(self) -> list[Reading]:
        """Its own."""
        return [*processes(1, 1), *readings(self._serving, ALONE)]

    async def trouble(self) -> str | None:
        """Why a message would not be committed now, as far as is known."""
        why = self._serving.spool.ready()
        return None if why is None else str(why)


class Reporting:
    """A child's report to the supervisor."""

    def __init__(self, counts: ProcessCounts, serving: Serving, process: str) -> None:
        self._counts = counts
        self._serving = serving
        self._process = process

    async def report(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        why = self._serving.spool.ready()
        return {
            "snapshot": self._counts.totals.snapshot(),
            "readings": readings(self._serving, self._process),
            "trouble": None if why is None else str(why),
        }


@contextmanager
def counting() -> Iterator[ProcessCounts]:
    """Count as long as the block lasts."""
    counts = ProcessCounts(by_reply(), SMTPD)
    with events.watched(counts.watchers()):
        yield counts


@asynccontextmanager
async def observing(settings: SmtpdMetrics, figures: ProcessFigures, conninfo: str) -> AsyncIterator[str | None]:
    """Count, and answer over HTTP, as long as the block lasts; the address as bound, None when that is off.

    How much mail is queued is said here too, for there may be no worker that could say it.
    """
    if settings.listen is None:
        yield None
        return
    async with AsyncExitStack() as stack:
        counts = stack.enter_context(counting())
        pool = await database.open_pool(conninfo, "pillarbox smtpd metrics", 1)
        stack.push_async_callback(pool.close)
        queue = Latest(pool, leaf_rows, fresh=_FRESH, patience=_PATIENCE)
        stack.push_async_callback(queue.close)
        yield await stack.enter_async_context(pages(settings.listen, figures, counts, queue))


@asynccontextmanager
async def pages(
    listen: ListenAddress, figures: ProcessFigures, counts: ProcessCounts, more: Latest[list[Reading]] | None = None
) -> AsyncIterator[str]:
    """The pages of a daemon, with these figures, as long as the block lasts; the address as bound.

    counts: of the process that answers. more: gauges that PostgreSQL is asked for; left out where it does not answer.
    """
    health = Health(figures.trouble)

    async def metrics() -> Page:
        totals = await figures.totals(counts.totals)
        readings = await figures.readings()
        asked = None if more is None else await more.answer()
        return Page(totals.exposition([*readings, *(asked or [])]), type=CONTENT_TYPE)

    with events.watched(health.watchers()):
        async with serving(listen, health, metrics) as bound:
            yield bound
