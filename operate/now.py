"""now — the whole system at one moment: flow, states, partitions and who serves them, destinations in trouble, daemons

Owns: the figures of the console's first page, and which worker serves which partition.
Guarantees: reads only, and only so much however long the queue is: MOST recipients of each class of a claim, and NEWEST
    ids for the flow; what reaches a bound says so.
See: sql/queries/operation/now.sql, metrics.sql and status.sql; operate/doctor/conditions.py for the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from operate.doctor.conditions import prove
from operate.selection import in_words
from operate.settings import suspend
from queued.maintain import UNSERVED_GRACE
from shared.observe.flow import COUNTED
from shared.postgres import database
from shared.postgres.coverage import Serves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from shared.postgres.coverage import Partid

MOST: Final = 2000  # recipients of each class
NEWEST: Final = 50_000  # ids
_PARTITIONS: Final = 40  # that are shown
_BUSY: Final = 15  # destinations that workers report
_SERIES: Final = 1000
_DESTINATIONS: Final = 15


class Flow(NamedTuple):
    """Recipients accepted, or attempts of one outcome, in the last 1, 5 and 15 minutes. more: there may be more."""

    one: int
    five: int
    fifteen: int
    more: bool


@dataclass(frozen=True, slots=True)
class State:
    """Recipients in one state. more: there are more of them than were counted."""

    name: str
    recipients: int
    oldest: timedelta
    more: bool


@dataclass(frozen=True, slots=True)
class Partition:
    """Mail of one partition. overdue: for how long its longest due has been due. unserved: no living worker took it."""

    id: Partid
    recipients: int
    sending: int
    overdue: timedelta | None
    unserved: bool


@dataclass(frozen=True, slots=True)
class Destination:
    """A domain whose mail has failed. suspended: by what, in words."""

    domain: str
    recipients: int
    sending: int
    next_retry: datetime
    last_error: str
    suspended: str


@dataclass(frozen=True, slots=True)
class Now:
    """The figures."""

    at: datetime
    server: str
    flow: dict[str, Flow]
    states: list[State]
    partitions: list[Partition]
    destinations: list[Destination]
    suspends: int
    workers: list[database.Row]
    daemons: list[database.Row]
    busy: list[database.Row]
    minutes: list[database.Row]


async def now(connection: database.Connection) -> Now:
    """Everything, read one after the other."""
    [clock] = await database.fetch(connection, "doctor_clock")
    [server] = await database.fetch(connection, "now_server")
    daemons = await database.fetch(connection, "daemon_seen")
    counted = await database.fetch(connection, "metrics_queue", where="true", now=None, most=MOST, series=_SERIES)
    unserved = await database.fetch(connection, "metrics_unserved", grace=UNSERVED_GRACE, series=_SERIES)
    suspends = await suspend.active(connection)
    troubled = await database.fetch(connection, "now_destinations", most=MOST * 5, limit=_DESTINATIONS)
    return Now(
        clock.at,
        server.version,
        await flow(connection, daemons, NEWEST),
        _states(counted),
        _partitions(counted, {row.partid or None for row in unserved}),
        [_destination(row, suspends) for row in troubled],
        len(suspends),
        await database.fetch(connection, "register_seen"),
        daemons,
        await database.fetch(connection, "daemon_destinations", limit=_BUSY),
        await database.fetch(connection, "now_minutes"),
    )


async def flow(connection: database.Connection, daemons: Sequence[database.Row], most: int) -> dict[str, Flow]:
    """What was accepted and tried: the larger of what the daemons counted and of what the `most` newest rows show.

    Neither has all: mail that an application queues by SQL passes no daemon, a daemon that died has taken its counts
    with it, and there may be more rows than are read.
    """
    [accepted] = await database.fetch(connection, "status_accepted", most=most)
    rows = {row.outcome: row for row in await database.fetch(connection, "status_tried", most=most)}
    rows["accepted"] = accepted
    alive = [row for row in daemons if row.live]
    found = {}
    for name in (*COUNTED, *sorted(set(rows) - set(COUNTED))):
        row = rows.get(name)
        here = [0, 0, 0] if row is None else [row.one, row.five, row.fifteen]
        there = [sum(getattr(each, name)[i] for each in alive) if name in COUNTED else 0 for i in range(3)]
        one, five, fifteen = map(max, here, there)
        found[name] = Flow(one, five, fifteen, more=row is not None and row.more)
    return found


def _states(rows: Sequence[database.Row]) -> list[State]:
    found: dict[str, State] = {}
    for row in rows:
        before = found.get(row.state, State(row.state, 0, timedelta(), more=False))
        recipients = before.recipients + row.recipients
        oldest = max(before.oldest, timedelta(seconds=float(row.oldest)))
        found[row.state] = State(row.state, recipients, oldest, more=recipients >= MOST)
    return sorted(found.values(), key=lambda each: each.name)


def _partitions(rows: Sequence[database.Row], unserved: set[Partid]) -> list[Partition]:
    """Those with mail to deliver: unserved ones first, then those whose mail has been due longest."""
    found: dict[Partid, Partition] = {each: Partition(each, 0, 0, None, unserved=True) for each in unserved}
    for row in rows:
        if row.state not in {"ACTIVE", "SENDING", "SCHEDULED", "DEFER"}:
            continue
        before = found.get(row.partid, Partition(row.partid, 0, 0, None, unserved=row.partid in unserved))
        overdue = before.overdue if row.overdue is None else timedelta(seconds=max(0.0, float(row.overdue)))
        sending = before.sending + (row.recipients if row.state == "SENDING" else 0)
        found[row.partid] = Partition(
            row.partid, before.recipients + row.recipients, sending, overdue, unserved=before.unserved
        )
    order = sorted(found.values(), key=lambda each: (not each.unserved, -(each.overdue or timedelta()), each.id or ""))
    return order[:_PARTITIONS]


def _destination(row: database.Row, suspends: Sequence[database.Row]) -> Destination:
    words = [in_words(each.selection) for each in suspends if _is_of(each.selection, row.domain)]
    return Destination(row.domain, row.recipients, row.sending, row.next_retry, row.last_error, "; ".join(words))


def _is_of(selection: Mapping[str, Sequence[str]], domain: str) -> bool:
    """Whether a suspend is of a whole domain, or of all mail."""
    if not selection:
        return True
    named = selection.get("destination", ())
    hit = any(domain == each or (each.startswith(".") and domain.endswith(each)) for each in named)
    return hit and set(selection) == {"destination"}


async def served(
    connection: database.Connection, workers: Sequence[database.Row], partids: Sequence[Partid]
) -> dict[Partid, list[str]]:
    """Which living workers serve each of these partitions, by their ids; `connection` is for this alone."""
    await database.fetch(connection, "doctor_session", seconds=5.0)
    leaves = await database.fetch(connection, "doctor_leaves")
    found: dict[Partid, list[str]] = {partid: [] for partid in partids}
    alive: dict[str, set[str]] = {}
    for row in workers:
        if row.live:
            alive.setdefault(row.where_condition, set()).add(row.id)
    for where, ids in alive.items():
        proof = await prove(connection, where, list(partids), leaves)
        for partid in partids:
            if proof.answers.get(partid, Serves.NONE) is not Serves.NONE:
                found[partid] += sorted(ids)
    return found
