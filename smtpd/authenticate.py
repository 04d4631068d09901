"""authenticate — AUTH PLAIN and LOGIN against argon2 hashes

Owns: who may say who they are; the only importer of argon2 among the daemons.
Called by: aiosmtpd (auth_PLAIN, auth_LOGIN by name), through smtpd.session.Hooks, which inherits these.
Guarantees: only under TLS (aiosmtpd refuses AUTH before it with 538). An unknown user costs the same work as a wrong
    password, and is answered the same. Hashing runs beside the event loop, so a login delays nobody.
See: RFC 4954; RFC 4616 (PLAIN); argon2: RFC 9106.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as Base64Error
from functools import cache
from typing import TYPE_CHECKING

from aiosmtpd.smtp import AuthResult, LoginPassword
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smtpd.protocol import Connection

_PLAIN_PARTS = 3
_REFUSED = AuthResult(success=False, handled=False, message="535 5.7.8 Authentication credentials invalid")
# The client gave up or answered what cannot be read, and challenge_auth has told it 501 already (RFC 4954 section 4).
_ABANDONED = AuthResult(success=False, handled=True)
_HASHER = PasswordHasher()


@cache
def _nobody() -> str:
    """A hash no password of a user is checked against: what an unknown user costs. Made at the first need."""
    return _HASHER.hash("nobody has this password")


class Authenticator:
    """The AUTH mechanisms for a fixed table of user → argon2 hash."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    @property
    def has_users(self) -> bool:
        """Whether anybody could log in; without users AUTH is not offered."""
        return bool(self._users)

    async def auth_PLAIN(self, server: Connection, args: list[str]) -> AuthResult:
        """RFC 4616: one response `authzid NUL authcid NUL password`; another identity than one's own is refused."""
        response = args[1] if len(args) > 1 else await server.challenge_auth("")
        if not isinstance(response, (str, bytes)):
            return _ABANDONED
        parts = _decoded(response).split(b"\0")
        if len(parts) != _PLAIN_PARTS or (parts[0] and parts[0] != parts[1]):
            return _REFUSED
        return await self._verdict(parts[1], parts[2])

    async def auth_LOGIN(self, server: Connection, args: list[str]) -> AuthResult:
        """The LOGIN mechanism: user name, then password, each asked for."""
        name = _decoded(args[1]) if len(args) > 1 else await server.challenge_auth("Username:")
        if not isinstance(name, bytes):
            return _ABANDONED
        password = await server.challenge_auth("Password:")
        if not isinstance(password, bytes):
            return _ABANDONED
        return await self._verdict(name, password)

    async def _verdict(self, name: bytes, password: bytes) -> AuthResult:
        known = self._users.get(name.decode(errors="replace"))
        right = await asyncio.to_thread(_verify, known or _nobody(), password)
        if right and known:
            return AuthResult(success=True, auth_data=LoginPassword(name, b""))
        return _REFUSED


def _verify(known: str, password: bytes) -> bool:
    try:
        return _HASHER.verify(known, password)
    except (VerificationError, InvalidHashError):
        return False


def _decoded(response: str | bytes) -> bytes:
    """Base64 from the command line, or octets aiosmtpd has decoded already; nothing readable is nothing."""
    if isinstance(response, bytes):
        return response
    try:
        return b64decode(response, validate=True)
    except (Base64Error, ValueError):
        return b""
