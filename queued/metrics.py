"""metrics — a worker's figures and its health, for Prometheus and for health checks

Owns: the pages /metrics, /healthy and /ready of a worker; the figures that are not counted from events: recipients in
    flight, the pool, and the queue in PostgreSQL.
Guarantees: without `metrics.listen` nothing is opened, watched or queried. PostgreSQL is queried about the queue on a
    scrape, at most once in `metrics.refresh` and for two seconds; a scrape never fails because PostgreSQL is away.
    Each worker counts the mail that its own condition selects: that prunes to its own leaves, needs no election, and
    works behind a pooler; where conditions overlap, take the maximum of the workers and not their sum. Mail that no
    condition selects is in the table `unserved`, which maintenance writes and every worker exports.
Raises: ListenFailed when the address cannot be bound.
See: docs/how-to/observe/watch-with-prometheus.md; sql/queries/operation/metrics.sql, metrics_queue.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from queued.maintain import UNSERVED_GRACE
from shared.config.metrics import ListenAddress
from shared.observe import events
from shared.observe.metrics import ProcessCounts, by_destination, by_transport
from shared.observe.metrics_server import Page
from shared.observe.metrics_totals import CONTENT_TYPE, Reading
from shared.observe.queued_table import TRANSPORT
from shared.postgres import database
from shared.postgres.cached_answer import Latest
from shared.postgres.health import Answering, Health, serving
from shared.postgres.leaf_rows import leaf_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from queued.dispatch import Dispatcher
    from queued.result import Recorder
    from shared.config.queued.settings import QueuedConfig
    from shared.observe.events import Watcher

_PATIENCE: Final = 2.0  # seconds for the queue's figures
_MOST: Final = 1000  # recipients counted of each kind; the table of metrics tells it
_SERIES: Final = 1000  # pairs of state and partition in one answer


class Observing(NamedTuple):
    """Where it is answered, as bound, and the counts; None when that is off."""

    address: str | None = None
    counts: ProcessCounts | None = None

    def know(self, transports: Iterable[str]) -> None:
        """Count these transports from now on, besides those known."""
        if self.counts is not None:
            self.counts.know(TRANSPORT, transports)


class Wakeups:
    """Whether the worker listens, as the events tell."""

    def __init__(self, mode: str) -> None:
        self._polling = mode == "poll"
        self.listening = False

    def watchers(self) -> Mapping[str, list[Watcher]]:
        """The watchers by event."""
        return {
            "wakeup.listening": [self._heard],
            "wakeup.lost": [self._lost],
            "wakeup.deaf": [self._lost],
            "wakeup.swallowed": [self._lost],
        }

    async def unaware(self) -> str | None:
        """Why mail would not be noticed. Once listening ended, or never worked, polling does."""
        return None if self.listening or self._polling else "not listening for notifications yet"

    def _heard(self, _: Mapping[str, object]) -> None:
        self.listening = True

    def _lost(self, _: Mapping[str, object]) -> None:
        self.listening, self._polling = False, True


class Queue:
    """PostgreSQL's last answer about the queue."""

    def __init__(self, pool: database.Pool, where: str, refresh: float) -> None:
        async def ask(connection: database.Connection) -> list[Reading]:
            return await _ask(connection, where)

        self._latest = Latest(pool, ask, fresh=refresh, patience=_PATIENCE)

    async def readings(self) -> list[Reading]:
        """The figures, queried again when they are old; without an answer, only that they are not known."""
        return await self._latest.answer() or [Reading("pillarbox_queue_known", 0)]

    async def close(self) -> None:
        """Ask no more."""
        await self._latest.close()


async def _ask(connection: database.Connection, where: str) -> list[Reading]:
    found = [Reading("pillarbox_queue_known", 1)]
    overdue: dict[str, float] = {}
    for row in await database.fetch(connection, "metrics_queue", where=where, now=None, most=_MOST, series=_SERIES):
        partition = row.partid or ""
        found.append(Reading("pillarbox_queue_recipients", row.recipients, (row.state, partition)))
        found.append(Reading("pillarbox_queue_oldest_seconds", float(row.oldest), (row.state, partition)))
        if row.overdue is not None:
            overdue[partition] = float(row.overdue)
    found += [Reading("pillarbox_queue_overdue_seconds", value, (each,)) for each, value in overdue.items()]
    for row in await database.fetch(connection, "metrics_unserved", grace=UNSERVED_GRACE, series=_SERIES):
        labels = (row.leaf, row.partid)
        found.append(Reading("pillarbox_unserved_overdue_seconds", float(row.overdue), labels))
        found.append(Reading("pillarbox_unserved_recipients", row.recipients, labels))
    return found + await leaf_rows(connection)


@asynccontextmanager
async def observing(
    config: QueuedConfig, worker: str, where: str, pool: database.Pool, dispatcher: Dispatcher, recorder: Recorder
) -> AsyncIterator[Observing]:
    """Count, and answer over HTTP, as long as the block lasts."""
    if config.metrics.listen is None:
        yield Observing()
        return
    wakeups = Wakeups(config.wakeup.mode)
    answering = Answering(pool)
    health = Health(answering, wakeups.unaware)
    transports = [transport.id for transport in config.transports]
    counts = ProcessCounts(by_transport(transports) | by_destination(config.metrics.destinations))
    queue = Queue(pool, where, config.metrics.refresh.total_seconds())

    async def metrics() -> Page:
        readings = [*_readings(worker, wakeups, pool, dispatcher, recorder), *await queue.readings()]
        return Page(counts.exposition(readings), type=CONTENT_TYPE)

    async with AsyncExitStack() as stack:
        for each in (counts, health, wakeups):
            stack.enter_context(events.watched(each.watchers()))
        for asked in (answering, queue):
            stack.push_async_callback(asked.close)
        bound = await stack.enter_async_context(serving(_address(config, worker), health, metrics))
        yield Observing(bound, counts)


def _readings(
    worker: str, wakeups: Wakeups, pool: database.Pool, dispatcher: Dispatcher, recorder: Recorder
) -> list[Reading]:
    """The gauges of this moment that cost no query."""
    stats: Mapping[str, Any] = pool.get_stats()
    return [
        Reading("pillarbox_worker", 1, (worker,)),
        Reading("pillarbox_listening", wakeups.listening),
        Reading("pillarbox_recipients_in_hand", dispatcher.inflight),
        Reading("pillarbox_results_unrecorded", recorder.unrecorded),
        Reading("pillarbox_pool_connections", stats["pool_size"], ("open",)),
        Reading("pillarbox_pool_connections", stats["pool_available"], ("free",)),
        Reading("pillarbox_pool_connections", stats["pool_max"], ("allowed",)),
        Reading("pillarbox_pool_waiting", stats["requests_waiting"]),
    ]


def _address(config: QueuedConfig, worker: str) -> ListenAddress:
    """Where this worker listens: its place in the list of workers is added to the port."""
    listen = config.metrics.listen
    assert listen is not None  # noqa: S101 - the caller has looked
    place = next((index for index, each in enumerate(config.workers) if each.id == worker), 0)
    return ListenAddress(listen.host, listen.port + place if listen.port else 0)
