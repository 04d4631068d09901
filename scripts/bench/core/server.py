"""server — the server of a run, and a new database for each cell

Owns: the embedded server under the run's directory, the migrated template, and filling a database with waiting mail.
Guarantees: every cell starts in the same state: its own copy of the template, vacuumed and analyzed, right after a
    checkpoint. The server is stopped at the end.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Final

from scripts.scratch_var import emptied
from shared.errors import PillarboxError
from shared.mail.message import new_message_id
from shared.postgres import database, migrate
from shared.postgres.embedded import embedded
from shared.postgres.embedded.postmaster import ServerFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

#: The leaves and partition ids of the shipped configuration.
LEAVES: Final = {"123": ("1", "2", "3"), "456": ("4", "5", "6")}
PARTITIONS: Final = 6
NAME: Final = "pillarbox bench"
_TEMPLATE = "bench_template"
_PORTION = 20_000  # messages written by one statement


class Server:
    """A running server and the databases created on it."""

    def __init__(self, var: Path) -> None:
        self.place = ServerFiles(var)
        self._numbers = count(1)

    async def prepare(self) -> None:
        """Create the template database of the cells."""
        async with self.session(self.place.uri()) as connection:
            await database.run_on(connection, "bench_database_new", _TEMPLATE)
        migrate.migrate(self.place.uri(_TEMPLATE), LEAVES, PARTITIONS)

    @asynccontextmanager
    async def session(self, uri: str) -> AsyncIterator[database.Connection]:
        """One connection for the block."""
        connection = await database.connect(uri, NAME)
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def cell(self, *, empty: bool = False) -> AsyncIterator[str]:
        """The URI of a database for the block, with our schema or empty."""
        name = f"bench_{next(self._numbers)}"
        async with self.session(self.place.uri()) as connection:
            await database.run_on(connection, "bench_database_new" if empty else "bench_database_copy", name)
            try:
                yield self.place.uri(name)
            finally:
                await database.run_on(connection, "bench_database_drop", name)

    async def settings(self) -> dict[str, str]:
        """The server's version and settings."""
        async with self.session(self.place.uri()) as connection:
            [row] = await database.fetch(connection, "bench_settings")
        return dict(row._asdict())


@contextmanager
def running(var: Path) -> Iterator[Server]:
    """A new server for the block under `var`, which is emptied first."""
    with emptied(var):
        embedded.ensure_running(var)
        yield Server(var)


async def fill(
    connection: database.Connection, messages: int, size: int, *, each: int = 1, wait: timedelta = timedelta(0)
) -> None:
    """Queue `messages` of `size` octets for `each` recipients, due in `wait`."""
    body = content(size)
    for begin in range(0, messages, _PORTION):
        ids = [new_message_id() for _ in range(min(_PORTION, messages - begin))]
        await database.fetch(connection, "bench_messages", ids=ids, body=body)
        await database.fetch(connection, "bench_queue", ids=ids, each=each, size=size, partitions=PARTITIONS, wait=wait)


async def settle_down(connection: database.Connection) -> None:
    """Vacuum and checkpoint, before the clock starts."""
    await database.fetch(connection, "bench_vacuum")
    await database.fetch(connection, "bench_checkpoint")


async def wal_octets(connection: database.Connection) -> int:
    """Octets of WAL the server has written."""
    [row] = await database.fetch(connection, "bench_wal")
    return int(row.octets)


def content(size: int) -> bytes:
    """An incompressible body whose lines end with CR LF."""
    lines = os.urandom(size).hex().encode()
    text = b"Subject: bench\r\n\r\n" + b"\r\n".join(lines[i : i + 76] for i in range(0, size, 76))
    return text[: size - 2] + b"\r\n"


def agree(what: str, found: database.Row, expected: dict[str, int]) -> None:
    """Refuse a figure whose ledger does not agree."""
    counted = found._asdict()
    wrong = [
        f"{name} {counted[name]}, expected {number}" for name, number in expected.items() if counted[name] != number
    ]
    if wrong:
        raise PillarboxError(f"{what}: the ledger does not agree: {'; '.join(wrong)}")
