"""application — what submits mail in a cell: the form of each kind

Owns: Application, several sessions that go on until they are stopped.
Guarantees: the sessions are at most `window` recipients ahead of the sink, so that a run can end soon; further only
    while they are to notice a fault (`pressing`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.chaos.accounts import Accounts
    from tests.chaos.arena import Arena

BREATH: Final = 0.03  # seconds between two tries that are refused


class Application:
    """Sessions of one kind; a kind says what a session does."""

    def __init__(self, accounts: Accounts, window: int = 300) -> None:
        self.accounts = accounts
        self._window = window
        self.open = True
        self.pressing = False
        self.sent = 0  # messages whose acceptance is known

    async def run(self, sessions: int = 6) -> None:
        """Submit until stopped."""
        async with asyncio.TaskGroup() as group:
            for _ in range(sessions):
                group.create_task(self.session())

    def stop(self) -> None:
        """Start no more messages."""
        self.open = False

    async def session(self) -> None:
        """Submit one message after another until stopped."""
        raise NotImplementedError

    async def is_ahead(self) -> bool:
        """Whether the sink is too far behind; after a breath, if it is."""
        ahead = self.accounts.outstanding > self._window and not self.pressing
        if ahead:
            await asyncio.sleep(BREATH)
        return ahead

    async def is_pending(self, arena: Arena) -> bool:
        """Whether mail is still to come into the queue after the stop."""
        return False

    async def broken(self, arena: Arena) -> list[str]:
        """The promises to this kind of application that were not kept, one line each."""
        return []
