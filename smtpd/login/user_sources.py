"""user_sources — users from smtpd.yaml, from a file that may change, from the table pillarbox.users

Owns: finding a user by name in each of the three, and the pool of connections for the table.
Guarantees: a file that changed is read as a whole before the next answer; one that cannot be used is one event, and the
    old users stay. A table that does not answer in time is UsersUnavailable, never "no such user".
Raises: UsersUnavailable; ConfigError from `prepare` alone, which is called at start.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from shared.config.smtpd.users import UserEntry, load_users
from shared.errors import ConfigError, DatabaseUnavailable
from shared.observe import events
from shared.postgres import database
from shared.security.saslprep import NotPrepared, prepared
from shared.security.scram_keys import ScramKeys
from smtpd.envelope.client import User
from smtpd.login.passwords import cost_of
from smtpd.login.users import Costs, UsersUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from smtpd.login.users import Users

_CONNECTIONS: Final = 2
_FRESH: Final = 300.0  # seconds
_PATIENCE: Final = 5.0  # seconds for a login's query; a client waits for minutes (RFC 5321 section 4.5.3.2)


class WrittenUsers:
    """The users of smtpd.yaml, each with an argon2 hash and nothing else."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._users = {_spelled(name): User(_spelled(name), argon2=known) for name, known in hashes.items()}

    async def find(self, name: str) -> User | None:
        """The user of this name."""
        return self._users.get(name)

    async def costs(self) -> Costs:
        """Of their hashes."""
        return _costs(self._users.values())


class FileUsers:
    """The users of a file; its time, size and number are looked at before each answer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._users: dict[str, User] = {}
        self._costs = Costs()
        self._seen: tuple[int, int, int] | None = None
        self._reading = asyncio.Lock()

    def prepare(self) -> None:
        """Read the file for the first time. Raises ConfigError."""
        seen = self._stamp()
        if seen is None:
            raise ConfigError(
                f"authentication.file: {self._path}: cannot be read; allowed: a file of users, see `pillarbox user`"
            )
        self._take(read_file(self._path))
        self._seen = seen

    async def find(self, name: str) -> User | None:
        """The user of this name, as the file has it now."""
        if self._stamp() != self._seen:
            async with self._reading:
                await self._read_again()
        return self._users.get(name)

    async def costs(self) -> Costs:
        """Of the users found last."""
        return self._costs

    def _take(self, users: dict[str, User]) -> None:
        self._users = users
        self._costs = _costs(users.values())

    async def _read_again(self) -> None:
        seen = self._stamp()
        if seen == self._seen:
            return
        try:
            self._take(await asyncio.to_thread(read_file, self._path))
        except ConfigError as error:
            events.emit("users.refused", file=self._path, error=error)
        else:
            events.emit("users.read", file=self._path, users=len(self._users))
        self._seen = seen  # also of what cannot be used: one event for one change

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class TableUsers:
    """The users of the table, by a small pool of its own: logins never wait for commits."""

    def __init__(self, conninfo: str, clock: Callable[[], float] = monotonic) -> None:
        self._conninfo = conninfo
        self._clock = clock
        self._costs = Costs()
        self._stale = -_FRESH  # when to ask for them again
        self._pool: database.Pool | None = None
        self._opening = asyncio.Lock()

    async def find(self, name: str) -> User | None:
        """The user of this name. Raises UsersUnavailable."""
        rows = await self._fetch("user_find", name=name)
        return from_row(rows[0]) if rows else None

    async def costs(self) -> Costs:
        """As they were a short while ago: all rows are read for it. Raises UsersUnavailable."""
        if self._clock() >= self._stale:
            rows = await self._fetch("user_costs")
            iterations = frozenset(row.iterations for row in rows if row.iterations is not None)
            self._costs = Costs(iterations, frozenset(row.hash for row in rows if row.hash is not None))
            self._stale = self._clock() + _FRESH
        return self._costs

    async def close(self) -> None:
        """Give the connections back."""
        if self._pool is not None:
            await self._pool.close()

    async def _fetch(self, query: str, **values: str) -> Sequence[Any]:
        try:
            async with asyncio.timeout(_PATIENCE):
                pool = await self._opened()
                async with pool.connection() as connection:
                    return await database.fetch(connection, query, **values)
        except (*database.OUTAGE, *database.REFUSAL, DatabaseUnavailable, TimeoutError) as error:
            events.emit("users.unavailable", error=database.reason(error), away=database.is_away(error))
            raise UsersUnavailable from None

    async def _opened(self) -> database.Pool:
        async with self._opening:
            if self._pool is None:
                self._pool = await database.open_pool(self._conninfo, "pillarbox smtpd users", _CONNECTIONS)
            return self._pool


class Several:
    """Sources asked one after the other; the first that knows the name answers."""

    def __init__(self, sources: Sequence[Users]) -> None:
        self._sources = sources

    async def find(self, name: str) -> User | None:
        """The user of this name."""
        for source in self._sources:
            user = await source.find(name)
            if user is not None:
                return user
        return None

    async def costs(self) -> Costs:
        """Of all of them."""
        of_each = [await source.costs() for source in self._sources]
        return Costs(
            frozenset[int]().union(*(each.iterations for each in of_each)),
            frozenset[str]().union(*(each.hashes for each in of_each)),
        )


def read_file(path: Path) -> dict[str, User]:
    """The users of a file by name. Raises ConfigError."""
    return {name: from_entry(name, entry) for name, entry in load_users(path).items()}


def _costs(users: Iterable[User]) -> Costs:
    known = tuple(users)
    return Costs(
        frozenset(user.scram.iterations for user in known if user.scram is not None),
        frozenset(cost_of(user.argon2) for user in known if user.argon2 is not None),
    )


def from_entry(name: str, entry: UserEntry) -> User:
    """A user as the file has it."""
    return _user(name, entry, entry.partition, entry.transport, entry.hold)


def from_row(row: Any) -> User:
    """A user as the table has it."""
    return _user(row.name, row, row.partitionid, row.transportid, row.quarantineid)


def _user(name: str, found: Any, partition: str | None, transport: str | None, hold: str | None) -> User:
    """A name that both have is in `found`."""
    return User(
        name,
        argon2=found.argon2,
        scram=None if found.scram is None else ScramKeys.read(found.scram),
        disabled=found.disabled,
        senders=tuple(found.senders),
        messages=found.messages,
        recipients=found.recipients,
        partition=partition,
        transport=transport,
        hold=hold,
    )


def _spelled(name: str) -> str:
    """A name as logins spell it; one that SASLprep refuses stays, and cannot be used to log in."""
    try:
        return prepared(name)
    except NotPrepared:
        return name
