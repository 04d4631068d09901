"""keys — finds the principal of an API key

Owns: the comparison with a key's digest; the count of failures by address; the note of its last use.
Guarantees: a key is in no log, no error and no table, only its prefix is; digests are compared in constant time, and an
    unknown prefix costs the same. Who fails too often gets 429, but a key that was valid here before is always looked
    at: whoever shares an address cannot lock it out. A key that is revoked, or whose principal is disabled, is refused
    5 seconds later at the latest.
See: sql/schema/21_key.sql; RFC 6750 (bearer tokens).
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections import OrderedDict
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final

from httpd.access.caller import Caller
from httpd.problems import Problem
from operate import keys
from shared.observe import events
from shared.postgres import database
from smtpd.envelope import places
from smtpd.envelope.client import User
from smtpd.rates.counters import HitCounter, Limit

if TYPE_CHECKING:
    from shared.config.httpd.settings import HttpdRates

_BEARER: Final = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_FRESH: Final = 5.0  # seconds for which a key that was found is not asked for again
_MOST: Final = 10_000  # keys remembered
_NOTES: Final = 10.0  # seconds between two notes of what was used
_NO_DIGEST: Final = bytes(32)
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="pillarbox"'}  # RFC 6750 section 3


class Keys:
    """The keys that requests show."""

    def __init__(self, pool: database.Pool, settings: HttpdRates) -> None:
        self._pool = pool
        self._found: OrderedDict[bytes, tuple[Caller, float, datetime | None]] = OrderedDict()
        self._counter = HitCounter()
        self._used: set[str] = set()
        self.configure(settings)

    def configure(self, settings: HttpdRates) -> None:
        """Count by these settings from now on."""
        self._settings = settings
        self._window = settings.window.total_seconds()

    async def caller(self, authorization: str | None, address: str) -> Caller:
        """Who shows this header Authorization; Problem 401 or 429."""
        given = _BEARER.fullmatch(authorization or "")
        secret = keys.read(given[1]) if given else None
        if secret is None:
            why = "no API key was shown" if authorization is None else "this is not an API key"
            raise self._refused(address, None, f"{why}; allowed: Authorization: Bearer pb_…")
        mark = secret.digest
        known = self._found.get(mark)
        if known is None:
            self._refuse_flood(address)
        if known is None or monotonic() > known[1] or _has_passed(known[2]):
            known = await self._ask(secret.prefix, mark, address)
        caller = known[0]
        self._used.add(caller.prefix)
        self._limit(caller)
        return caller

    async def run(self) -> None:
        """Note what was used, every few seconds."""
        while True:
            await asyncio.sleep(_NOTES)
            try:
                await self.noted()
            except Exception as error:  # noqa: BLE001 - a note is not worth the daemon; it is made again
                events.emit("request.unavailable", error=error, away=database.is_away(error))

    async def noted(self) -> None:
        """Note what was used since the last time."""
        if self._used:
            used, self._used = self._used, set()
            async with self._pool.connection() as connection:
                await database.fetch(connection, "keys_used", prefixes=sorted(used))

    async def _ask(self, prefix: str, mark: bytes, address: str) -> tuple[Caller, float, datetime | None]:
        """PostgreSQL's answer."""
        async with self._pool.connection() as connection:
            rows = await database.fetch(connection, "key_find", prefix=prefix)
        right = hmac.compare_digest(mark, bytes(rows[0].digest) if rows else _NO_DIGEST)
        if not right or not rows:
            raise self._refused(address, None, "this API key is not known")
        [row] = rows
        if row.revoked is not None or _has_passed(row.expires) or row.disabled:
            self._found.pop(mark, None)
            why = "is revoked" if row.revoked else "has expired" if _has_passed(row.expires) else "is disabled"
            raise self._refused(address, prefix, f"this API key {why}")
        user = User(
            name=row.principal,
            senders=tuple(row.senders),
            messages=row.messages,
            recipients=row.recipients,
            partition=row.partitionid,
            transport=row.transportid,
            hold=row.quarantineid,
        )
        caller = Caller(prefix, row.principal, frozenset(row.scopes), frozenset(row.roles), user, self._pool)
        self._found[mark] = caller, monotonic() + _FRESH, row.expires
        self._found.move_to_end(mark)
        if len(self._found) > _MOST:
            self._found.popitem(last=False)
        return self._found[mark]

    def _refuse_flood(self, address: str) -> None:
        """429 where too many failures came from this address, before anything is asked."""
        wait = self._count(f"failure/{places.host(address)}", self._settings.failures, 0)
        if wait:
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "too many requests without a valid key", retry_after=wait)

    def _refused(self, address: str, prefix: str | None, why: str) -> Problem:
        wait = self._count(f"failure/{places.host(address)}", self._settings.failures, 1)
        events.emit("key.refused", client=address, key=prefix, reason=why)
        if wait:
            return Problem(HTTPStatus.TOO_MANY_REQUESTS, "too many requests without a valid key", retry_after=wait)
        return Problem(HTTPStatus.UNAUTHORIZED, why, headers=_CHALLENGE)

    def _limit(self, caller: Caller) -> None:
        wait = self._count(f"request/{caller.prefix}", self._settings.requests, 1)
        if wait:
            events.emit("rates.exceeded", client=caller.prefix, limit="request", seconds=wait)
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "too many requests with this key", retry_after=wait)

    def _count(self, key: str, most: int, hits: int) -> float:
        """Seconds to wait; 0 where it is allowed."""
        return self._counter.hit([Limit(key, most, self._window)], hits, monotonic()) if most else 0.0


def _has_passed(at: datetime | None) -> bool:
    return at is not None and at <= datetime.now(UTC)
