"""authenticate — AUTH: the proof of a client's user, apart from the connection that carries the lines

Owns: the mechanisms PLAIN, LOGIN, SCRAM-SHA-256, SCRAM-SHA-256-PLUS and EXTERNAL; which of them a client is offered;
    the order of ban, proof, delay and count.
Guarantees: only under TLS, unless the settings say otherwise. An unknown user, a disabled one and a wrong password cost
    the same work, wait as long and get the same 535. Trouble of ours is 454 and does not count as a failure. Waiting
    holds no thread. A ban is 421 or 454 before any password is checked, and is checked again when the password has
    come. A client that cancels after it has seen SCRAM's challenge has failed.
Raises: all that `challenge` raises, so that a client that cancels (`*`) ends the exchange where it is.
Bugs: a client between two messages of SCRAM when smtpd stops counts as failed once.
See: RFC 4954, RFC 4616 (PLAIN), RFC 5802, 7677 (SCRAM), RFC 4422 appendix A (EXTERNAL); LOGIN has no RFC.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shared.observe import events
from shared.security.saslprep import NotPrepared, prepared
from smtpd import replies
from smtpd.envelope.client import User
from smtpd.login.failures import Banned, Failures
from smtpd.login.passwords import OURS, Hashing, HashingBusy, unknown_hash
from smtpd.login.proofs import NotProven, Proofs
from smtpd.login.scram import ScramRefused, ScramServer, unknown_keys
from smtpd.login.secret import cost_of_unknown, read_or_make
from smtpd.login.user_sources import FileUsers, Several, TableUsers, WrittenUsers
from smtpd.login.users import UsersUnavailable
from smtpd.tls import certificate_user

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shared.config.smtpd.settings import SmtpdConfig
    from smtpd.envelope.client import Client
    from smtpd.login.failures import FailureCounts
    from smtpd.login.users import Users

type Challenge = Callable[[bytes], Awaitable[bytes]]

_PLUS: Final = "SCRAM-SHA-256-PLUS"
_PLAIN_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class AuthResult:
    """The end of AUTH: the reply, the user that was proven, and whether the connection is over."""

    reply: str
    user: User | None = None
    close: bool = False


@dataclass(frozen=True, slots=True)
class _Login:
    """One AUTH command."""

    mechanism: str
    initial: bytes | None
    challenge: Challenge
    client: Client

    async def first(self, prompt: bytes = b"") -> bytes:
        """The first response, asked for where the client did not send it at once."""
        return await self.challenge(prompt) if self.initial is None else self.initial


_LATER: Final[dict[type[Exception], str]] = {
    UsersUnavailable: replies.R454_AUTH_UNAVAILABLE,
    HashingBusy: replies.R454_AUTH_BUSY,
    Banned: replies.R454_TOO_MANY_FAILURES,
}


class Authentication:
    """AUTH for all servers of one smtpd."""

    def __init__(
        self,
        config: SmtpdConfig,
        conninfo: str = "",
        *,
        users: Users | None = None,
        counts: FailureCounts | None = None,
        failures: Failures | None = None,
    ) -> None:
        """`conninfo`: of the table's database; `users`: in place of all sources.

        `counts`: smtpd.rates.limits.Rates, without which this process counts alone; `failures`: those of the
        predecessor, to go on with after a reload.
        """
        settings = config.authentication
        self._settings = settings
        self._file = FileUsers(settings.file) if settings.file is not None else None
        self._table = TableUsers(conninfo) if settings.source == "table" else None
        self._users = users or Several(
            [WrittenUsers(settings.users), *(source for source in (self._file, self._table) if source is not None)]
        )
        self._has_users = bool(users or settings.users or self._file or self._table)
        self._hashing = Hashing(settings.hashing)
        self.failures = failures or Failures(settings.failures, config.relay.networks, counts)
        self._trusted = config.relay.networks
        self._proofs = Proofs(self.failures)
        self._certificates = {server.id: server.tls.client for server in config.servers if server.tls is not None}
        self._secret_file = settings.secret or config.environment.var / "authentication.secret"
        self._secret = b""

    def prepare(self) -> None:
        """Read the files that must exist before the first login. Raises ConfigError."""
        if self._file is not None:
            self._file.prepare()
        if self._has_users:
            self._secret = read_or_make(self._secret_file)

    def begin(self) -> None:
        """This configuration serves from now on: its limits hold for failures counted before, too."""
        self.failures.configure(self._settings.failures, self._trusted)

    async def close(self) -> None:
        """Stop the threads and give the connections back."""
        self._hashing.close()
        await self._proofs.close()
        if self._table is not None:
            await self._table.close()

    def mechanisms(self, client: Client) -> tuple[str, ...]:
        """The mechanisms to offer this client at EHLO, in the order of the settings; empty: do not offer AUTH."""
        if not self._has_users or (self._settings.tlsonly and client.tls is None):
            return ()
        able = {"PLAIN", "LOGIN", "SCRAM-SHA-256"}
        if client.tls is not None and client.tls.bindings:
            able.add(_PLUS)
        if self._certificate_name(client) is not None:
            able.add("EXTERNAL")
        return tuple(name for name in self._settings.mechanisms if name in able)

    async def banned(self, client: Client) -> bool:
        """Whether this address has failed too often to be worth a session."""
        return await self.failures.address_banned(client.address)

    async def by_certificate(self, client: Client) -> User | None:
        """The user this client is without AUTH, by its certificate (`tls.client.relay`). Raises UsersUnavailable."""
        settings = self._certificates.get(client.listener)
        name = self._certificate_name(client)
        if settings is None or not settings.relay or name is None:
            return None
        user = await self._users.find(name)
        return None if user is None or user.disabled else user

    async def by_word(self, said: str) -> User | None:
        """The user that a trusted client names (XCLIENT): bare if we do not know it, None if it may not log in.

        Raises NotPrepared and UsersUnavailable.
        """
        name = prepared(said)
        user = await self._users.find(name) or User(name)
        return None if user.disabled else user

    async def authenticate(
        self, mechanism: str, initial: bytes | None, challenge: Challenge, client: Client
    ) -> AuthResult:
        """One AUTH command; returns after the delay a failure has to wait.

        `initial` is the decoded initial response, None when there was none; `challenge` sends octets as 334 and returns
        the decoded answer.
        """
        if self._settings.tlsonly and client.tls is None:
            return AuthResult(replies.R538_ENCRYPTION_REQUIRED)
        name = mechanism.upper()
        if name not in self.mechanisms(client):
            return AuthResult(replies.R504_MECHANISM)
        if await self.banned(client):
            return AuthResult(replies.R421_TOO_MANY_FAILURES, close=True)
        try:
            user = await self._prove(_Login(name, initial, challenge, client))
        except NotProven as reason:
            await asyncio.sleep(await self._proofs.failed(client.address, name, reason))
            return AuthResult(replies.R535_BAD_CREDENTIALS)
        except (UsersUnavailable, HashingBusy, Banned) as reason:
            return await self._later(reason, client)
        events.emit("authenticate.succeeded", client=client.address, user=user.name, mechanism=name)
        return AuthResult(replies.R235_AUTHENTICATED, user=user)

    async def _later(self, reason: Exception, client: Client) -> AuthResult:
        """The result for a proof that was not checked."""
        if isinstance(reason, HashingBusy):
            events.emit("authenticate.busy", client=client.address)
        if isinstance(reason, Banned) and await self.banned(client):  # since the command began
            return AuthResult(replies.R421_TOO_MANY_FAILURES, close=True)
        return AuthResult(_LATER[type(reason)])

    async def _prove(self, login: _Login) -> User:
        first = await login.first(b"Username:" if login.mechanism == "LOGIN" else b"")
        match login.mechanism:
            case "PLAIN":
                return await self._plain(first, login)
            case "LOGIN":
                return await self._password(first, await login.challenge(b"Password:"), login)
            case "EXTERNAL":
                return await self._external(first, login)
            case _:
                return await self._scram(first, login)

    async def _plain(self, response: bytes, login: _Login) -> User:
        """RFC 4616: `authzid NUL authcid NUL password`; another identity than one's own is refused."""
        parts = response.split(b"\0")
        if len(parts) != _PLAIN_PARTS:
            raise NotProven("malformed response")
        authzid, authcid, password = parts
        if authzid and authzid != authcid:
            raise NotProven("wants to act as another user", _spelled(authcid))
        return await self._password(authcid, password, login)

    async def _password(self, said: bytes, password: bytes, login: _Login) -> User:
        name = _spelled(said)

        async def look() -> User:
            user = await self._users.find(name) if name else None
            costs = (await self._users.costs()).hashes or {OURS}
            decoy = unknown_hash(cost_of_unknown(self._secret, name, "hash", costs))
            known = None if user is None else user.argon2
            right = await self._hashing.check(known or decoy, password.decode(errors="surrogateescape"))
            return _allowed(user, name, right=right)

        return await self._proofs.judged(login.client.address, name, login.mechanism, look)

    async def _scram(self, first: bytes, login: _Login) -> User:
        client, plus = login.client, login.mechanism == _PLUS
        bindings = {} if client.tls is None else client.tls.bindings
        server = ScramServer(plus=plus, plus_offered=_PLUS in self.mechanisms(client), bindings=bindings)
        try:
            name = server.first(first)
        except ScramRefused as refused:
            raise NotProven(str(refused)) from None
        user = await self._find(name, client)
        costs = (await self._users.costs()).iterations or {self._settings.iterations}
        decoy = unknown_keys(self._secret, name, costs)
        keys = None if user is None else user.scram
        try:
            answer = await login.challenge(server.challenge(keys or decoy))
        except BaseException:  # it has seen what it may have come for
            await self._proofs.failed(client.address, login.mechanism, NotProven("cancelled before its proof", name))
            raise

        async def look() -> tuple[User, bytes]:
            try:
                final = server.final(answer)
            except ScramRefused as refused:
                raise NotProven(str(refused), name) from None
            return _allowed(user, name, right=keys is not None), final

        proven, final = await self._proofs.judged(client.address, name, login.mechanism, look)
        # RFC 4954 section 4: 235 carries nothing, so our proof is one more challenge, whose answer is empty.
        if await login.challenge(final):
            raise NotProven("data after server-final-message", name)
        return proven

    async def _external(self, said: bytes, login: _Login) -> User:
        """RFC 4422 appendix A: TLS has proven who it is; the response may repeat the name."""
        name = self._certificate_name(login.client) or ""
        if said and _spelled(said) != name:
            raise NotProven("wants to act as another user", name)
        user = await self._find(name, login.client)
        return _allowed(user, name, right=user is not None)

    async def _find(self, name: str, client: Client) -> User | None:
        if await self.failures.name_banned(name, client.address):
            raise Banned
        return await self._users.find(name) if name else None

    def _certificate_name(self, client: Client) -> str | None:
        return certificate_user(client.tls, self._certificates.get(client.listener))


def _allowed(user: User | None, name: str, *, right: bool) -> User:
    """The user, if the proof was right and it may log in."""
    if user is None:
        raise NotProven("no such user", name)
    if not right:
        raise NotProven("the password is wrong", name)
    if user.disabled:
        raise NotProven("the user is disabled", name)
    return user


def _spelled(said: bytes) -> str:
    """A name as SASLprep spells it; nothing where it is none."""
    try:
        return prepared(said.decode())
    except (NotPrepared, UnicodeDecodeError):
        return ""
