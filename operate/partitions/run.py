"""run — takes the steps of a repartitioning, in short transactions, while mail flows

Owns: reading the state of the leaves; the transactions, their waits for locks, and cleaning up after a failure.
Guarantees: other sessions wait behind us no longer than the lock timeout and the switch itself: a lock that cannot be
    taken at once is given up and requested again after a pause with jitter, and none is held while PostgreSQL waits for
    us. One repartitioning at a time. A run that fails, or is interrupted, removes its workplace; a killed one leaves
    it to the next run.
Raises: PillarboxError in one line, which names the holders of locks that could not be taken.
See: sql/README.md, "Repartitioning".
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from operate.partitions.layout import DEFAULT, Layout, parse_bound, suffix_of
from operate.partitions.plan import CLOSE, LOCK_TIMEOUT, Leftovers, clearing, lock_timeout, rounds, steps
from shared.errors import PillarboxError
from shared.failure_points import reach
from shared.postgres import database, migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from operate.partitions.plan import Round, Step

PATIENCE: Final = 60.0  # seconds to go on asking for one lock
PROGRESS: Final = 100_000  # rows between two lines of progress: about a second
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_OTHER_TIMEOUT: Final = 5_000  # milliseconds for the server to notice that a killed run is dead
_BUSY: Final = {"55P03", "40P01"}  # SQLSTATE lock_not_available, deadlock_detected

type Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf as it is: an estimate of its rows, and its bytes on disk with indexes."""

    name: str
    estimate: int
    bytes: int


@dataclass(frozen=True, slots=True)
class State:
    """The leaves there are, and what an interrupted run left."""

    layout: Layout
    leaves: tuple[Leaf, ...]
    leftovers: Leftovers


@asynccontextmanager
async def connected(conninfo: str) -> AsyncIterator[database.Connection]:
    """A connection to a database whose schema is this code's."""
    await asyncio.to_thread(migrate.check, conninfo)
    connection = await database.connect(conninfo, "pillarbox partitions")
    try:
        with database.outage_in_one_line(connection):
            yield connection
    finally:
        await connection.close()


async def read_state(connection: database.Connection) -> State:
    """The leaves and the leftovers of this moment."""
    rows = await database.fetch(connection, "partitions_leaves")
    left = await database.fetch(connection, "partitions_leftovers")
    return State(
        layout={
            suffix_of(row.leaf): parse_bound(row.leaf, row.bound) for row in rows if suffix_of(row.leaf) != DEFAULT
        },
        leaves=tuple(Leaf(row.leaf, row.estimate, row.bytes) for row in rows),
        leftovers=Leftovers(
            captured=tuple(sorted(row.leaf for row in left if row.kind == "capture")),
            shield=any(row.kind == "shield" for row in left),
            schema=any(row.kind == "schema" for row in left),
        ),
    )


async def planned(
    connection: database.Connection, state: State, wanted: Layout
) -> tuple[list[Round], list[list[Step]]]:
    """The rounds to the wanted layout and the steps of each; the first step removes what a killed run left."""
    every = sorted({id_ for layout in (state.layout, wanted) for ids in layout.values() for id_ in ids})
    order = [row.id for row in await database.fetch(connection, "partitions_sorted", ids=every)]
    found = rounds(state.layout, wanted)
    acts = [steps(change, order) for change in found]
    if state.leftovers:
        acts = [[*clearing(state.leftovers), *(acts[0] if acts else [])], *acts[1:]]
    return found, acts


async def apply(
    connection: database.Connection,
    wanted: Layout,
    tell: Tell,
    *,
    patience: float = PATIENCE,
) -> int:
    """Lead the queue to the wanted layout; returns how many rounds that took, perhaps none.

    `patience`: seconds to go on asking for the locks of one step.
    """
    async with alone(connection):
        found, acts = await planned(connection, await read_state(connection), wanted)
        try:
            for act in acts:
                await take(connection, act, tell, patience=patience)
        except BaseException:
            with suppress(PillarboxError, *database.REFUSAL, *database.OUTAGE):
                left = clearing((await read_state(connection)).leftovers)
                await take(connection, left, tell, patience=patience)
            raise
    return len(found)


@asynccontextmanager
async def alone(connection: database.Connection) -> AsyncIterator[None]:
    """Only one repartitioning at a time, from any process.

    A second connection holds the lock. If it is lost the first one is ended too: others may begin from then on.
    """
    guard = await database.twin(connection, "pillarbox partitions lock")
    try:
        async with guard.transaction():
            try:
                await database.fetch(guard, "partitions_lock_patience", milliseconds=str(_OTHER_TIMEOUT))
                await database.fetch(guard, "partitions_lock")
            except database.REFUSAL as error:
                if _sqlstate(error) not in _BUSY:
                    raise
                raise PillarboxError(
                    "partitions: another repartitioning is under way; run it again when it has ended"
                ) from None
            watching = asyncio.create_task(_end_with(guard, connection))
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.wait([watching])
    finally:
        await guard.close()


async def _end_with(guard: database.Connection, connection: database.Connection) -> None:
    """Hang up when the guard's connection is lost."""
    with suppress(*database.OUTAGE):
        async for _ in guard.notifies():
            pass
    database.hang_up(connection)


async def take(connection: database.Connection, act: Iterable[Step], tell: Tell, *, patience: float = PATIENCE) -> None:
    """Take these steps one after the other."""
    for step in act:
        tell(step.why)
        reach("partitions.step")
        try:
            if step.alone:
                for text in step.sql:
                    await connection.execute(text.encode())
            elif step.repeat:
                await _repeat(connection, step.sql[0], step.repeat, tell)
            else:
                await _insist(connection, step, patience)
        except database.REFUSAL as error:
            again = "; give the command again when PostgreSQL is back" if connection.closed else ""
            raise PillarboxError(f"partitions: could not {step.why}: {database.reason(error)}{again}") from None


async def _repeat(connection: database.Connection, text: str, enough: int, tell: Tell | None = None) -> None:
    """Run a statement until it returns less than `enough`; of long work, tell now and then how much is done."""
    done = reported = 0
    while True:
        row = await (await connection.execute(text.encode())).fetchone()
        if row is None or row[0] < enough:
            return
        done += row[0]
        if tell is not None and done - reported >= PROGRESS:
            reported = done
            tell(f"  {done:,} so far")


async def _insist(connection: database.Connection, step: Step, patience: float) -> None:
    """One transaction, tried again while its locks cannot be taken."""
    deadline, pause = monotonic() + patience, _FIRST_PAUSE
    while True:
        if step.first:
            await _repeat(connection, step.first, CLOSE)
        try:
            # All in one message, which PostgreSQL takes as one transaction and commits by itself: were we stopped or
            # cut off in the middle, no lock would wait for us.
            await connection.execute(";\n".join([lock_timeout(LOCK_TIMEOUT), *step.sql]).encode(), prepare=False)
        except database.REFUSAL as error:
            if _sqlstate(error) not in _BUSY:
                raise
            if monotonic() > deadline:
                raise PillarboxError(await _blocked(connection, step, patience)) from None
        else:
            return
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _blocked(connection: database.Connection, step: Step, patience: float) -> str:
    """The line for an operator who must find out who is in the way."""
    tables = [f"pillarbox.{table}" for table in step.tables]
    holders = await database.fetch(connection, "partitions_holders", tables=tables)
    who = "; ".join(f"pid {h.pid} ({h.application_name or 'unnamed'}, {h.state}, {h.seconds} s)" for h in holders)
    return f"partitions: could not {step.why} within {patience:.0f} s: locks are held by {who or 'others'}"


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None)
