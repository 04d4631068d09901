"""keys — finds the principal of an API key, or of a person's token

Owns: the comparison with a key's digest; the count of failures by address; the note of its last use; which principal a
    token that is good stands for.
Guarantees: a key is in no log, no error and no table, only its prefix is; digests are compared in constant time, and an
    unknown prefix costs the same. An address that fails too often gets 429, but a key that was valid here before is
    always checked: others at its address cannot lock it out. A key that is revoked, or whose principal is disabled, is
    refused 5 seconds later at the latest; so is a token of a principal that is disabled.
See: httpd/access/tokens.py for tokens; sql/schema/21_key.sql; RFC 6750 (bearer tokens).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections import OrderedDict
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final

from httpd.access.caller import Caller
from httpd.access.tokens import ProviderAway, TokenRefused, Tokens, is_token
from httpd.problems import Problem, unavailable
from operate import keys
from shared.masking import show
from shared.observe import events
from shared.postgres import database
from smtpd.envelope import places
from smtpd.envelope.client import User
from smtpd.rates.counters import Limit

if TYPE_CHECKING:
    from shared.config.httpd.oidc import HttpdOidc
    from shared.config.httpd.settings import HttpdRates
    from smtpd.rates.limits import RateCounts

_BEARER: Final = re.compile(r"bearer +(\S+) *", re.IGNORECASE)
_FRESH: Final = 5.0  # seconds for which a key that was found is not asked for again
_MOST: Final = 10_000  # keys remembered
_REMEMBERED: Final = 86_400.0  # seconds for which all processes know what was valid in one of them
_NOTES: Final = 10.0  # seconds between two notes of what was used
_NO_DIGEST: Final = bytes(32)
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="pillarbox"'}  # RFC 6750 section 3


class Keys:
    """The keys that requests show."""

    def __init__(
        self, pool: database.Pool, settings: HttpdRates, counts: RateCounts, oidc: HttpdOidc | None = None
    ) -> None:
        """`counts`: of all processes of this httpd."""
        self._pool = pool
        self._found: OrderedDict[bytes, tuple[Caller, float, datetime | None]] = OrderedDict()
        self._counts = counts
        self._used: set[str] = set()
        self.tokens: Tokens | None = None
        self.configure(settings, oidc)

    def configure(self, settings: HttpdRates, oidc: HttpdOidc | None = None) -> None:
        """Count by these settings from now on, and take the tokens of this provider."""
        self._settings = settings
        self._window = settings.window.total_seconds()
        if oidc != (self.tokens.settings if self.tokens else None):
            self._found.clear()
            self.tokens = None if oidc is None else Tokens(oidc)

    async def caller(self, authorization: str | None, address: str) -> Caller:
        """Who shows this header Authorization; Problem 401 or 429."""
        given = _BEARER.fullmatch(authorization or "")
        secret = keys.read(given[1]) if given else None
        token = given[1] if given and secret is None and self.tokens and is_token(given[1]) else None
        if secret is None and token is None:
            what = "API key or token" if self.tokens else "API key"
            why = f"no {what} was shown" if authorization is None else f"this is not an {what}"
            raise await self._refused(address, None, f"{why}; allowed: Authorization: Bearer pb_…")
        mark = secret.digest if secret else hashlib.sha256((token or "").encode()).digest()
        known = self._found.get(mark)
        if known is None:
            await self._refuse_flood(address, mark)
        if known is None or monotonic() > known[1] or _has_passed(known[2]):
            if secret:
                known = await self._ask(secret.prefix, mark, address)
            else:
                known = await self._ask_provider(token or "", mark, address)
        caller = known[0]
        if secret:
            self._used.add(caller.prefix)
        await self._limit(caller)
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
            raise await self._refused(address, None, "this API key is not known")
        [row] = rows
        if row.revoked is not None or _has_passed(row.expires) or row.disabled:
            self._found.pop(mark, None)
            why = "is revoked" if row.revoked else "has expired" if _has_passed(row.expires) else "is disabled"
            raise await self._refused(address, prefix, f"this API key {why}")
        caller = Caller(prefix, row.principal, frozenset(row.scopes), frozenset(row.roles), _user(row), self._pool)
        return await self._remember(mark, caller, row.expires)

    async def _ask_provider(self, token: str, mark: bytes, address: str) -> tuple[Caller, float, datetime | None]:
        """The provider's word, and PostgreSQL's about the principal that it names."""
        assert self.tokens is not None  # noqa: S101 - as `caller` says
        try:
            named = await self.tokens.named(token)
        except TokenRefused as refused:
            self._found.pop(mark, None)
            raise await self._refused(address, None, str(refused)) from None
        except ProviderAway:
            raise unavailable(f"the provider of tokens does not answer: {self.tokens.settings.issuer}") from None
        async with self._pool.connection() as connection:
            rows = await database.fetch(connection, "principal_find", principal=named.principal)
        row = rows[0] if rows else None
        if row is None or row.disabled or row.kind != "person":
            self._found.pop(mark, None)
            why = "is disabled" if row and row.disabled else "is not a principal of kind person"
            raise await self._refused(address, None, f"{show(named.principal)}, whom the token names, {why}")
        prefix = f"oidc:{named.principal}"
        caller = Caller(prefix, row.principal, frozenset(keys.SCOPES), frozenset(row.roles), _user(row), self._pool)
        return await self._remember(mark, caller, named.expires)

    async def _remember(
        self, mark: bytes, caller: Caller, expires: datetime | None
    ) -> tuple[Caller, float, datetime | None]:
        if mark not in self._found:
            await self._counts.hit([_was_valid(mark)], 1)
        self._found[mark] = caller, monotonic() + _FRESH, expires
        self._found.move_to_end(mark)
        if len(self._found) > _MOST:
            self._found.popitem(last=False)
        return self._found[mark]

    async def _refuse_flood(self, address: str, mark: bytes) -> None:
        """429 where too many failures came from this address, before PostgreSQL is asked."""
        wait = await self._count(f"failure/{places.host(address)}", self._settings.failures, 0)
        if wait and not await self._counts.hit([_was_valid(mark)], 0):
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "too many requests without a valid key", retry_after=wait)

    async def _refused(self, address: str, prefix: str | None, why: str) -> Problem:
        wait = await self._count(f"failure/{places.host(address)}", self._settings.failures, 1)
        events.emit("key.refused", client=address, key=prefix, reason=why)
        if wait:
            return Problem(HTTPStatus.TOO_MANY_REQUESTS, "too many requests without a valid key", retry_after=wait)
        return Problem(HTTPStatus.UNAUTHORIZED, why, headers=_CHALLENGE)

    async def _limit(self, caller: Caller) -> None:
        wait = await self._count(f"request/{caller.prefix}", self._settings.requests, 1)
        if wait:
            events.emit("rates.exceeded", client=caller.prefix, limit="request", seconds=wait)
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "too many requests with this key", retry_after=wait)

    async def _count(self, key: str, most: int, hits: int) -> float:
        """Seconds to wait; 0 where it is allowed."""
        return await self._counts.hit([Limit(key, most, self._window)], hits) if most else 0.0


def _was_valid(mark: bytes) -> Limit:
    """A hit of it says that a process of this httpd has found what is shown to be valid."""
    return Limit(f"auth/valid/{mark.hex()}", 1, _REMEMBERED)


def _user(row: database.Row) -> User:
    """A principal as one that submits mail."""
    return User(
        name=row.principal,
        senders=tuple(row.senders),
        messages=row.messages,
        recipients=row.recipients,
        partition=row.partitionid,
        transport=row.transportid,
        hold=row.quarantineid,
    )


def _has_passed(at: datetime | None) -> bool:
    return at is not None and at <= datetime.now(UTC)
