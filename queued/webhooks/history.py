"""history — what several endpoints read of history, read once for all of them

Owns: a chain of snapshots that endpoints go along, and the events between two of them, for a while.
Guarantees: an endpoint that goes along the chain gets the same events as if it read history by itself, in the same
    order: from snapshot to snapshot those that the later one sees and the earlier does not. One that is far behind
    reads by itself until it has come to the end of the chain. So for hundreds of endpoints that want the same kinds,
    PostgreSQL is asked a few times in a second. Memory is bounded by _MOST_SNAPSHOTS and _MOST_OCTETS. Nothing that one
    server said is used for another: a standby that was promoted may give numbers of transactions again.
Raises: ServerChangedError; psycopg's exceptions.
See: queued/webhooks/feed.py, which has the position of one endpoint; sql/README.md, "Webhooks".
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

#: The columns of webhook_events that say where a page ended.
PLACE: Final = ("place", "rank", "recipient", "id")
_FRESH: Final = 0.25  # seconds for which a snapshot is the present one
_WIDE: Final = 256  # transactions between two snapshots of the chain; a page of many takes longer
_DEAD: Final = 5.0  # seconds after which a chain that no endpoint went along is given up
_SUMMARIZED: Final = 2.0  # seconds of history that may be read without an index
_MOST_SNAPSHOTS: Final = 256
_MOST_OCTETS: Final = 4 * 2**20  # of events that are kept, as text; read they take several times as much


class ServerChangedError(Exception):
    """PostgreSQL was started again, crashed, or is another server, since the position was read."""


@dataclass(frozen=True)
class Event:
    """One event. text: it as JSON; recipient: whose events come one after the other."""

    id: str
    recipient: int
    address: str
    text: str

    @cached_property
    def data(self) -> dict[str, Any]:
        """What conditions are about."""
        data: dict[str, Any] = json.loads(self.text)["data"]
        return data


class Page(NamedTuple):
    """Events of a portion of history; place: of the last one, as the next page needs it."""

    events: list[Event]
    place: dict[str, Any] | None


class Snapshot(NamedTuple):
    """A snapshot of PostgreSQL's, and when it was the present one, by PostgreSQL's clock; None if it never was."""

    text: str
    at: datetime | None


class Asked(NamedTuple):
    """The arguments of the query webhook_events."""

    kinds: tuple[str, ...]
    after: str | None
    upto: str | None
    since: datetime
    before: datetime | None
    most: int
    past: tuple[Any, ...]  # values of PLACE


class History:
    """Reads for every endpoint of a worker."""

    def __init__(self) -> None:
        self._chain: dict[str, Snapshot] = {}  # the newest last
        self._next: dict[str, Snapshot] = {}
        self._pages: dict[Asked, Page] = {}
        self._octets = 0
        self._server: datetime | None = None  # when the one was started that gave the chain
        self._summarized = -_SUMMARIZED
        self._extended = -_DEAD
        self._present = -_FRESH  # when the chain's end was not yet the present snapshot, but soon after
        self._lock = asyncio.Lock()

    @property
    def _end(self) -> Snapshot | None:
        return next(reversed(self._chain.values()), None)

    def forget(self) -> None:
        """Begin a new chain."""
        self._chain.clear()
        self._next.clear()
        self._pages.clear()
        self._octets, self._extended, self._present = 0, -_DEAD, -_FRESH

    async def ahead(
        self, connection: database.Connection, server: datetime, after: str, *, span: int, known: float
    ) -> tuple[Snapshot, bool]:
        """The snapshot to go on to, and whether that is as far as one can see now.

        server: when the one was started that `after` is of. span: transactions to go on at most. known: when `after`
        was learnt, by monotonic().
        """
        async with self._lock:
            now = monotonic()
            end = self._end if server == self._server else None
            fresh = end is not None and now - self._present < _FRESH
            if end is not None and after in self._next:
                following = self._next[after]
                return following, fresh and following == end
            at_end = end is not None and end.text == after
            if end is not None and at_end and fresh and known <= self._present:
                return end, True
            span = min(span, _WIDE) if at_end else span
            [row] = await database.fetch(connection, "webhook_next", after=after, span=span)
            found = Snapshot(row.upto, row.at if row.last else None)
            if row.server != server or _newest(found.text) < _newest(after):  # also after a crash
                if server == self._server:
                    self.forget()
                raise ServerChangedError
            if server != self._server:
                self.forget()
                self._server = server
            if at_end:
                self._extend(found, now)
            elif row.last:
                if end is not None and fresh and known <= self._present:
                    return end, True
                self._join(end, found, now)
            return found, row.last

    def _join(self, end: Snapshot | None, present: Snapshot, now: float) -> None:
        """An endpoint that read by itself has come to the present: the chain goes on there, unless that is too far."""
        if end is None or 0 <= _newest(present.text) - _newest(end.text) <= _WIDE:
            self._extend(present, now)
        elif now - self._extended > _DEAD:
            self.forget()
            self._extend(present, now)

    def _extend(self, found: Snapshot, now: float) -> None:
        """This snapshot, which PostgreSQL gave after `now`, is the chain's end."""
        end = self._end
        if end is not None and found.text != end.text:
            self._next[end.text] = found
        self._chain[found.text] = found
        self._extended, self._present = now, now if found.at is not None else -_FRESH
        while len(self._chain) > _MOST_SNAPSHOTS or (self._octets > _MOST_OCTETS // 2 and len(self._chain) > 1):
            self._drop()

    def _drop(self) -> None:
        """Forget the chain's first snapshot, and what was read behind it."""
        first = next(iter(self._chain))
        del self._chain[first]
        self._next.pop(first, None)
        for asked in [each for each in self._pages if each.after == first]:
            self._octets -= _size(self._pages.pop(asked))

    async def page(self, connection: database.Connection, asked: Asked) -> Page:
        """These events."""
        following = self._next.get(asked.after or "")
        if following is None or following.text != asked.upto:
            return await self._read(connection, asked)
        async with self._lock:
            page = self._pages.get(asked)
            if page is None:
                page = await self._read(connection, asked)
                if asked.after in self._next and self._octets + _size(page) <= _MOST_OCTETS:
                    self._pages[asked] = page
                    self._octets += _size(page)
            return page

    async def _read(self, connection: database.Connection, asked: Asked) -> Page:
        if monotonic() - self._summarized >= _SUMMARIZED:
            self._summarized = monotonic()
            await database.fetch(connection, "webhook_summarize")
        values = asked._asdict()
        values |= {"kinds": list(asked.kinds)} | dict(zip(PLACE, values.pop("past"), strict=True))
        rows: Sequence[Any] = await database.fetch(connection, "webhook_events", **values)
        place = {key: getattr(rows[-1], key) for key in PLACE} if rows else None
        return Page([Event(row.id, row.recipient, row.address, row.event) for row in rows], place)


def _newest(snapshot: str) -> int:
    """The first transaction that had not begun (pg_snapshot_xmax)."""
    return int(snapshot.split(":")[1])


def _size(page: Page) -> int:
    return sum(len(event.text) for event in page.events)
