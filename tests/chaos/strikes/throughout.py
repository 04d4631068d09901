"""throughout — kills again and again, while applications send ten thousand messages

Owns: the strike `throughout`.
Guarantees: what applications send to (httpd, a collector), a worker and PostgreSQL are killed in turn, each after the
    one before was healed, until the sends are accepted. Each records the mail in flight when it struck.
See: tests/chaos/cells.py, which names it.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle
from time import monotonic
from typing import Final

from tests.chaos.arena import Arena, Struck
from tests.chaos.strikes import daemons, database
from tests.fixtures.waiting import eventually

_SENDS: Final = 10_000
_APART: Final = 400  # sends from one fault to the next
_LIMIT: Final = 90.0  # seconds for these


async def throughout(arena: Arena) -> Struck:
    """A kill after every 400 sends, 25 in all."""
    strikes = cycle((_front, daemons.worker, database.postmaster))
    for goal, strike in zip(range(_APART, _SENDS + 1, _APART), strikes, strict=False):
        await eventually(partial(_sent, arena, goal), f"{goal} sends are accepted", limit=_LIMIT)
        await strike(arena)
    return Struck(monotonic())


def _sent(arena: Arena, goal: int) -> bool:
    return arena.load.sent >= goal


async def _front(arena: Arena) -> Struck:
    """Kill -9 of a daemon that applications send to."""
    victim = arena.chance.choice(arena.fronts)
    await victim.kill()
    await victim.start()
    return Struck(monotonic())
