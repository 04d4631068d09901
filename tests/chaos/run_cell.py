"""run_cell — runs one cell from the first message to the final accounts

Owns: the order set up, load, strike, heal, drain, account; Outcome, and the promises it can break.
Guarantees: every recipient is accounted for: the run ends when the queue is empty or no longer changes. Only the limits
    that detect a broken system wait for time to pass.
See: tests/chaos/cells.py; tests/chaos/accounts.py.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, LiteralString

from tests.chaos.arena import BOX, arena
from tests.chaos.strikes import around, daemons, database, storm, throughout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from tests.chaos.accounts import Figures
    from tests.chaos.arena import Arena, Struck
    from tests.chaos.cells import Cell
    from tests.fixtures.servers.killable import Killable

_ENOUGH: Final = 60  # recipients accepted and delivered after a fault, before the load ends
_DRAIN: Final = 12.0  # after this many seconds and two leases without an arrival, the remaining mail counts as lost

_STRIKES: Final = (daemons, database, around, storm, throughout)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a cell. bound: arrivals in flight when faults struck, by the sinks and the claims;
    unexplained: duplicates of other mail. uncertain: attempts that the history marks so, at least as many.
    more: promises to the cell's own application that were not kept.
    Times in seconds from the fault's end: to the first new acceptance, to the first new delivery, until all mail
    accepted before had arrived.
    """

    cell: Cell
    seed: int
    figures: Figures
    bound: int
    unexplained: int
    uncertain: int
    left: int
    accepts: float
    delivers: float
    clears: float
    took: float
    faults: tuple[str, ...]
    more: tuple[str, ...]

    @property
    def recovery(self) -> float:
        """The time that the cell's limit applies to."""
        return max(self.accepts, self.delivers) if self.cell.recovers == "soon" else self.clears

    def broken(self) -> list[str]:
        """The promises that were not kept, one line each."""
        f, limit = self.figures, self.cell.limit
        found = {
            f"{f.lost} of {f.accepted} accepted are lost": f.lost > 0,
            f"{self.left} are still queued": self.left > 0,
            f"{f.altered} are altered": f.altered > 0,
            f"{f.duplicated} duplicates, {self.bound} were in flight": f.duplicated > self.bound,
            f"{self.unexplained} duplicates of what was not in flight": self.unexplained > 0,
            f"{f.duplicated} duplicates, {self.uncertain} attempts uncertain": f.duplicated > self.uncertain,
            f"recovered after {self.recovery:.2f} s, limit {limit:.1f} s": self.recovery > limit,
        }
        return [what for what, broken in found.items() if broken] + [*self.faults, *self.more]


async def run_cell(
    cell: Cell, server: Killable, folder: Path, seed: int = 1, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run a cell on this server; files go to the new `folder`; `environment` is added to that of its daemons."""
    began = monotonic()
    async with arena(cell, server, folder, seed, environment) as arena_:
        if cell.strike == "migration":
            await around.prepare(arena_)
        await arena_.start("greylist" if cell.strike == "late_deferral" else BOX)
        submitting = asyncio.create_task(arena_.load.run())
        try:
            await arena_.until_arrived(30)
            struck = await strike_of(cell)(arena_)
            await arena_.until_accepted(_ENOUGH)
        finally:
            arena_.load.stop()
            await submitting
        await _drained(arena_)
        return await _account(arena_, struck, began)


def strike_of(cell: Cell) -> Callable[[Arena], Awaitable[Struck]]:
    """The function that a cell names."""
    [found] = [getattr(module, cell.strike) for module in _STRIKES if hasattr(module, cell.strike)]
    return found  # type: ignore[no-any-return]


async def _drained(arena_: Arena) -> None:
    """Wait until the queue is empty or has not changed for long."""
    seen, moved = -1, monotonic()
    waiting: LiteralString = "SELECT count(*) FROM queue WHERE status = 'DELIVER'"
    while await arena_.load.is_pending(arena_) or await arena_.value(waiting):
        if arena_.accounts.arrived != seen:
            seen, moved = arena_.accounts.arrived, monotonic()
        if monotonic() - moved > _DRAIN + 2 * arena_.cell.lease:
            return
        await asyncio.sleep(0.05)


async def _account(arena_: Arena, struck: Struck, began: float) -> Outcome:
    accounts, cell = arena_.accounts, arena_.cell
    arena_.unanswered()
    forgiven = re.compile(cell.forgives or r"(?!)")
    accepts, delivers = accounts.first_after(struck.ended)
    more = await arena_.load.broken(arena_)
    if arena_.listener is not None:
        more += await arena_.listener.broken(arena_)
    return Outcome(
        cell=cell,
        seed=arena_.seed,
        figures=accounts.figures(),
        bound=len(accounts.in_flight),
        unexplained=len(accounts.unexplained()),
        uncertain=await arena_.value("SELECT count(*) FROM attempts WHERE uncertain"),
        left=await arena_.value("SELECT count(*) FROM queue"),
        accepts=accepts,
        delivers=delivers,
        clears=accounts.cleared(struck.ended),
        took=monotonic() - began,
        faults=tuple(line for line in arena_.system.faults() if not forgiven.search(line)),
        more=tuple(more),
    )
