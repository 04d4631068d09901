"""space — whether PostgreSQL's volumes have room for more mail

Owns: the figures of free space, by statvfs where the volumes are this host's and from the table `volumes` where
    `pillarbox volumes` reports them on another; and the decision to accept no more mail.
Guarantees: below `spool.minfree` no mail is accepted, and delivery, which needs room too, goes on. Mail is accepted
    again with a quarter more than that, so that the decision does not change with each message. A figure that is
    missing or old is logged (spool.space_unknown) and refuses nothing by itself: the last decision stays until other
    volumes or hosts say something else or the reports are removed (`pillarbox volumes forget`). A volume that cannot be
    looked at hides no other, and one whose mount hangs keeps one thread.
See: RFC 5321 section 4.2.2 (452), RFC 1870 section 6.1; Postfix queue_minfree; PostgreSQL manual, "Disk Full Failure".
Bugs: a volume that is not named, such as that of a tablespace made later, is not seen.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.errors import DatabaseUnavailable, NoSpace, in_words
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LOOK: Final = 1.0  # seconds between two looks at volumes of this host; a fast sender writes 100 MB in that time
_ASK: Final = 5.0  # seconds between two looks at what another host reports
_PATIENCE: Final = 5.0  # seconds for one of them
_AGAIN: Final = 1.25  # times the least


class Volume(NamedTuple):
    """Octets that unprivileged accounts may still write there, and its size."""

    path: str
    free: int
    size: int


def measure(paths: Sequence[Path]) -> list[Volume]:
    """Each of these as it is now; OSError for the first that cannot be reached."""
    return [_volume(path) for path in paths]


def measure_reachable(paths: Sequence[Path]) -> tuple[list[Volume], list[str]]:
    """Each of these that can be reached, and why the others cannot."""
    found, troubles = [], []
    for path in paths:
        try:
            found.append(_volume(path))
        except OSError as error:
            troubles.append(in_words(error))
    return found, troubles


def _volume(path: Path) -> Volume:
    stat = os.statvfs(path)
    return Volume(str(path), stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize)


class Headroom:
    """The decision that follows from the figures. Pure."""

    def __init__(self, least: int) -> None:
        """`least`: octets below which no more mail is taken."""
        self.free: int | None = None  # on the volume that has least; None: not known
        self._least = least
        self._low = False

    def measured(self, volume: Volume) -> None:
        """The volume that has least room has so much now."""
        self.free = volume.free
        if not self._low and volume.free < self._least:
            self._low = True
            events.emit("spool.space_low", volume=volume.path, free=volume.free, least=self._least)
        elif self._low and volume.free >= self._least * _AGAIN:
            self._low = False
            events.emit("spool.space_restored", volume=volume.path, free=volume.free)

    def forget(self) -> bool:
        """The reports have ended, so nothing is refused any more; returns whether it was."""
        was, self.free, self._low = self._low, None, False
        return was

    def trouble(self, size: int = 0) -> NoSpace | None:
        """Why a message of so many octets is not taken now."""
        if self._low or (self.free is not None and self.free - size < self._least):
            return NoSpace("too little space is left on PostgreSQL's volumes")
        return None


class Space:
    """Looks at the volumes now and then."""

    def __init__(self, conninfo: str, application_name: str, least: int, volumes: Sequence[Path]) -> None:
        """`volumes` of this host; without any, what others report is read."""
        self.room = Headroom(least)
        self._conninfo = conninfo
        self._application_name = application_name
        self._volumes = volumes
        self._unknown: str | None = None
        self._looks: dict[Path, asyncio.Future[Volume]] = {}  # under way; one may hang as long as its mount does

    async def run(self) -> None:
        """Look until cancelled."""
        connection: database.Connection | None = None
        try:
            while True:
                try:
                    async with asyncio.timeout(_PATIENCE):
                        if self._volumes:
                            await self._look()
                        else:
                            if connection is not None and not database.is_usable(connection):
                                await connection.close()
                            if connection is None or connection.closed:
                                connection = await database.connect(self._conninfo, self._application_name)
                            await self._ask(connection)
                except (OSError, TimeoutError, DatabaseUnavailable, *database.OUTAGE, *database.REFUSAL) as error:
                    self._lost(in_words(error), away=not self._volumes and database.is_away(error))
                    if connection is not None:
                        await connection.close()
                        connection = None
                await asyncio.sleep(_LOOK if self._volumes else _ASK)
        finally:
            if connection is not None:
                await connection.close()

    async def _look(self) -> None:
        """Look at each; those that can be reached count, whatever the others do."""
        for path in self._volumes:
            if path not in self._looks:
                self._looks[path] = asyncio.ensure_future(asyncio.to_thread(_volume, path))
        done, hanging = await asyncio.wait(self._looks.values(), timeout=_PATIENCE / 2)
        found, troubles = [], [f"{path} does not answer" for path, look in self._looks.items() if look in hanging]
        for path, look in list(self._looks.items()):
            if look in done:
                del self._looks[path]
                if isinstance(error := look.exception(), OSError):
                    troubles.append(in_words(error))
                else:
                    found.append(look.result())
        if not troubles:
            self._measured(found)
            return
        self._lost("; ".join(troubles))
        if found:
            self.room.measured(min(found, key=lambda volume: volume.free))

    async def _ask(self, connection: database.Connection) -> None:
        rows = await database.fetch(connection, "volume_figures")
        fresh = [Volume(f"{row.host}:{row.path}", row.free, row.size) for row in rows if row.fresh]
        if old := [row for row in rows if not row.fresh]:
            # The one that reports no more has perhaps left; reports of other hosts still count.
            self._lost(f"{old[0].host}:{old[0].path} was last reported {old[0].age.total_seconds():.0f} s ago")
            if fresh:
                self.room.measured(min(fresh, key=lambda volume: volume.free))
        elif fresh:
            self._measured(fresh)
        elif self.room.forget():  # else there was never a report: `pillarbox doctor` says so
            self._lost("the last report is too old, and no new one arrives")

    def _measured(self, volumes: Sequence[Volume]) -> None:
        self._unknown = None
        self.room.measured(min(volumes, key=lambda volume: volume.free))

    def _lost(self, why: str, *, away: bool = False) -> None:
        self.room.free = None
        if self._unknown is None:
            events.emit("spool.space_unknown", error=why, away=away)
        self._unknown = why
