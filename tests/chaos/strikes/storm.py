"""storm — several random faults in a row, each healed before the next

Owns: DRAWN, the possible faults; the strike `storm`; `one`, a single draw, which the soak repeats.
Guarantees: the same seed draws the same faults. Each records the mail in flight when it struck.
See: tests/chaos/cells.py, which names `storm`; tests/chaos/soak.py.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from tests.chaos.arena import Arena, Struck
from tests.chaos.strikes import around, daemons, database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: Faults that pass and leave all daemons running.
DRAWN: Final[tuple[Callable[[Arena], Awaitable[Struck]], ...]] = (
    daemons.worker,
    daemons.smtpd_child,
    daemons.sleeper,
    daemons.everything,
    database.terminate,
    database.backend,
    database.postmaster,
    database.network_cut,
    around.sink_after_dot,
    around.sink_resets,
    around.hold_release,
)


async def one(arena: Arena) -> tuple[str, Struck]:
    """Draw one fault, inject it and heal it; its name."""
    strike = arena.chance.choice(DRAWN)
    return strike.__name__, await strike(arena)


async def storm(arena: Arena) -> Struck:
    """Three faults, drawn by the seed."""
    for _ in range(3):
        await one(arena)
    return Struck(monotonic())
