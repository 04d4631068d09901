"""daemon — builds a worker's parts and owns their order

Owns: the start (database proven, schema and condition checked, then ready), the reload, and the stop: stop claiming,
    give back recipients that are not begun, let attempts finish, record every result, close.
Guarantees: nothing half-started. A configuration that cannot be used changes nothing: it is read and proven whole
    first. After a bounded stop the recipients still in flight are logged; their leases give them back.
Raises: PillarboxError for errors that an operator can correct.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from queued import maintain, metrics, reload, schedule
from queued.admission.gates import Admission
from queued.attempts import Attempts
from queued.claiming import predecessors, whole_leaves
from queued.claiming.bodies import Bodies
from queued.claiming.claim import Claimer
from queued.claiming.register import Register
from queued.dispatch import Dispatcher
from queued.dsn import send
from queued.equipment import Delivering, Equipment
from queued.in_flight import InFlight
from queued.reports.suppression_screen import Screen
from queued.result import Recorder
from queued.signing.sign import Signer
from queued.waiting.watchdog import Watch
from queued.webhooks import run as webhooks
from shared import lifecycle
from shared.errors import ConfigError, error_text, lacks_right
from shared.how_many import how_many
from shared.masking import show
from shared.observe import events, tracing
from shared.postgres import database, migrate, wakeup
from shared.postgres.notifier import Notifier
from shared.postgres.presence import MOST, Identity, Presence

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from queued.metrics import Observing
    from shared.config.queued.settings import QueuedConfig

# One connection each for claiming, fetching bodies, recording, maintaining, vacuuming, recurring mail, notices,
# suspends and shared limits together, and the register.
_CONNECTIONS = 9
_WEBHOOKS = 1 + webhooks.CONNECTIONS  # connections more for events, which must not keep mail waiting
_OBSERVING = 1  # connection more where metrics are on, so that scrapes take none of those
_ENDING = 5.0  # seconds for attempts to end once no connection is left
_RECORDING = 10.0  # seconds the last results may take when stopping
_LEAVING = 2.0  # seconds for taking ourselves off the register


class Worker(NamedTuple):
    """This worker: its name, the rows it owns, and the place of its WHERE in queued.yaml, for errors."""

    name: str
    where: str
    source: str


async def run(config: QueuedConfig, worker: Worker, again: Callable[[], QueuedConfig]) -> None:
    """Deliver until a signal comes. `again` reads the configuration as it is now, and raises ConfigError."""
    delivering = Delivering(config)  # before a server of our own is started: a key that cannot be read ends it here
    conninfo = database.resolve(config.environment.database.uri, config.environment.var)
    migrate.check(conninfo)
    observed = _OBSERVING if config.metrics.listen else 0
    size = _CONNECTIONS + _WEBHOOKS + observed
    pool = await database.open_pool(conninfo, f"pillarbox {worker.name}", size, in_order=True)
    try:
        await _check_where(pool, worker.where, worker.source)
        await whole_leaves.warn(pool, worker.name, worker.where, worker.source)
        await delivering.paces.begin(pool, worker.where)
        tracing.setup(config.tracing, "queued", worker.name)
        who = Identity(worker.name)
        with predecessors.succeeding(config.environment.var, who) as ended:
            await _Daemon(config, worker, conninfo, pool, delivering, who, ended).serve(again)
    finally:
        await pool.close()
        await tracing.close()


class _Daemon:
    """The parts of a worker that runs."""

    def __init__(
        self,
        config: QueuedConfig,
        worker: Worker,
        conninfo: str,
        pool: database.Pool,
        delivering: Delivering,
        who: Identity,
        ended: Sequence[str],
    ) -> None:
        self._config = config
        self._worker = worker
        self._conninfo = conninfo
        self._pool = pool
        self._delivering = delivering
        delivering.equipment.warmups.share(pool)
        self._identity = str(who)
        self._presence = Presence(conninfo, "queued", who, lambda: delivering.destinations.busiest(MOST))
        self._register = Register(pool, who, worker.where, config.claim, _transports(config))
        self._screen = Screen(pool, delivering.equipment.screening)
        self._hints = Notifier(conninfo, f"pillarbox {worker.name} dead letters")
        self._notifier = send.DsnSender(config.bounces)
        self._webhooks = webhooks.WebhookTask(pool, self._identity, config.webhooks)
        claimer = Claimer(worker.where, self._identity, config.claim, ended)
        in_flight = InFlight(pool, claimer, config.claim)
        self._recorder = Recorder(
            pool,
            self._identity,
            config.maintenance.ahead,
            in_flight=in_flight,
            announce=self._hints.announce,
            notices=config.bounces.enabled,
            without_notice=self._screen.is_report,
        )
        bodies = Bodies(pool, config.claim.maxbytes)
        transports, signer, watch = delivering.transports, delivering.equipment.signer, Watch()
        admission = Admission(
            transports, delivering.destinations, delivering.paces, watch, in_flight.unproven, config.claim
        )
        self._attempts = attempts = Attempts(
            *(transports, admission, in_flight, bodies, self._recorder, signer, watch, self._screen)
        )
        self._dispatcher = Dispatcher(pool, claimer, in_flight, bodies, self._recorder, attempts, config.claim)

    async def serve(self, again: Callable[[], QueuedConfig]) -> None:
        """Run every part until a signal comes."""
        worker, observed = self._worker, (self._pool, self._dispatcher, self._recorder)
        async with metrics.observing(self._config, worker.name, worker.where, *observed) as observing:

            async def reloaded() -> None:
                await self._reload(again, observing)

            ready = f"worker {worker.name} where {worker.where}"
            started = {
                "role": "queued",
                "pid": os.getpid(),
                "worker": worker.name,
                "where": worker.where,
                "metrics": observing.address,
            }
            await lifecycle.serve(self._parts(), ready, self._stop, reloaded, started=started)

    def _parts(self) -> dict[str, Coroutine[object, object, None]]:
        """The tasks that must run as long as the worker; one that ends, ends it."""
        pool, dispatcher = self._pool, self._dispatcher
        poll = self._config.claim.poll.total_seconds()
        parts: dict[str, Coroutine[object, object, None]] = {
            "recorder": self._recorder.run(),
            "dispatcher": dispatcher.run(),
            "heartbeat": dispatcher.heartbeat(),
            "register": self._register.run(),
            "presence": self._presence.run(),
            "maintain": maintain.run(pool, self._identity, self._config.maintenance),
            "vacuum": maintain.run_vacuum(pool, self._config.maintenance),
            "schedule": schedule.run(pool),
            "paces": self._delivering.paces.run(pool, self._identity, self._worker.where, poll),
            "notices": send.run(pool, self._notifier),
            "webhooks": self._webhooks.run(),
            "hints": self._hints.run(),
        }
        if self._config.wakeup.mode == "listen":
            parts = {"wakeup": self._wakeup()} | parts
        return parts

    def _wakeup(self) -> Coroutine[object, object, None]:
        settings = self._config.wakeup
        return wakeup.listen(
            database.resolve(settings.uri, self._config.environment.var, "wakeup.uri")
            if settings.uri
            else self._conninfo,
            f"pillarbox {self._worker.name} wakeup",
            self._worker.where,
            self._dispatcher.due,
            missed=self._missed,
            signals={"suspends:": self._delivering.paces.suspends.hurry, "retry:": self._delivering.retest},
            pool=self._pool,
            probe=settings.probe.total_seconds(),
        )

    def _missed(self) -> None:
        """Notifications may have been missed: look at everything they could have announced."""
        self._delivering.paces.suspends.hurry()
        self._dispatcher.start_over()

    async def _reload(self, again: Callable[[], QueuedConfig], observing: Observing) -> None:
        """Use the configuration as it is now, or go on as before and say why; mail moves while files are read."""
        try:
            config, ignored = reload.effective(self._config, await asyncio.to_thread(again))
            signer = await asyncio.to_thread(Signer, config.signing)
            equipment = Equipment(config, self._delivering.equipment, signer=signer)
        except Exception as error:  # noqa: BLE001 - after any error the running configuration stays
            events.emit("daemon.reload_refused", error=error_text(error))
            return
        if ignored:
            events.emit("daemon.reload_ignored", keys=", ".join(ignored))
        self._config = config
        self._delivering.use(equipment)
        self._attempts.signer = equipment.signer
        self._screen.use(equipment.screening)
        self._notifier.use(config.bounces)
        self._webhooks.use(config.webhooks)
        self._recorder.notices = config.bounces.enabled
        observing.know(_transports(config))
        self._register.know(_transports(config))
        events.setup(config.environment.log.level)
        events.emit("daemon.reloaded")

    async def _stop(self) -> None:
        """Give back the mail that is not begun, and end the attempts under way, each step within its time."""
        dispatcher, recorder = self._dispatcher, self._recorder

        def recipients() -> str:
            return how_many(dispatcher.inflight, "recipient")

        def results() -> str:
            return how_many(recorder.unrecorded, "result")

        dispatcher.stop()
        await lifecycle.step("register", self._register.leave(), _LEAVING, on=lambda: "PostgreSQL")
        # Closing turns away deliveries that wait for DNS or a connection, so that they go back now and not with their
        # lease. What is being said is heard out; when patience ends, the connections are cut and the attempts end with
        # them.
        patience = self._config.shutdown.timeout.total_seconds()
        await lifecycle.step("connections", self._delivering.close(), patience, on=recipients)
        await lifecycle.step("attempts", dispatcher.drained(), _ENDING, on=recipients)
        await lifecycle.step("results", recorder.drained(), _RECORDING, on=results)
        await lifecycle.step("hints", self._hints.drained(), _LEAVING, on=lambda: "PostgreSQL")
        await lifecycle.step("webhooks", self._webhooks.leave(), _LEAVING, on=lambda: "PostgreSQL")
        await lifecycle.step("shares", self._delivering.paces.leave(self._pool), _LEAVING, on=lambda: "PostgreSQL")
        await lifecycle.step("presence", self._presence.leave(), _LEAVING, on=lambda: "PostgreSQL")
        left = dispatcher.inflight
        if left:
            events.emit("daemon.waiting", step="lease", on=f"{how_many(left, 'recipient')} left to their lease")


def _transports(config: QueuedConfig) -> list[str]:
    return [transport.id for transport in config.transports]


async def _check_where(pool: database.Pool, where: str, source: str) -> None:
    """Let PostgreSQL itself read the condition before anything is claimed with it."""
    try:
        async with pool.connection() as connection:
            await database.fetch(connection, "claim_probe", where=where)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    except database.REFUSAL as error:
        if lacks_right(error):
            raise
        reason = error.diag.message_primary or error
        raise ConfigError(
            f"{source}: {show(where)}: {reason}; allowed: one SQL condition on the columns of queue"
        ) from None
