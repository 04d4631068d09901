"""claim — takes due recipients of this worker's partitions

Owns: the claim query, the floor under it, and giving back what was not tried.
Called by: queued.dispatch.
Guarantees: what is returned is leased: nobody else takes it before the lease ends, and when it ends the rows are due
    again by themselves. The try is counted before anything is sent. Two workers with overlapping conditions never both
    get a row.
Raises: whatever psycopg raises; the caller tells outage from refusal.
See: sql/queries/claim.sql; sql/README.md, "Claims".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from shared import database, events
from shared.message import Address

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from shared.queued_config import Claim as ClaimSettings

# A row may become visible this long after its next_retry, because its transaction began earlier than it committed.
# Rows later than that wait for the next full pass, at most one poll interval away.
_MARGIN = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Claimed:
    """One recipient that is ours until `expires`."""

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


class Claimer:
    """Claims for one worker.

    The floor is a hint: rows finished or taken leave dead entries at the lower end of the index, which vacuum cannot
    remove while anybody holds an old snapshot. Starting each scan just below the last claim skips them. A full pass
    without the floor at least every poll interval finds whatever lies below: leases that ran out, and late commits.
    """

    def __init__(self, where: str, worker: str, settings: ClaimSettings) -> None:
        self._where = where
        self._worker = worker
        self._settings = settings
        self._floor: datetime | None = None
        self._full_pass = -1e9

    async def take(self, connection: database.Connection, limit: int) -> list[Claimed]:
        """Up to `limit` recipients, earliest due first; empty when nothing is due."""
        started = monotonic()
        if started - self._full_pass >= self._settings.poll.total_seconds():
            self._floor = None
            self._full_pass = started
        rows = await database.fetch(
            connection,
            "claim",
            where=self._where,
            now=None,
            floor=self._floor,
            batch=limit,
            worker=self._worker,
            lease=self._settings.lease,
        )
        if not rows:
            return []
        self._floor = rows[0].next_retry - _MARGIN
        expires = started + self._settings.lease.total_seconds()
        for row in rows:
            if row.lost_token is not None:
                events.emit("claim.expired", recipient_id=row.id, token=row.lost_token)
        events.emit("claim.taken", recipients=len(rows), token=rows[0].token)
        return [
            Claimed(
                id=row.id,
                token=row.token,
                message_id=row.messages__id,
                actionid=row.actionid,
                sender=None if row.senderdomain is None else Address(row.senderlocalpart, row.senderdomain),
                recipient=Address(row.recipientlocalpart, row.recipientdomain),
                received=row.ts,
                size=row.size,
                partid=row.partid,
                transportid=row.transportid,
                jobid=row.jobid,
                retry_count=row.retry_count,
                expires=expires,
            )
            for row in rows
        ]

    async def until_due(self, connection: database.Connection) -> float:
        """Seconds until the earliest recipient that waits for its time is due; the poll interval when none waits."""
        [row] = await database.fetch(connection, "claim_next_due", where=self._where, now=None)
        return float(row.seconds) if row.seconds is not None else self._settings.poll.total_seconds()

    async def give_back(self, connection: database.Connection, claimed: list[Claimed]) -> None:
        """Return recipients untried; the count of tries goes back too."""
        if claimed:
            await database.fetch(
                connection,
                "claim_release_if_ours",
                ids=[c.id for c in claimed],
                tokens=sorted({c.token for c in claimed}),
            )
            events.emit("claim.released", recipients=len(claimed))
