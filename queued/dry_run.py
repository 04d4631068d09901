"""dry-run — what would become of the recipients that are due, and why, without doing it

Owns: the answers to each question of an attempt: transport, rule of the route, hosts, TLS, pacing, signatures, retries.
Called by: queued.__main__ with `--dry-run`; queued.dry_run_tell writes what is found.
Guarantees: it reads only: nothing is claimed, counted, connected to or written. DNS is really asked. What limits a
    worker by what it has in hand is not known here: pacing is that of a worker that has just begun.
Raises: PillarboxError for what an operator can mend.
See: docs/how-to/dry-run.md
"""

from __future__ import annotations

import math
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from queued import dry_run_tell
from queued.build import Equipment
from queued.claim import Claimed
from queued.pace import Fields, Paces, Wait
from queued.retry import decide
from queued.route import Unroutable, override
from shared import database, migrate
from shared.message import Address

if TYPE_CHECKING:
    from datetime import datetime

    from queued.daemon import Worker
    from queued.deliver import Transport
    from queued.sign import Signer
    from shared.queued_config import QueuedConfig

ROWS: Final = 10
_HEAD: Final = 256 * 1024  # octets of content: more than the header of any mail
_CONNECTIONS: Final = 2


class Found(NamedTuple):
    """What would be done for one recipient; `refused` is why it would not come to a conversation."""

    claimed: Claimed
    due: datetime
    transport: str
    route: str = ""
    hosts: tuple[str, ...] = ()
    tls: tuple[str, ...] = ()
    refused: str | None = None
    pacing: str = ""
    signing: tuple[str, ...] = ()
    unsigned: str | None = None
    tries: int = 0
    deferred: datetime | None = None  # when it would be tried again if this try were deferred now
    expires: datetime | None = None


async def run(config: QueuedConfig, worker: Worker, most: int, *, as_json: bool) -> None:
    """Tell on standard output of the first `most` recipients that are due."""
    equipment = Equipment(config)
    conninfo = database.resolve(config.environment.database.uri, config.environment.var)
    migrate.check(conninfo)
    pool = await database.open_pool(conninfo, f"pillarbox {worker.name} dry run", _CONNECTIONS)
    try:
        async with pool.connection() as connection:
            rows = await database.fetch(
                connection, "dry_run_due", where=worker.where, now=None, most=most, octets=_HEAD
            )
            await equipment.paces.suspends.follow(connection, worker.where)  # which, in one that is new, only reads
        for number, row in enumerate(rows, 1):
            found = await look(row, equipment)
            sys.stdout.write(dry_run_tell.document(found) if as_json else dry_run_tell.block(number, found))
        if not rows and not as_json:
            sys.stdout.write(f"nothing is due for worker {worker.name} where {worker.where}\n")
    finally:
        await equipment.resolver.close()
        await pool.close()


async def look(row: Any, equipment: Equipment) -> Found:
    """What would become of one row of dry_run_due."""
    claimed = _claimed(row)
    transport = equipment.transports.get(claimed.transportid)
    if transport is None:
        known = ", ".join(equipment.transports)
        refused = f"no transport {claimed.transportid!r} in queued.yaml (there are: {known}); it would wait"
        return Found(claimed, row.next_retry, claimed.transportid, refused=refused)
    found = Found(claimed, row.next_retry, claimed.transportid, route=_route(claimed.recipient.domain, transport))
    found = _retries(found, transport, row.read_at)
    found = _signing(found, None if row.head is None else bytes(row.head), equipment.signer, row.read_at)
    return await _hosts(_pacing(found, equipment.paces), transport)


async def _hosts(found: Found, transport: Transport) -> Found:
    try:
        hops = await transport.finder.find(found.claimed.recipient.domain)
    except Unroutable as error:
        outcome = error.outcome
        return found._replace(refused=f"{outcome.kind}: {outcome.enhanced} {outcome.text}")
    hops = hops[: transport.settings.connection.addresses]
    requiretls = found.claimed.metadata.get("_requiretls") is True
    plan = await transport.tls.plan(found.claimed.recipient.domain, hops, requiretls=requiretls)
    asked = [(hop, dry_run_tell.tls(plan[hop])) for hop in hops if hop in plan]
    told = dict.fromkeys(text for _, text in asked)
    each = tuple(f"{hop}: {text}" for hop, text in asked) if len(told) > 1 else tuple(told)
    return found._replace(hosts=tuple(map(str, hops)), tls=each)


def _pacing(found: Found, paces: Paces) -> Found:
    """What limits it now; what is taken to find that out is given back unused."""
    c = found.claimed
    tenant = c.metadata.get("tenant")
    fields = Fields(
        transport=c.transportid,
        destination=c.recipient.domain,
        sender=c.sender.domain if c.sender else None,
        tenant=None if tenant is None else str(tenant),
        job=c.jobid,
    )
    asked = paces.ask(fields)
    if isinstance(asked, Wait):
        return found._replace(pacing=f"waits {asked.seconds:.0f} s: {asked.reason}")
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


def _retries(found: Found, transport: Transport, now: datetime) -> Found:
    schedule, claimed = transport.settings.retry, found.claimed
    due = decide(now, received=claimed.received, tries=claimed.retry_count, schedule=schedule, roll=0.0)
    return found._replace(tries=schedule.count + 1, deferred=due, expires=claimed.received + schedule.age)


def _signing(found: Found, head: bytes | None, signer: Signer, now: datetime) -> Found:
    if head is None:
        return found._replace(refused="the message has no body: it would be put on hold", unsigned="no body")
    chosen, why = signer.would_sign(head, found.claimed.sender, now)
    return found._replace(signing=tuple(chosen), unsigned=why)


def _claimed(row: Any) -> Claimed:
    """The row as the next claim would have it, but for the claim."""
    return Claimed(
        id=row.id,
        token=0,
        message_id=row.messages__id,
        actionid=row.actionid,
        sender=None if row.senderdomain is None else Address(row.senderlocalpart, row.senderdomain),
        recipient=Address(row.recipientlocalpart, row.recipientdomain),
        received=row.ts,
        size=row.size,
        partid=row.partid,
        transportid=row.transportid,
        jobid=row.jobid,
        retry_count=row.retry_count + 1,
        expires=math.inf,
        claimed_at=row.read_at,
        since=monotonic(),
        priority=row.priority,
        metadata=row.said or {},
    )
