"""values — the values that a worker's parts exchange: claimed recipients, leases, bodies and results

Guarantees: values, without I/O; nothing heavy is loaded with them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shared.postgres.array_text import numbers, texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from shared.mail.message import Address
    from shared.mail.outcome import Outcome

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
#: The key that distinguishes two claims, even of one recipient: the row's id and the claim's token.
type Fence = tuple[int, int]


class Lease:
    """How long a delivery may go on: until its claim ends, which a heartbeat puts off."""

    __slots__ = ("_cut", "_limit", "expires")

    def __init__(self, expires: float) -> None:
        self.expires = expires  # monotonic seconds
        self._limit: asyncio.Timeout | None = None
        self._cut = False

    def held(self) -> asyncio.Timeout:
        """For `async with`: what is done inside ends by TimeoutError when the lease does, or is cut."""
        self._limit = asyncio.timeout_at(_loop_time(self.expires))
        return self._limit

    def put_off(self, expires: float) -> None:
        """The claim holds until `expires`; a time that has passed ends what goes on under it."""
        self.expires = expires
        self._reschedule(expires)

    def cut(self) -> None:
        """End what goes on under it now, for good, although the claim holds."""
        self._reschedule(monotonic())
        self._cut = True

    def let_go(self) -> None:
        """Nothing goes on under it any more."""
        self._limit = None

    def _reschedule(self, expires: float) -> None:
        if self._limit is not None and not self._cut and not self._limit.expired():
            self._limit.reschedule(_loop_time(expires))


class Claimed(NamedTuple):
    """One recipient that is ours until `expires`. A tuple: a frozen dataclass takes nine times as long to make."""

    id: int
    token: int
    message_id: UUID
    actionid: int
    sender: Address | None  # None is the null sender
    recipient: Address
    received: datetime
    size: int
    partid: str | None
    transportid: str
    jobid: str | None
    retry_count: int  # which try this is, from 1
    expires: float  # monotonic seconds
    claimed_at: datetime  # by PostgreSQL's clock
    since: float  # the same instant in monotonic seconds
    priority: int = 0  # RFC 6710; above 0 urgent, below 0 bulk
    metadata: Mapping[str, Any] = _NOTHING  # given at submission, without `_partid`
    noticed: bool = False  # its sender was notified that it is late
    leaf: int = 0  # PostgreSQL's number of its table; rows of one leaf are looked for together
    login_refused: bool = False  # what stopped it when it was tried or parked last was our own login

    def now(self) -> datetime:
        """The time by PostgreSQL's clock: the queue's due times are compared with that, not with this host's."""
        return self.claimed_at + timedelta(seconds=monotonic() - self.since)


def fence(claimed: Sequence[Claimed]) -> dict[str, Any]:
    """The values by which a row still belongs to these claims: its id, its message, and the token."""
    return {
        "ids": numbers(c.id for c in claimed),
        "messages": texts(c.message_id.hex for c in claimed),
        "tokens": numbers(c.token for c in claimed),
    }


def _loop_time(at: float) -> float:
    """A monotonic() instant on the event loop's clock."""
    return asyncio.get_running_loop().time() + at - monotonic()


class Spoken(NamedTuple):
    """How the host was spoken to, for the attempt row; None where it did not come to that."""

    tls: str | None = None  # the negotiated session: "TLSv1.3 TLS_AES_256_GCM_SHA384 verified", "none"
    source: str | None = None  # the address we spoke from
    dsn: bool = False  # the host took on to tell the sender what becomes of the mail (RFC 3461 section 5.2.1)
    last: bool = False  # the mail ends there: the host is spoken to by LMTP
    conversation: str | None = None  # of a try that did not deliver, where its transport keeps it


class OnHold(NamedTuple):
    """The recipient goes on hold instead of being tried again."""

    reason: str
    quarantine: str | None = None  # becomes metadata `_quarantineid`


class Result(NamedTuple):
    """One attempt's end for one recipient: `next_retry` when it is tried again, else `result` says how it finished."""

    claimed: Claimed
    outcome: Outcome
    remote: str | None  # the host that was talked to last, as host:port or name[address]:port
    duration: timedelta
    result: str | None  # success, failed, expired: the archive's words
    next_retry: datetime | None
    spoken: Spoken = Spoken()
    held: OnHold | None = None
    late: datetime | None = None  # the sender may be notified that it is late, and that we try until then

    @staticmethod
    def later(claimed: Claimed, outcome: Outcome, wait: timedelta) -> Result:
        """A try that failed on our side, before any peer was asked: again after `wait`, outside the schedule."""
        return Result(claimed, outcome, None, timedelta(0), None, claimed.now() + wait)


@dataclass(frozen=True, slots=True)
class Signed:
    """The result of signing: header fields to send before the content, perhaps none, or why the message must wait."""

    fields: bytes = b""
    fault: str | None = None


@dataclass(slots=True)
class Body:
    """A message's content, held once for all recipients in flight.

    queued.signing.sign keeps `signing` here; queued.smtp.line_length the body with shorter lines, None for this one.
    """

    content: bytes
    smtputf8: bool
    signing: asyncio.Future[Signed] | None = None
    shortened: dict[int, Body | None] = field(default_factory=dict)


class PoolClosedError(Exception):
    """A connection was asked for after the pool began to close."""
