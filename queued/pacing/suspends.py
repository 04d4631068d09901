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

from queued.pacing.match import Selection, merged
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
#: Suspends written, or destinations whose mail is made due, by one statement.
AT_ONCE: Final = 500
_BATCH: Final = 10_000  # recipients made due by one statement
_PATIENCE: Final = 2.0  # seconds of making mail due before the table is read again
_MOST: Final = 100_000  # suspends of rules that wait to be written; while PostgreSQL is away nothing is claimed
_SHARE: Final = 10  # following the table takes this part of the time at most
_SHOWN: Final = 10  # destinations that one line of the log names

_NONE: Final[Mapping[_Key, _Known]] = {}
type _Key = tuple[str, str]  # the selection as the table has it, and who suspended


class _Known(NamedTuple):
    selection: Selection
    until: float  # monotonic seconds
    reason: str
    values: str  # the selection as the table has it
    who: str = ""

    @property
    def key(self) -> _Key:
        return self.values, self.who


class Suspends:
    """The suspends in force now."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._file: list[_Known] = []
        self._table: list[_Known] = []
        self._made: dict[str, tuple[Selection, str]] = {}  # by what the table has, of its last rows
        self._rules: dict[_Key, _Known] = {}  # not yet read back from the table
        self._unwritten: dict[_Key, _Known] = {}
        self._lifted: list[str] = []  # selections whose mail is to be made due
        self._took = 0.0  # seconds to write and read at the last time
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
        for known in (*self._by_domain.get(fields.destination, _NONE).values(), *self._others.values()):
            if known.selection.late == late and known.until > now and known.selection.fits(fields):
                return Deferral(min(known.until - now, LONGEST), f"{SUSPENDED}{known.reason}")
        return None

    def add(self, selection: Mapping[str, Sequence[str]], seconds: float, reason: str, who: str) -> None:
        """Suspend at once, and have it written to the table."""
        known = _known(selection, self._clock() + seconds, reason, who)
        if len(self._rules) >= _MOST and known.key not in self._rules:
            events.emit(
                "suspend.failed", error=f"{_MOST} suspends of rules wait to be written already; one is left out"
            )
            return
        self._rules[known.key] = self._unwritten[known.key] = known
        self._put(known)
        self._changed.set()
        events.emit("suspend.added", selection=known.values, reason=reason, seconds=seconds, who=who)

    def hurry(self) -> None:
        """The table may have changed: read it now."""
        self._changed.set()

    async def run(self, pool: database.Pool, where: str, poll: float) -> None:
        """Follow the table, until cancelled. Thousands of suspends take a while to read, so not all the time."""
        while True:
            self._changed.clear()
            try:
                async with pool.connection() as connection:
                    await self.follow(connection, where)
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("suspend.failed", error=database.reason(error), away=database.is_away(error))
            await asyncio.sleep(min((_SHARE - 1) * self._took, poll))
            await wait_for_event(self._changed, poll)

    async def follow(self, connection: database.Connection, where: str) -> None:
        """Write what rules suspended, read what is in force, and make due what waited for what no longer is."""
        again = list(self._lifted)  # once more for what was parked while we learned of it
        began = monotonic()
        unwritten = sorted(self._unwritten.items())  # in one order, so that two workers do not wait for each other
        for begin in range(0, len(unwritten), AT_ONCE):
            await self._write(connection, unwritten[begin : begin + AT_ONCE])
        in_force = self._read(await database.fetch(connection, "suspends_in_force", now=None))
        self._took = monotonic() - began
        until = monotonic() + _PATIENCE
        # Mail of what is suspended again would only be parked once more.
        lifted = [json.loads(values) for values in dict.fromkeys(self._lifted) if values not in in_force]
        for selection in merged(lifted, AT_ONCE):
            released, whole = await release(connection, selection, where, until)
            if released:
                events.emit("suspend.lifted", selection=_shown(selection), recipients=released)
            if not whole:
                self._changed.set()  # at once, but not before what was suspended meanwhile is known
                return
        del self._lifted[: len(again)]

    async def _write(self, connection: database.Connection, some: Sequence[tuple[_Key, _Known]]) -> None:
        """Write these; one that PostgreSQL refuses counts here until its end, and keeps none of the others out."""
        now = self._clock()
        left = [known for _, known in some if known.until > now]
        refused = await _write(connection, left, now) if left else ()  # a statement without rows would be announced too
        for key, known in some:
            if key not in refused and self._unwritten.get(key) is known:
                del self._unwritten[key]

    def _read(self, rows: Sequence[database.Row]) -> set[str]:
        """Go by these rows of the table from now on; their selections."""
        now = self._clock()
        was, before = self._table, self._made
        self._made = {row.selection: before.get(row.selection) or _made(json.loads(row.selection)) for row in rows}
        # Not told by their numbers: a standby that lagged when it was promoted gives those of lost ones again.
        self._table = []
        for row in rows:
            selection, values = self._made[row.selection]
            until = math.inf if row.seconds is None else now + row.seconds
            self._table.append(_Known(selection, until, row.reason, values, row.who))
        in_force = {known.values for known in self._table}
        gone = [known for known in was if known.values not in in_force and known.until > now]
        self._rules = {key: known for key, known in self._rules.items() if key in self._unwritten and known.until > now}
        self._index()
        self._lifted += [known.values for known in gone]
        return in_force

    def _index(self) -> None:
        """Sort them by domain, so that a thousand suspended domains cost mail for others nothing."""
        self._by_domain: dict[str, dict[_Key, _Known]] = {}
        self._others: dict[_Key, _Known] = {}
        self._any = self._asks_destination = False
        for known in (*self._file, *self._table, *self._rules.values()):
            self._put(known)

    def _put(self, known: _Known) -> None:
        """Into the index, in the place of what the same one has suspended there before."""
        domain = known.selection.domain
        (self._others if domain is None else self._by_domain.setdefault(domain, {}))[known.key] = known
        self._any = True
        self._asks_destination |= known.selection.asks_destination


async def release(
    connection: database.Connection,
    selection: Mapping[str, Sequence[str]],
    where: str = "true",
    until: float = math.inf,
) -> tuple[int, bool]:
    """Make due what was parked for this selection: how many recipients, and whether all.

    No statement begins after `until`, in monotonic seconds, but the first.
    """
    released = 0
    while True:
        [row] = await database.fetch(
            connection,
            "suspend_release",
            where=where,
            now=None,
            selection=json.dumps(selection),
            below=any(value.startswith(".") for value in selection.get("destination", ())),
            longest=LONGEST,
            reason=f"waiting: {SUSPENDED}",  # as claim_park_if_ours.sql writes it
            batch=_BATCH,
        )
        released += int(row.released)
        if row.released < _BATCH:
            return released, True
        if monotonic() >= until:
            return released, False


async def _write(connection: database.Connection, some: Sequence[_Known], now: float) -> set[_Key]:
    """Write these together, or where PostgreSQL refuses a value, each by itself; those that it refuses."""
    try:
        await database.fetch(
            connection,
            "suspends_add",
            selections=[known.values for known in some],
            reasons=[known.reason for known in some],
            whos=[known.who for known in some],
            seconds=[known.until - now for known in some],
        )
    except database.REFUSAL as error:
        if not database.refuses_value(error):
            raise
        if len(some) > 1:
            return {key for each in some for key in await _write(connection, [each], now)}
        events.emit("suspend.failed", error=database.reason(error))
        return {known.key for known in some}
    return set()


def _known(values: Mapping[str, Sequence[str]], until: float, reason: str, who: str = "") -> _Known:
    selection, text = _made(values)
    return _Known(selection, until, reason, text, who)


def _made(values: Mapping[str, Sequence[str]]) -> tuple[Selection, str]:
    given = {name: list(each) for name, each in values.items() if each}
    return Selection(given), json.dumps(given, sort_keys=True)


def _shown(selection: Mapping[str, Sequence[str]]) -> str:
    """A selection for the log, which may be of hundreds of suspends."""
    names = selection.get("destination", ())
    if len(names) > _SHOWN:
        selection = {**selection, "destination": [*names[:_SHOWN], f"and {len(names) - _SHOWN} more"]}
    return json.dumps(selection, sort_keys=True)
