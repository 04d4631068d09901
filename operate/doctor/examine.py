"""examine — reads the database and runs the checks

Owns: the order of the checks, the queries each needs, and the handling of a query that fails.
Guarantees: read-only, but for a temporary table that goes with its transaction. A check that is refused or takes too
    long is a warning under its own id, and the others go on. Nothing is read without a bound, save tables' statistics.
Raises: DatabaseUnavailable when PostgreSQL goes away meanwhile.
"""

from __future__ import annotations

import random
from time import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from operate import partition_ids
from operate.doctor import daemons, logins, queue, server, workers
from operate.doctor.checks import Finding, Limits, Severity
from operate.doctor.conditions import prove
from operate.doctor.suspends import suspended
from operate.doctor.webhooks import endpoints
from operate.doctor.workers import Registered
from queued.maintain import UNSERVED_GRACE
from shared.config.smtpd.quarantine import reviewers
from shared.errors import SchemaMismatch
from shared.how_many import how_many
from shared.postgres import coverage, database, migrate, timeline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig

_READINGS = 5  # of the clock


class Look:
    """One examination."""

    def __init__(
        self, connection: database.Connection, smtpd: SmtpdConfig, queued: QueuedConfig, limits: Limits | None = None
    ) -> None:
        self._connection = connection
        self._smtpd = smtpd
        self._queued = queued
        self._limits = limits or Limits()
        self._leaves: list[database.Row] = []
        self._server_row: database.Row | None = None
        self._endpoints = 0  # of webhooks, that are enabled
        self._stray: list[coverage.Partid] = []  # ids in the default leaf

    async def examine(self) -> list[Finding]:
        """Every check that needs the database."""
        await self._rows("doctor_session", seconds=self._limits.patience)
        found = await self._try("server.version", self._server)
        found += await self._try("server.clock", self._clock)
        found += await self._try("server.horizon", self._horizon)
        found += await self._try("server.slots", self._slots)
        schema = await self._try("schema.version", self._schema)
        found += schema
        if schema[0].verdict is Severity.ALARM:
            return found  # tables of another version: every further question would be a wrong one
        for check, look in (
            ("server.restored", self._restored),
            ("schema.partitions", self._partitions),
            ("leaf.triggers", self._tree),
            ("leaf.vacuum", self._vacuum),
            ("server.volumes", self._volumes),
            ("history.days", self._history),
            ("refcount.drift", self._refcounts),
            ("refcount.body", self._orphans),
            ("mail.overdue", self._due),
            ("mail.flow", self._flow),
            ("mail.suspended", self._suspended),
            ("webhook.endpoints", self._webhooks),
            ("mail.transport", self._transports),
            ("mail.hosts", self._hosts),
            ("mail.dead", self._dead),
            ("login.refused", self._logins),
            ("partition.default", self._default),
            ("partition.served", self._workers),
        ):
            found += await self._try(check, look)
        return found

    async def _try(self, check: str, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
        try:
            return await look()
        except database.REFUSAL as error:
            if self._connection.closed:
                raise database.unavailable(error) from None
            remedy = "run doctor as the owner of the schema pillarbox; if it took too long, look at server.horizon"
            return [Finding(check, Severity.WARN, f"could not be looked at: {database.reason(error)}", remedy)]

    async def _rows(self, name: str, **values: Any) -> list[database.Row]:
        return await database.fetch(self._connection, name, **values)

    async def _server(self) -> list[Finding]:
        [row] = await self._rows("doctor_server")
        self._server_row = row
        listeners = await self._rows("doctor_listeners")
        return [
            server.version(row),
            server.durability(row),
            server.writable(row),
            server.collation(row),
            server.connections(row, self._limits),
            server.notifications(row, listeners, self._limits),
        ]

    async def _clock(self) -> list[Finding]:
        readings = []
        for _ in range(_READINGS):
            sent = time()
            [row] = await self._rows("doctor_clock")
            readings.append((sent, row.at.timestamp(), time()))
        return [server.clock(server.sure_skew(readings), self._limits)]

    async def _horizon(self) -> list[Finding]:
        holders = await self._rows("doctor_horizon", age=self._limits.horizon[0])
        return [server.horizon(holders, self._limits)]

    async def _slots(self) -> list[Finding]:
        return server.slots(await self._rows("doctor_slots"), self._limits)

    async def _volumes(self) -> list[Finding]:
        spool, place = self._smtpd.spool, self._smtpd.environment
        seen = bool(spool.volumes) or database.is_embedded(place.database.uri)
        return [server.volumes(await self._rows("volume_figures"), spool.minfree, seen=seen)]

    async def _schema(self) -> list[Finding]:
        present = await self._rows("migrate_present")
        applied = {row.number: row.name for row in await self._rows("migrate_applied")} if present else {}
        try:
            migrate.compare(applied, f'database "{self._connection.info.dbname}"')
        except SchemaMismatch as error:
            remedy = "as the error says: run pillarbox migrate, upgrade Pillarbox, or make a new database"
            return [Finding("schema.version", Severity.ALARM, str(error), remedy)]
        text = f"{how_many(len(applied), 'migration')}, the last {applied[max(applied)]}"
        return [Finding("schema.version", Severity.OK, text)]

    async def _restored(self) -> list[Finding]:
        now = await timeline.current(self._connection)
        [row] = await self._rows("recovery_server", timeline=now)
        return [server.restored(row)]

    async def _partitions(self) -> list[Finding]:
        [row] = await self._rows("doctor_settings")
        return [queue.partitions(row, self._count), queue.reviewers(row, reviewers(self._smtpd.quarantines))]

    async def _tree(self) -> list[Finding]:
        self._leaves = await self._rows("doctor_leaves")
        return queue.leaves(self._leaves, self._limits)

    async def _vacuum(self) -> list[Finding]:
        return [queue.vacuum(await self._rows("doctor_vacuum"))]

    async def _history(self) -> list[Finding]:
        ahead = min(self._queued.maintenance.ahead, self._limits.days)
        return [queue.history(await self._rows("doctor_history", ahead=ahead))]

    async def _refcounts(self) -> list[Finding]:
        [ends] = await self._rows("doctor_bodies_span")
        first, last = (end.int if end else 0 for end in ends)
        # The oldest, some from a random place on, and as many as possible of the newest.
        starts = [first, random.randint(first, last), max(first, last - (1 << 100))]
        sample = {"starts": [UUID(int=start) for start in starts], "batch": self._limits.sample}
        [row] = await self._rows("doctor_refcounts", **sample)
        return [queue.refcounts(row)]

    async def _orphans(self) -> list[Finding]:
        [row] = await self._rows("doctor_orphans", batch=self._limits.sample)
        return [queue.orphans(row)]

    async def _due(self) -> list[Finding]:
        rows = await self._rows("doctor_due", batch=self._limits.backlog, grace=self._limits.lost)
        return queue.due(rows, self._limits)

    async def _flow(self) -> list[Finding]:
        [row] = await self._rows("doctor_flow", batch=self._limits.backlog)
        return [queue.flow(row, self._limits)]

    async def _webhooks(self) -> list[Finding]:
        rows = await self._rows("webhook_list", webhook=None)
        self._endpoints = sum(row.state == "enabled" for row in rows)
        return [endpoints(rows, self._limits)]

    async def _suspended(self) -> list[Finding]:
        return [suspended(await self._rows("suspend_active", now=None), self._queued.pacing.suspends)]

    async def _transports(self) -> list[Finding]:
        known = [transport.id for transport in self._queued.transports]
        rows = await self._rows("doctor_transports", batch=self._limits.backlog, known=known)
        rules = (rule.action.transport for rule in self._smtpd.policy.rules)
        return [queue.transports(rows, sorted({name for name in rules if name} - set(known)))]

    async def _logins(self) -> list[Finding]:
        return logins.refused(await self._rows("doctor_logins", batch=self._limits.backlog))

    async def _hosts(self) -> list[Finding]:
        return [queue.hosts(await self._rows("doctor_shut", batch=self._limits.backlog), self._limits)]

    async def _dead(self) -> list[Finding]:
        return [queue.dead(await self._rows("doctor_dead", batch=self._limits.backlog), self._limits)]

    async def _default(self) -> list[Finding]:
        rows = await self._rows("doctor_default", batch=self._limits.backlog)
        self._stray = [row.partid for row in rows]
        return [queue.default_leaf(rows, set(partition_ids.configured(self._smtpd)))]

    async def _workers(self) -> list[Finding]:
        """The running workers, the proofs of their conditions, and the unserved partitions."""
        registered = [
            Registered(row.worker, row.id, row.where_condition, row.live, row.silent)
            for row in await self._rows("register_seen")
        ]
        configured = {worker.id: worker.where for worker in self._queued.workers}
        partids = partition_ids.configured(self._smtpd)
        found = workers.live(configured, registered)
        found += daemons.daemons(await self._rows("daemon_seen"))

        unknown = str(max((int(p) for p in partids if p and p.isdecimal()), default=0) + 1)
        asked = [*dict.fromkeys([*partids, unknown, *self._stray])]
        wheres = set(configured.values()) | {each.where for each in registered if each.live}
        proofs = {where: await prove(self._connection, where, asked, self._leaves) for where in sorted(wheres)}
        servers = workers.who(configured, registered, proofs)
        found += workers.conditions(servers)
        if self._server_row is not None:
            running = [each.where for each in registered if each.live] or list(configured.values())
            opened = [proofs[where].opened for where in running]
            leaves = sum(row.leaf for row in self._leaves)
            found.append(server.locks(self._server_row, opened, leaves, self._endpoints, self._limits))
        found += workers.served(servers, partids, unknown)
        waiting = await self._rows("doctor_waiting", partids=asked)
        unserved = await self._rows("metrics_unserved", grace=UNSERVED_GRACE, series=self._limits.backlog)
        stuck = sorted({row.partid or None for row in unserved}, key=str)
        return [*found, workers.waiting(servers, [row.partid for row in waiting], stuck)]

    @property
    def _count(self) -> int:
        return self._smtpd.environment.database.partitions.count
