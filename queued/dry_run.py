"""dry-run — shows what would happen to the due recipients, and why, without delivering

Owns: the answers to each question of an attempt: transport, rule of the route, hosts, source addresses, TLS, pacing,
    signatures, seal, retries.
Guarantees: it reads only: nothing is claimed, counted, connected to or written. DNS is really queried. Limits on
    recipients in flight are not known here: pacing is that of a worker that has just begun.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/deliver/dry-run.md
"""

from __future__ import annotations

import math
import sys
from datetime import UTC
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from queued import dry_run_report
from queued.claiming.claim import from_row
from queued.equipment import Equipment
from queued.outcome.ageing import fate
from queued.outcome.retry import decide, limit
from queued.pacing.match import Fields
from queued.routing.route import Unroutable, override
from queued.routing.source import usable
from queued.smtp.transaction import Transaction
from queued.values import Body
from queued.waiting.deferral import Deferral
from shared.masking import show
from shared.postgres import database, migrate

if TYPE_CHECKING:
    from queued.daemon import Worker
    from queued.deliver import Transport
    from queued.pacing.pace import Paces
    from queued.signing.sign import Signer
    from shared.config.queued.settings import QueuedConfig
from queued.dry_run_report import DryRun

ROWS: Final = 10
_HEAD: Final = 256 * 1024  # octets of content: more than the header of any mail
_CONNECTIONS: Final = 2


async def run(config: QueuedConfig, worker: Worker, most: int, *, as_json: bool) -> None:
    """Tell on standard output of the first `most` recipients that are due."""
    equipment = Equipment(config)
    conninfo = database.resolve(config.environment.database.uri, config.environment.var)
    migrate.check(conninfo)
    equipment.resolver.patience = None  # it tells what comes of it in the end
    pool = await database.open_pool(conninfo, f"pillarbox {worker.name} dry run", _CONNECTIONS)
    try:
        async with pool.connection() as connection:
            rows = await database.fetch(
                connection, "dry_run_due", where=worker.where, now=None, most=most, octets=_HEAD
            )
            await equipment.paces.suspends.follow(connection, worker.where)  # which, in one that is new, only reads
        for number, row in enumerate(rows, 1):
            found = await look(row, equipment)
            sys.stdout.write(dry_run_report.document(found) if as_json else dry_run_report.block(number, found))
        if not rows and not as_json:
            sys.stdout.write(f"no mail is due for worker {worker.name} with WHERE {worker.where}\n")
    finally:
        await equipment.resolver.close()
        await pool.close()


async def look(row: Any, equipment: Equipment) -> DryRun:
    """The finding for one row of dry_run_due."""
    claimed = from_row(row, math.inf, monotonic())
    transport = equipment.transports.get(claimed.transportid)
    if transport is None:
        known = ", ".join(equipment.transports)
        refused = (
            f"transport {show(claimed.transportid)} does not exist in queued.yaml, which has {known}; it would wait"
        )
        return DryRun(claimed, row.next_retry, claimed.transportid, refused=refused)
    found = DryRun(claimed, row.next_retry, claimed.transportid, route=_route(claimed.recipient.domain, transport))
    found = _retries(found, transport)
    found = _signing(found, None if row.head is None else bytes(row.head), equipment.signer)
    return await _hosts(_pacing(found, transport, equipment.paces), transport)


async def _hosts(found: DryRun, transport: Transport) -> DryRun:
    try:
        hops = await transport.finder.find(found.claimed.recipient.domain)
    except Unroutable as error:
        outcome = error.outcome
        return found._replace(refused=f"{outcome.kind}: {outcome.enhanced} {outcome.text}")
    hops = hops[: transport.settings.connection.addresses]
    offered = Transaction.of([found.claimed], Body(b"", smtputf8=False), b"")
    plan = await transport.tls.plan(found.claimed.recipient.domain, hops, offered.tls_asked)
    asked = [(hop, dry_run_report.tls(plan[hop])) for hop in hops if hop in plan]
    alike = dict.fromkeys(text for _, text in asked)
    each = tuple(f"{hop}: {text}" for hop, text in asked) if len(alike) > 1 else tuple(alike)
    today = found.claimed.claimed_at.astimezone(UTC).date()
    sources, why = usable(transport.settings.sources, [hop.host for hop in hops], today)
    described = tuple(dry_run_report.source(source, transport.settings, today) for source in sources)
    return found._replace(hosts=tuple(map(str, hops)), tls=each, sources=described, nosource=why)


def _pacing(found: DryRun, transport: Transport, paces: Paces) -> DryRun:
    """The limit that applies now; a turn taken to find that out is given back unused."""
    c = found.claimed
    asked = paces.ask(Fields.of(c))
    if isinstance(asked, Deferral):
        schedule = transport.settings.retry
        became = fate(c.claimed_at, asked, received=c.received, schedule=schedule, null=c.sender is None)
        what = "would be given up" if became == "expired" else f"waits {asked.seconds:.0f} s"
        return found._replace(pacing=f"{what}: {asked.reason}")
    asked.done(unused=True)
    return found._replace(pacing="may go now")


def _route(domain: str, transport: Transport) -> str:
    """Which line of the configuration decides where it goes."""
    settings = transport.settings
    key = override(domain, settings.routes)
    if key is not None:
        return f"transports[{settings.id}].routes[{key}]: {settings.routes[key]}"
    if settings.connection.mode == "smarthost":
        rule = "hosts" if settings.connection.hosts else "server"
        return f"transports[{settings.id}].connection.{rule}"
    return f"{domain} as written" if domain.startswith("[") else f"MX of {domain}"


def _retries(found: DryRun, transport: Transport) -> DryRun:
    schedule, c, null = transport.settings.retry, found.claimed, found.claimed.sender is None
    due = decide(c.claimed_at, received=c.received, tries=c.retry_count, schedule=schedule, roll=0.0, null=null)
    return found._replace(tries=schedule.count + 1, deferred=due, expires=limit(c.received, schedule, null=null))


def _signing(found: DryRun, head: bytes | None, signer: Signer) -> DryRun:
    if head is None:
        refused, why = "the message has no body: it would be put on hold", "no body"
        return found._replace(refused=refused, unsigned=why, unsealed=why)
    chosen, unsigned = signer.would_sign(
        head,
        found.claimed.sender,
        found.claimed.claimed_at,
        foreign_from=found.claimed.metadata.get("_foreignfrom") is True,
    )
    seal, unsealed = signer.would_seal(head, found.claimed.claimed_at)
    return found._replace(signing=tuple(chosen), unsigned=unsigned, seal=seal, unsealed=unsealed)
