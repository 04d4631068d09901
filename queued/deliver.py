"""deliver — one attempt: some recipients of one message over one transport

Owns: the steps find hosts → talk → classify → decide about a retry, within the lease; and what becomes of mail whose
    transport is not configured.
Called by: queued.dispatch, one call per message, transport and way.
Guarantees: a Result for every recipient, whatever a peer does. An attempt ends when its lease does, so that no other
    worker begins while this one still talks; heartbeats put that off (queued.dispatch). No database connection is held
    meanwhile.
See: RFC 5321 section 4.5.4.1 (retries); RFC 1047 (why a lost final reply duplicates).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from queued.classify import classify
from queued.connections import ConnectionPool, PoolClosedError, ReuseLimits
from queued.failover import talk
from queued.find_hops import HopFinder, Ourselves
from queued.resolver import Resolver, ResolverClosedError
from queued.result import Result
from queued.retry import decide
from queued.route import Unroutable, lane
from queued.transaction import Timeouts, Transaction
from shared.outcome import Outcome
from shared.queued_config import Retry
from shared.routing_config import Dns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from queued.claim import Claimed, Lease
    from queued.retry import RetrySchedule
    from queued.sign import Signed
    from shared.queued_config import Timeout
    from shared.queued_config import Transport as TransportSettings
    from shared.smtp_reply import Reply


@dataclass(slots=True)
class Body:
    """A message's content, held once for all its recipients in hand; `signing` is kept here by queued.sign."""

    content: bytes
    smtputf8: bool
    signing: asyncio.Future[Signed] | None = None


class Transport:
    """How a set of destinations is reached, with the connections it keeps open."""

    def __init__(
        self,
        settings: TransportSettings,
        hostname: str,
        resolver: Resolver | None = None,
        ourselves: Sequence[str] = (),
    ) -> None:
        """`resolver`: the worker's own, else one with every setting at its default.

        `ourselves`: names and addresses under which mail comes back to us, besides `hostname`.
        """
        self.settings = settings
        own = (hostname, *ourselves, *([settings.hostname] if settings.hostname else []))
        self._finder = HopFinder(settings, resolver or Resolver(Dns()), Ourselves(own))
        pooling = settings.pooling
        self._pool = ConnectionPool(
            hostname=settings.hostname or hostname,
            timeouts=_seconds(settings.timeout),
            concurrency=settings.concurrency,
            limits=ReuseLimits(pooling.transactions, pooling.idle.total_seconds(), pooling.age.total_seconds()),
        )

    async def close(self) -> None:
        """Close every connection, waiting for those in use."""
        await self._pool.close()

    async def attempt(
        self, claimed: tuple[Claimed, ...], body: Body, lease: Lease, prefix: bytes = b""
    ) -> list[Result] | None:
        """Try these recipients of one message, all of one lane. None when it did not come to a try: we are stopping.

        prefix: header fields to send before the content, such as signatures.

        TimeoutError when the lease ended first: what the peer has is not known, and the row is no longer ours to tell.
        """
        started = monotonic()
        limits = self.settings.connection
        transaction = Transaction(
            sender=str(claimed[0].sender or ""),
            recipients=tuple(str(c.recipient) for c in claimed),
            content=body.content,
            smtputf8=body.smtputf8,
            prefix=prefix,
        )
        try:
            async with lease.held():
                hops = await self._finder.find(claimed[0].recipient.domain)
                hop, result = await talk(
                    self._pool, hops, transaction, addresses=limits.addresses, sessions=limits.sessions
                )
        except Unroutable as error:
            duration = timedelta(seconds=monotonic() - started)
            return [self._result(c, error.outcome, None, None, duration) for c in claimed]
        except (PoolClosedError, ResolverClosedError):
            return None
        duration = timedelta(seconds=monotonic() - started)
        return [
            self._result(c, outcome, reply, str(hop), duration)
            for c, outcome, reply in zip(claimed, classify(result), result.recipients, strict=True)
        ]

    def lane(self, domain: str) -> str:
        """Recipients of one message may share an attempt when their domains have the same lane."""
        return lane(domain, self.settings)

    def _result(
        self, c: Claimed, outcome: Outcome, reply: Reply | None, remote: str | None, duration: timedelta
    ) -> Result:
        if outcome.kind == "delivered":
            return Result(c, outcome, remote, duration, "success", None)
        if outcome.kind == "failed":
            refused_by_us = remote is None or (reply is not None and reply.ours)
            return Result(c, outcome, remote, duration, "rejected" if refused_by_us else "failed", None)
        return _deferred(c, outcome, remote, duration, self.settings.retry)


def without_transport(claimed: Sequence[Claimed]) -> list[Result]:
    """A try of recipients whose transport queued.yaml does not have: a fault of ours, which the operator may mend.

    Deferred by the schedule that transports have when they name none, so that such mail expires like any other.
    """
    text = f"no transport {claimed[0].transportid!r} in queued.yaml"
    outcome = Outcome("deferred", "us", None, "4.3.5", text)
    return [_deferred(c, outcome, None, timedelta(0), Retry()) for c in claimed]


def _deferred(c: Claimed, outcome: Outcome, remote: str | None, duration: timedelta, schedule: RetrySchedule) -> Result:
    """Tried again when the schedule says so, or given up."""
    roll = random.random()
    due = decide(c.now(), received=c.received, tries=c.retry_count, schedule=schedule, roll=roll)
    return Result(c, outcome, remote, duration, "expired" if due is None else None, due)


def _seconds(timeout: Timeout) -> Timeouts:
    return Timeouts(**{name: getattr(timeout, name).total_seconds() for name in Timeouts.__dataclass_fields__})
