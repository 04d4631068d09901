"""suspends — mail that must wait, by the file, by an operator's command, or by a rule

Owns: the suspends that are in force in this worker, and following the table `suspends`.
Guarantees: the table is the truth, read at every poll and as soon as a change is announced; a suspend that it no longer
    has is lifted, and its mail in the queue is due at once. A rule's suspend counts here before it is written. While
    PostgreSQL is away the known suspends stay in force until their end.
See: docs/explanation/pacing.md; scripts/commands/suspend.py.
"""

from __future__ import annotations

import asyncio
import json
import math
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.pacing.match import Selection
from queued.waiting.deferral import Deferral
from shared.observe import events
from shared.postgres import database
from shared.timed_wait import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from queued.pacing.match import Fields
    from shared.config.queued.pacing import Suspend

#: Seconds that suspended mail is parked at a time. What lifts a suspend makes its mail due earlier.
LONGEST: Final = 600.0
#: How the reason begins with which such mail is parked: sql/queries/delivery/pacing.sql, suspend_release looks for it.
SUSPENDED: Final = "suspended: "
_BATCH: Final = 10_000  # recipients made due by one statement
_PATIENCE: Final = 2.0  # seconds of making mail due before the table is read again
_UNWRITTEN: Final = 1000  # suspends of rules that may wait for PostgreSQL


class _Known(NamedTuple):
    selection: Selection
    until: float  # monotonic seconds
    reason: str
    values: str  # the selection as the table has it


class _Unwritten(NamedTuple):
    values: str
    who: str
    reason: str
    until: float


class Suspends:
    """The suspends in force now."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._file: list[_Known] = []
        self._table: list[_Known] = []
        self._rules: dict[tuple[str, str], _Known] = {}  # not yet read back from the table
        self._unwritten: dict[tuple[str, str], _Unwritten] = {}
        self._lifted: list[str] = []  # selections whose mail is to be made due
        self._changed = asyncio.Event()
        self._index()

    def use(self, written: Sequence[Suspend]) -> None:
        """Suspend what queued.yaml says now, and no longer what it said before."""
        was, self._file = self._file, [_known(each.match.model_dump(), math.inf, each.reason) for each in written]
        kept = {known.values for known in self._file}
        self._lifted += [known.values for known in was if known.values not in kept]
        self._index()
        self.hurry()

    def __bool__(self) -> bool:
        """Whether anything is suspended."""
        return self._any

    @property
    def by_destination(self) -> bool:
        """Whether any of them asks for the recipients' domain."""
        return self._asks_destination

    def look(self, fields: Fields, *, late: bool) -> Deferral | None:
        """Whether this mail must wait; `fields` are folded, `late` when its hosts are known."""
        now = self._clock()
        for known in (*self._by_domain.get(fields.destination, ()), *self._others):
            if known.selection.late == late and known.until > now and known.selection.fits(fields):
                return Deferral(min(known.until - now, LONGEST), f"{SUSPENDED}{known.reason}")
        return None

    def add(self, selection: Mapping[str, Sequence[str]], seconds: float, reason: str, who: str) -> None:
        """Suspend at once, and have it written to the table."""
        until = self._clock() + seconds
        known = _known(selection, until, reason)
        key = known.values, who
        if len(self._unwritten) < _UNWRITTEN:
            self._unwritten[key] = _Unwritten(known.values, who, reason, until)
        self._rules[key] = known
        self._index()
        self._changed.set()
        events.emit("suspend.added", selection=known.values, reason=reason, seconds=seconds, who=who)

    def hurry(self) -> None:
        """The table may have changed: read it now."""
        self._changed.set()

    async def run(self, pool: database.Pool, where: str, poll: float) -> None:
        """Follow the table, until cancelled."""
        while True:
            self._changed.clear()
            try:
                async with pool.connection() as connection:
                    await self.follow(connection, where)
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("suspend.failed", error=database.reason(error), away=database.is_away(error))
            await wait_for_event(self._changed, poll)

    async def follow(self, connection: database.Connection, where: str) -> None:
        """Write what rules suspended, read what is in force, and make due what waited for what no longer is."""
        again = list(self._lifted)  # once more for what was parked while we learned of it
        for key, new in list(self._unwritten.items()):
            seconds = new.until - self._clock()
            if seconds > 0:
                await database.fetch(
                    connection,
                    "suspend_add",
                    selection=new.values,
                    reason=new.reason,
                    who=new.who,
                    seconds=seconds,
                    now=None,
                )
            if self._unwritten.get(key) is new:
                del self._unwritten[key]
        self._read(await database.fetch(connection, "suspend_active", now=None))
        in_force = {known.values for known in self._table}
        until = monotonic() + _PATIENCE
        for values in dict.fromkeys(self._lifted):
            if values in in_force:  # again, and more mail made due would only be parked once more
                continue
            released, whole = await release(connection, values, where, until)
            if released:
                events.emit("suspend.lifted", selection=values, recipients=released)
            if not whole:
                self._changed.set()  # at once, but not before what was suspended meanwhile is known
                return
        del self._lifted[: len(again)]

    def _read(self, rows: Sequence[database.Row]) -> None:
        now = self._clock()
        # Not told by their numbers: a standby that lagged when it was promoted gives those of lost ones again.
        was = self._table
        self._table = [
            _known(row.selection, math.inf if row.seconds is None else now + row.seconds, row.reason) for row in rows
        ]
        in_force = {known.values for known in self._table}
        gone = [known for known in was if known.values not in in_force and known.until > now]
        self._rules = {key: known for key, known in self._rules.items() if key in self._unwritten and known.until > now}
        self._index()
        self._lifted += [known.values for known in gone]

    def _index(self) -> None:
        """Sort them by domain, so that a thousand suspended domains cost mail for others nothing."""
        everything = [*self._file, *self._table, *self._rules.values()]
        self._by_domain: dict[str, list[_Known]] = {}
        self._others: list[_Known] = []
        for known in everything:
            domain = known.selection.domain
            (self._others if domain is None else self._by_domain.setdefault(domain, [])).append(known)
        self._any = bool(everything)
        self._asks_destination = bool(self._by_domain) or any(known.selection.asks_destination for known in everything)


async def release(
    connection: database.Connection, selection: str, where: str = "true", until: float = math.inf
) -> tuple[int, bool]:
    """Make due what was parked for this selection (JSON, as the table has it): how many recipients, and whether all.

    No statement begins after `until`, in monotonic seconds, but the first.
    """
    released = 0
    while True:
        [row] = await database.fetch(
            connection,
            "suspend_release",
            where=where,
            now=None,
            selection=selection,
            longest=LONGEST,
            reason=f"waiting: {SUSPENDED}",  # as claim_park_if_ours.sql writes it
            batch=_BATCH,
        )
        released += int(row.released)
        if row.released < _BATCH:
            return released, True
        if monotonic() >= until:
            return released, False


def _known(values: Mapping[str, Sequence[str]], until: float, reason: str) -> _Known:
    given = {name: list(each) for name, each in values.items() if each}
    return _Known(Selection(given), until, reason, json.dumps(given, sort_keys=True))
