"""failures — the counts of failed logins, and their consequences

Owns: the keys that a failed login counts against, growing delays, and bans.
Guarantees: a user cannot be locked out from elsewhere: a name is banned only for the network its failures came from,
    and its failures from everywhere only slow down further failures. Names that do not exist are counted as others are,
    so that a ban reveals nothing. A login that succeeds clears no failure: the owner of one account could otherwise
    guess the passwords of others for ever. A proof is counted before it is checked, and the count is taken back when it
    was right: of many at the same time no more are checked than may still fail, and one more in each process. Memory is
    bounded, however long the names are: the oldest are forgotten first.
See: smtpd/rates/limits.py, which counts for all processes of a host; jail.conf(5) of fail2ban and Stalwart's
    auto-ban for the idea; Postfix smtpd_client_auth_rate_limit also counts logins that succeed, and has no bans.
Bugs: the delay of a failure is counted by each process alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakValueDictionary

from smtpd.envelope import places
from smtpd.rates.counters import Hits, Limit, short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.config.fields import Network
    from shared.config.smtpd.authentication import Failures as FailuresSettings

_MOST_KEYS: Final = 100_000
_SITE: Final = (24, 56)  # bits of IPv4 and IPv6: how far the ban of a name reaches


class FailureCounts(Protocol):
    """The part of smtpd.rates.limits.Rates that is used here."""

    async def count(self, key: str, most: int, window: float, n: int = 1) -> float:
        """Count n hits against `most` within `window` seconds (n=0 asks, n=-1 gives back): seconds to wait, or 0."""


class LocalFailureCounts:
    """Counts of this process alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hits = Hits()

    async def count(self, key: str, most: int, window: float, n: int = 1) -> float:
        """As in Counts."""
        return self._hits.hit([Limit(key, most, window)], n, self._clock())


class Banned(Exception):
    """The client that is about to prove something has failed too often."""


class _Turn:
    """Those of this process whose proof counts against one key."""

    __slots__ = ("__weakref__", "ended", "lock", "proofs")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # held by the login that waits for others to end: one at a time, in order of arrival
        self.ended = asyncio.Event()
        self.proofs = 0


@dataclass(slots=True)
class Attempt:
    """A proof that is not checked yet."""

    address: str
    name: str
    counted: list[tuple[str, int, float]] = field(default_factory=list)  # keys, each with its limit
    over: list[str] = field(default_factory=list)  # keys whose failures are used up: this one brings the ban
    turns: list[_Turn] = field(default_factory=list)


class Failures:
    """Failed logins; `clock` is in seconds and never goes back."""

    def __init__(
        self,
        settings: FailuresSettings,
        trusted: Sequence[Network] = (),
        counts: FailureCounts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`trusted`: the networks that are not banned where the settings name none."""
        self._clock = clock
        self._counts = counts or LocalFailureCounts(clock)
        self._lately: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
        self.configure(settings, trusted)

    def configure(self, settings: FailuresSettings, trusted: Sequence[Network]) -> None:
        """Use these settings from now on; what was counted stays counted."""
        self._ban = settings.ban
        self._within = settings.within.total_seconds()
        self._bantime = settings.bantime.total_seconds()
        self._delay = settings.delay.total_seconds()
        self._maxdelay = settings.maxdelay.total_seconds()
        self._trusted = trusted if settings.trusted is None else settings.trusted

    async def address_banned(self, address: str) -> bool:
        """Whether logins from this IP address are refused for now."""
        return self._may_ban(address) and await self._banned(_address_key(address))

    async def name_banned(self, name: str, address: str) -> bool:
        """Whether logins by this name are refused for now where this IP address is."""
        return self._may_ban(address) and await self._banned(_name_key(name, address))

    async def begin(self, address: str, name: str) -> Attempt:
        """A client is about to prove to be `name` ("" if none was given); `right` or `wrong` must follow.

        Waits while the proofs others have under way could use up all failures that are left. Raises Banned.
        """
        attempt = Attempt(address, name)
        if self._may_ban(address):
            try:
                # The order keeps two attempts from waiting for each other: the one with a name's turn never waits.
                for key in [_address_key(address), *([_name_key(name, address)] if name else [])]:
                    await self._take(attempt, key)
            except BaseException:
                await self.right(attempt)
                raise
        return attempt

    async def right(self, attempt: Attempt) -> None:
        """The proof was right, or could not be looked at for reasons of ours: it was no failure."""
        try:
            for counted in attempt.counted:
                await self._counts.count(*counted, -1)
        finally:
            _end(attempt)

    async def wrong(self, attempt: Attempt) -> tuple[float, bool]:
        """The proof was wrong: seconds its reply waits, and whether it brought a ban."""
        try:
            for key in attempt.over:  # A ban is a limit of its own: once within bantime.
                await self._counts.count(f"auth/ban/{key}", 1, self._bantime)
        finally:
            _end(attempt)
        return self._delayed(attempt.address, attempt.name), bool(attempt.over)

    async def failed(self, address: str, name: str) -> tuple[float, bool]:
        """Count what failed before it came to a proof, as `wrong` does."""
        try:
            return await self.wrong(await self.begin(address, name))
        except Banned:
            return self._delayed(address, name), False

    async def _take(self, attempt: Attempt, key: str) -> None:
        """Count an attempt against a key."""
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = _Turn()
        async with turn.lock:
            while True:
                if await self._banned(key):
                    raise Banned
                if not self._ban:
                    return
                turn.ended.clear()
                limit = f"auth/failures/{key}", self._ban, self._within
                over = await self._counts.count(*limit) > 0
                if not (over and turn.proofs):
                    break
                await turn.ended.wait()
            turn.proofs += 1
            attempt.turns.append(turn)
            if over:
                attempt.over.append(key)
            else:
                attempt.counted.append(limit)

    async def _banned(self, key: str) -> bool:
        return await self._counts.count(f"auth/ban/{key}", 1, self._bantime, 0) > 0

    def _may_ban(self, address: str) -> bool:
        return self._ban > 0 and not self._is_trusted(address)

    def _delayed(self, address: str, name: str) -> float:
        """Seconds for one more failure."""
        delay = self._lengthen(_address_key(address))
        return max(delay, self._lengthen(f"name/{short(name)}")) if name else delay

    def _lengthen(self, key: str) -> float:
        """Seconds for one more failure of this key: twice those of the last, unless that is long ago."""
        now = self._clock()
        failures, last = self._lately.pop(key, (0, now))
        failures = 1 if now - last > self._within else failures + 1
        self._lately[key] = failures, now
        if len(self._lately) > _MOST_KEYS:
            self._lately.popitem(last=False)
        return min(self._delay * 2.0 ** min(failures - 1, 30), self._maxdelay)

    def _is_trusted(self, address: str) -> bool:
        parsed = places.parsed(address)
        return parsed is not None and any(parsed in network for network in self._trusted)


def _end(attempt: Attempt) -> None:
    """Let those go on that wait for this one."""
    for turn in attempt.turns:
        turn.proofs -= 1
        turn.ended.set()
    attempt.turns.clear()


def _address_key(address: str) -> str:
    return f"address/{places.host(address)}"


def _name_key(name: str, address: str) -> str:
    """A name and the network it is said in."""
    return f"name/{places.network(address, *_SITE)}/{short(name)}"
