"""watch — listens for dead letters, and prints one JSON line for each

Owns: a worker for the channel dead_message: LISTEN, catch up from the archive, read the announced rows.
Guarantees: each dead letter is printed once, in the order of announcement. A notification is a hint: after every
    (re)connection, and once a minute, the archive's rows since the last one seen are read, so that an outage only
    delays. Any login that may connect can notify anything: a payload that cannot be an id is ignored.
Raises: nothing for an outage or a server in recovery, each one line on standard error and another try;
    DatabaseUnavailable at the start.
Bugs: it does not remember across restarts what it has printed: use --since.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from operate import deadletters
from operate.deadletters import Wanted
from scripts.output import records
from shared.errors import DatabaseUnavailable, in_words, is_of_server
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

_NAME: Final = "pillarbox deadletters watch"
_CATCH_UP: Final = 60.0  # seconds
# A letter may be committed this long after the time it carries, because its transaction began earlier.
_MARGIN: Final = timedelta(minutes=5)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 15.0
_ID: Final = re.compile("[0-9]{1,19}")  # \d and str.isdigit know hundreds of digits more, which int does not
_HIGHEST_ID: Final = (1 << 63) - 1


class Watcher:
    """The dead letters printed so far, and the point from which the archive is still to be read."""

    def __init__(self, since: datetime | None, tell: Callable[[str], object]) -> None:
        """since: None for the time at which it first listens, by the server's clock."""
        self._begin = since
        self._latest = since or datetime.min.replace(tzinfo=UTC)
        self._tell = tell
        self._printed: dict[tuple[int, UUID], datetime] = {}  # by message too: a standby that lagged gives ids again

    async def follow(self, connection: database.Connection) -> None:
        """Tell until the connection ends."""
        await database.fetch(connection, "deadletters_listen")
        if self._begin is None:
            [row] = await database.fetch(connection, "deadletters_begin")
            self._begin = self._latest = row.now
        begin: datetime = self._begin
        while True:
            await self._look(connection, max(begin, self._latest - _MARGIN), None)
            deadline = asyncio.get_running_loop().time() + _CATCH_UP
            while (left := deadline - asyncio.get_running_loop().time()) > 0:
                # Gathered first: the connection cannot run a query while it listens.
                heard = {n.payload async for n in connection.notifies(timeout=left, stop_after=1)}
                heard |= {n.payload async for n in connection.notifies(timeout=0)}
                if ids := announced(heard):
                    # Any login can announce letters that were printed long ago.
                    await self._look(connection, self._latest - _MARGIN, ids)

    async def _look(self, connection: database.Connection, since: datetime, ids: list[int] | None) -> None:
        """Print these, or all, that are new."""
        for letter in reversed(await deadletters.listed(connection, Wanted(since=since), ids=ids)):
            if (letter.id, letter.message) not in self._printed:
                self._tell(records.line(records.fields(letter)))
                self._printed[letter.id, letter.message] = letter.finished
                self._latest = max(self._latest, letter.finished)
        oldest = self._latest - 2 * _MARGIN
        self._printed = {key: finished for key, finished in self._printed.items() if finished >= oldest}


async def run(conninfo: str, since: datetime | None, tell: Callable[[str], object]) -> None:
    """Tell each dead letter from `since` (None: now) as one line of JSON, until cancelled."""
    watcher = Watcher(since, tell)
    pause = _FIRST_PAUSE
    connection: database.Connection | None = await database.connect(conninfo, _NAME)
    while True:
        try:
            connection = connection or await database.connect(conninfo, _NAME)
            pause = _FIRST_PAUSE
            try:
                await watcher.follow(connection)
            finally:
                await connection.close()
                connection = None
        except (*database.OUTAGE, *database.REFUSAL, DatabaseUnavailable) as error:
            passes = isinstance(error, (*database.OUTAGE, DatabaseUnavailable)) or is_of_server(error)
            if not passes:  # a standby refuses LISTEN until it is promoted; a right that is missing stays so
                raise
            wait = pause * random.uniform(0.5, 1.5)
            sys.stderr.write(f"pillarbox: {in_words(error)}; trying again in {wait:.1f} s\n")
            await asyncio.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)


def announced(payloads: Iterable[str]) -> list[int]:
    """The ids of the archive among these payloads: ASCII digits, within a bigint."""
    ids = {int(payload) for payload in payloads if _ID.fullmatch(payload)}
    return sorted(id_ for id_ in ids if id_ <= _HIGHEST_ID)
