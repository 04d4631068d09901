"""deliver — one attempt: some recipients of one message over one transport

Owns: the steps borrow a connection → talk → classify → decide about a retry, and their time limit within the lease.
Called by: queued.dispatch, one call per message and transport.
Guarantees: returns a Result for every recipient, or None when it did not come to a try; never raises for what a peer
    does. An attempt ends before its lease does, so that no other worker begins while this one still talks. No database
    connection is held meanwhile.
See: RFC 5321 section 4.5.4.1 (retries); RFC 1047 (why a lost final reply duplicates).
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

from queued.classify import classify, classify_fault
from queued.connections import ConnectionPool, PoolClosedError, ReuseLimits
from queued.result import Result
from queued.retry import decide
from queued.transaction import ConversationError, Timeouts, Transaction
from shared.outcome import Outcome

if TYPE_CHECKING:
    from queued.claim import Claimed
    from queued.transaction import TransactionResult
    from shared.queued_config import Timeout
    from shared.queued_config import Transport as TransportSettings

# Part of the lease kept for recording the result.
_RESERVE = 0.1


@dataclass(frozen=True, slots=True)
class Body:
    """A message's content, held once for all its recipients in hand."""

    content: bytes
    smtputf8: bool


class Transport:
    """How a set of destinations is reached, with the connections it keeps open."""

    def __init__(self, settings: TransportSettings, hostname: str, lease: timedelta) -> None:
        self.settings = settings
        self._lease = lease.total_seconds()
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

    async def attempt(self, claimed: tuple[Claimed, ...], body: Body) -> list[Result] | None:
        """Try these recipients of one message. None when half the lease passed without a free connection."""
        started = monotonic()
        expires = min(c.expires for c in claimed)
        host, port = self.settings.connection.server, self.settings.connection.port
        transaction = Transaction(
            sender=str(claimed[0].sender or ""),
            recipients=tuple(str(c.recipient) for c in claimed),
            content=body.content,
            smtputf8=body.smtputf8,
        )
        try:
            async with asyncio.timeout_at(_loop_time(expires - self._lease / 2)) as patience:
                outcomes = await self._talk(host, port, transaction, patience, expires)
        except TimeoutError:
            return None
        except PoolClosedError:
            return None
        duration = timedelta(seconds=monotonic() - started)
        remote = f"{host}:{port}"
        return [self._result(c, outcome, remote, duration) for c, outcome in zip(claimed, outcomes, strict=True)]

    async def _talk(
        self, host: str, port: int, transaction: Transaction, patience: asyncio.Timeout, expires: float
    ) -> tuple[Outcome, ...]:
        """The conversation, once more on a fresh connection when a kept one turned out to be closed."""
        while True:
            try:
                async with self._pool.acquire(host, port) as connection:
                    # From here it is a try; it must be over, and recorded, before the lease is.
                    patience.reschedule(None)
                    kept = connection.transactions > 0
                    try:
                        async with asyncio.timeout_at(_loop_time(expires - _RESERVE * self._lease)):
                            result = await connection.send(transaction)
                    except TimeoutError:
                        connection.abort()
                        return _same(len(transaction.recipients), _OVERTIME)
            except ConversationError as error:
                return _same(len(transaction.recipients), classify_fault(error.fault))
            if not (kept and _grown_tired(result)):
                return classify(result)

    def _result(self, c: Claimed, outcome: Outcome, remote: str, duration: timedelta) -> Result:
        now = datetime.now(UTC)
        schedule = self.settings.retry
        if outcome.kind == "delivered":
            return Result(c, outcome, remote, duration, "success", None)
        if outcome.kind == "failed":
            return Result(c, outcome, remote, duration, "failed", None)
        roll = random.random()
        due = decide(now, received=c.received, tries=c.retry_count, schedule=schedule, roll=roll)
        return Result(c, outcome, remote, duration, "expired" if due is None else None, due)


#: The peer was still talking when the lease drew to its end. Whether it has the message cannot be known.
_OVERTIME = Outcome(
    "deferred", "message", None, "4.4.2", "gave up: the attempt would have outlived its lease", uncertain=True
)


def _grown_tired(result: TransactionResult) -> bool:
    """Whether a kept connection was closed by the peer before it read anything of this transaction."""
    return result.fault is not None and result.fault.phase == "mail" and result.fault.kind == "closed"


def _same(count: int, outcome: Outcome) -> tuple[Outcome, ...]:
    return (outcome,) * count


def _loop_time(at: float) -> float:
    """A monotonic() instant on the event loop's clock."""
    return asyncio.get_running_loop().time() + at - monotonic()


def _seconds(timeout: Timeout) -> Timeouts:
    return Timeouts(**{name: getattr(timeout, name).total_seconds() for name in Timeouts.__dataclass_fields__})
