"""auth — logs in to a next hop, after EHLO and TLS

Guarantees: credentials are sent only over a connection that is as safe as `auth.over` requires. The strongest mechanism
    that both may use is chosen. An exchange has at most a few steps, and each reply its time limit; a host that wants
    more is disconnected. After SCRAM the host too has proved that it knows the password, or nothing more is sent to it.
    No reply text that is stored or logged holds a secret of ours, whichever session it was used in
    (queued/smtp/own_secrets.py).
Raises: ConversationError, always of phase `auth`: `login` where a retry is useless until the operator corrects
    something, else a temporary kind.
See: RFC 4954; queued/smtp/sasl.py for the mechanisms; docs/how-to/deliver/log-in-to-a-relay.md.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.smtp import tokens
from queued.smtp.own_secrets import OwnSecrets
from queued.smtp.sasl import SaslError, binds, machine
from queued.smtp.tokens import NoTokenError
from queued.smtp.transaction import ConversationError, Fault
from shared import secret_files
from shared.errors import ConfigError
from shared.mail.smtp_reply import Reply
from shared.observe import events
from shared.secret_files import UnusableSecret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from queued.smtp.sasl import Machine
    from queued.smtp.transaction import FaultKind
    from queued.smtp.wire import Wire
    from queued.tls.demanded import TlsWanted
    from shared.config.queued.login import Auth, Mechanism
    from shared.config.queued.transport import Transport

    #: Where we log in, by host and port.
    type Logins = Mapping[tuple[str, int], Login]

_CONTINUE: Final = 334  # RFC 4954 section 4
_ACCEPTED: Final = 235  # RFC 4954 section 4
_LINE: Final = 510  # octets of a command line without its CR LF (RFC 5321 section 4.5.3.1.4)
_STEPS: Final = 4  # challenges in one exchange; SCRAM has two


class Login:
    """As whom we speak to one host. Made once for each place; its identity is what tells connections apart."""

    def __init__(self, settings: Auth, where: str, transport: str, secrets: OwnSecrets) -> None:
        """`where` is the place in the configuration that messages name; `secrets` learns ours. Raises ConfigError."""
        self.settings = settings
        self.transport = transport
        self._where = where
        self._secrets = secrets
        self._password = ""
        self._tokens: tokens.Tokens | None = None
        try:
            if settings.password is not None:
                self._password = secret_files.read(settings.password)
                secrets.hold(where, self._password)
            else:
                self._tokens = tokens.source(settings)
        except UnusableSecret as error:
            raise ConfigError(f"{where}: {error}") from None

    def same_as(self, other: Login) -> bool:
        """Whether both would log in alike: a secret may have changed under the same name."""
        if self._tokens is None or other._tokens is None:
            return (self.settings, self._password) == (other.settings, other._password)
        return self.settings == other.settings and self._tokens.same_as(other._tokens)

    async def secret(self) -> str:
        """Password or token."""
        if self._tokens is None:
            return self._password
        token = await self._tokens.get()
        self._secrets.hold(self._where, token)
        return token

    def refused(self, secret: str) -> bool:
        """The host did not take it; whether we may have a better one next time."""
        return self._tokens is not None and self._tokens.refused(secret)


class LoginTarget(NamedTuple):
    """Where we log in. tls: as negotiated, "none" for clear text."""

    host: str
    port: int
    tls: str
    wanted: TlsWanted

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def logins(transport: Transport, secrets: OwnSecrets | None = None) -> dict[tuple[str, int], Login]:
    """The logins of this transport by host, whose secrets `secrets` learns; ConfigError for one that cannot be read."""
    secrets = OwnSecrets() if secrets is None else secrets
    connection = transport.connection
    where = f"transports[{transport.id}].connection"
    if not connection.hosts:
        places = {(connection.smarthost, connection.port): f"{where}.auth"}
    else:
        places = {
            (host.server, host.port): f"{where}.hosts[{index}].auth" if host.auth else f"{where}.auth"
            for index, host in reversed(tuple(enumerate(connection.hosts)))
        }
    made: dict[tuple[str, int], Login] = {}
    for place, named in places.items():
        settings = connection.login(*place)
        if settings is not None:
            made[place] = Login(settings, named, transport.id, secrets)
    return made


def alike(some: Logins, others: Logins) -> bool:
    """Whether nothing has changed, secrets included."""
    return some.keys() == others.keys() and all(login.same_as(others[place]) for place, login in some.items())


async def log_in(wire: Wire, login: Login, place: LoginTarget, extensions: Mapping[str, str], limit: float) -> None:
    """Be logged in, or raise."""
    mechanism: Mechanism | None = None
    try:
        _check_channel(login, place)
        mechanism = _choose(login, extensions, wire)
        secret = await _secret(login)
        await _Exchange(wire, login, limit, secret, place).run(mechanism)
    except ConversationError as error:
        if error.fault.kind == "login":
            events.emit(
                "auth.refused",
                transport=login.transport,
                remote=str(place),
                user=login.settings.user,
                mechanism=mechanism,
                error=error.fault.text,
            )
        raise


def _check_channel(login: Login, place: LoginTarget) -> None:
    """Check again, where it matters, what queued.tls.demanded has made sure of."""
    over, encrypted = login.settings.over, place.tls != "none"
    if over == "verified_tls" and not (encrypted and place.wanted.proof != "none"):
        raise _fault("login", "login requires verified TLS (auth.over)")
    if over == "any_tls" and not encrypted:
        raise _fault("login", "login requires TLS (auth.over)")


def _choose(login: Login, extensions: Mapping[str, str], wire: Wire) -> Mechanism:
    """The strongest mechanism both may use."""
    if "AUTH" not in extensions:
        raise _fault("login", "host does not offer AUTH, which connection.auth requires")
    offered = extensions["AUTH"].upper().split()
    for mechanism in login.settings.allowed:
        if mechanism in offered and (not mechanism.endswith("-PLUS") or binds(wire.session)):
            return mechanism
    allowed, found = ", ".join(login.settings.allowed), " ".join(offered)[:200] or "nothing"
    raise _fault("login", f"host offers AUTH {found}; allowed by connection.auth: {allowed}")


async def _secret(login: Login) -> str:
    try:
        return await login.secret()
    except NoTokenError as error:
        raise _fault("login" if error.lasting else "connect", f"no access token: {error}") from None


class _Exchange:
    """One AUTH command and all that follows from it."""

    def __init__(self, wire: Wire, login: Login, limit: float, secret: str, place: LoginTarget) -> None:
        self._wire = wire
        self._login = login
        self._limit = limit
        self._secret = secret
        self._place = place
        self._secrets = wire.secrets = OwnSecrets(secret, wire.secrets)

    async def run(self, mechanism: Mechanism) -> None:
        """Be accepted, or raise."""
        user, (host, port, *_) = self._login.settings.user, self._place
        try:
            talking = machine(mechanism, user, self._secret, self._wire.session, host, port)
            reply = await self._begin(mechanism, talking)
            steps = 0
            while reply.code == _CONTINUE:
                steps += 1
                if steps > _STEPS:
                    raise _fault("login", f"unexpected extra challenge from the host during {mechanism}")
                reply = await self._continue(talking, _challenge(reply))
            if reply.code == _ACCEPTED:
                talking.prove()
                return
        except SaslError as error:
            raise _fault("login", self._secrets.clean(f"{mechanism}: {error}")) from None
        raise self._refused(mechanism, reply, talking.refusal)

    async def _begin(self, mechanism: Mechanism, talking: Machine) -> Reply:
        first = talking.first()
        if first is None:
            return await self._say(f"AUTH {mechanism}")
        encoded = self._noted(first) or "="  # RFC 4954 section 4: an initial response of no octets
        command = f"AUTH {mechanism} {encoded}"
        if len(command) <= _LINE:
            return await self._say(command)
        # RFC 4954 section 4: what makes the command too long waits for the host's leave.
        reply = await self._say(f"AUTH {mechanism}")
        return await self._say(encoded) if reply.code == _CONTINUE else reply

    async def _continue(self, talking: Machine, challenge: bytes) -> Reply:
        if talking.heavy:
            response = await asyncio.to_thread(talking.answer, challenge)
        else:
            response = talking.answer(challenge)
        return await self._say(self._noted(response))

    def _noted(self, message: bytes) -> str:
        encoded = b64encode(message).decode()
        self._secrets.add(encoded)
        return encoded

    async def _say(self, line: str) -> Reply:
        self._wire.write(line.encode() + b"\r\n", replies=1)
        try:
            return await self._wire.reply("auth", self._limit)
        except ConversationError as error:
            # The quoted line is left out: it may hold half a secret, which no search would find.
            what, quoted, _ = error.fault.text.partition(": ")
            if error.fault.kind != "protocol" or not quoted:
                raise
            raise _fault("protocol", f"{what} to AUTH") from None

    def _refused(self, mechanism: Mechanism, reply: Reply, why: str) -> ConversationError:
        outdated = self._login.refused(self._secret)
        said = self._secrets.clean(f"{reply} ({why})" if why else str(reply))
        reply = Reply(reply.code, reply.enhanced, ())  # what it says is in `said`
        if reply.is_permanent and not outdated:
            return _fault("login", f"host refused our login by {mechanism}: {said}", reply)
        if reply.is_transient or outdated:
            return _fault("refused", f"host does not let us log in now: {said}", reply)
        return _fault("protocol", f"unexpected reply to AUTH: {said}")


def _challenge(reply: Reply) -> bytes:
    """The octets of a challenge."""
    try:
        return b64decode(reply.text if len(reply.lines) == 1 else "-", validate=True)
    except (Base64Error, ValueError):
        raise SaslError("host sends a challenge that is not base64") from None


def _fault(kind: FaultKind, text: str, reply: Reply | None = None) -> ConversationError:
    text = f"cannot log in: {text}" if kind == "login" else text  # as query doctor_logins looks for it
    return ConversationError(Fault(kind, "auth", text, reply))
