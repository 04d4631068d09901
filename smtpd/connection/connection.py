"""connection — one SMTP connection, from its opening to its end

Owns: the PROXY header, TLS (implicit or by STARTTLS), the look for early talkers and the greeting; the loop from octets
    to replies: lines, content, commands out of turn, the cost of errors, and the stop.
Guarantees: of the clear-text session before it, a session under TLS knows only the client's address and policy's
    decision about it. A client is greeted once, and only after policy and rates have accepted it; rates count it before
    a handshake that comes first. Commands that need not wait are answered in the call that brought them, those
    pipelined together in one write; a coroutine runs as a task only while it waits, so that an idle connection is a
    buffer and a timer. No exception of ours reaches a client:
    it gets 451, with an id in the log, or 421 where the state is not certain. A connection that must stop finishes the
    message it is receiving and gets 421 then. However much a client sends at once, others have their turn. Commands
    that it has sent whole are answered even if it has closed its side since, except over TLS. connection_lost gives
    everything back.
See: RFC 5321 sections 3.1, 3.8, 4.1.1.4, 4.5.3.2; RFC 2920; RFC 3207 section 4.2; RFC 8314 section 3.3; smtpd(8).
"""

from __future__ import annotations

import asyncio
import fcntl
import ssl
import termios
from base64 import b64encode
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable

from shared.observe import events
from smtpd import replies, tls
from smtpd.commands.auth import decoded
from smtpd.commands.table import COMMANDS, FORBIDDEN, out_of_turn
from smtpd.connection import proxy_header
from smtpd.connection.line_buffer import AUTH_LIMIT, LineAtFault, LineBuffer
from smtpd.connection.wire import Wire
from smtpd.envelope.client import Client
from smtpd.login.users import UsersUnavailable
from smtpd.policy.recipient import in_networks
from smtpd.replies import Refused
from smtpd.session import phases
from smtpd.session.service import IDENT
from smtpd.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from shared.config.smtpd.settings import Listener
    from smtpd.session.body_budget import Content
    from smtpd.session.service import Service
    from smtpd.session.session import Intake


@runtime_checkable
class _Buffered(Protocol):
    """An asyncio.BufferedProtocol in all but name, as uvloop's TLS is."""

    def get_buffer(self, sizehint: int) -> bytearray: ...

    def buffer_updated(self, nbytes: int) -> None: ...


def first_session(connection: Connection) -> Session:
    """A session with the client at the other end of the transport."""
    service, transport = connection.service, connection.transport
    address, port = _peer(transport.get_extra_info("peername") if transport is not None else None)
    client = Client(address, port, service.server.id)
    return Session(service, connection.listener, client, connection, service.policy_session(client))


async def start(connection: Connection) -> None:
    """From the first octet to the greeting."""
    listener, client = connection.listener, connection.session.client
    address = client.address
    events.emit("session.opened", client=address)
    if listener.proxy.networks and in_networks(address, listener.proxy.networks):
        try:
            async with asyncio.timeout(listener.proxy.timeout.total_seconds()):
                await _proxied(connection, client)
        except (proxy_header.ProxyRefused, TimeoutError) as reason:
            events.emit("session.refused", client=address, reply=replies.R554_PROXY, address=str(reason) or "timeout")
            connection.say(replies.R554_PROXY)
            connection.hang_up(linger=True)
            return
    if listener.tls == "implicit" and connection.service.certificates is not None:
        refused = await _refused_a_handshake(connection)
        if refused is not None:
            connection.session.refused(refused)
            connection.hang_up()  # it waits for TLS, and could not read why
            return
        await begin_tls(connection)
    if not connection.hanging_up:
        await _greet(connection)


async def begin_tls(connection: Connection) -> None:
    """Hand the transport to TLS. A handshake that fails ends the connection, because a reply could not be read.

    It also ends when a certificate's user cannot be looked up: without the user the client might get 5xx.
    """
    service, plain, old = connection.service, connection.transport, connection.session
    if plain is None or service.certificates is None:
        return
    limit = service.server.timeout.tls.total_seconds()
    hello = connection.lines.take()  # of TLS: it may have come with the PROXY header
    handshake = asyncio.Task(
        connection.loop.start_tls(
            plain,
            connection,
            service.certificates.context(),
            server_side=True,
            ssl_handshake_timeout=limit if service.load is None else service.load.patience(limit),
        ),
        loop=connection.loop,
        eager_start=True,
    )
    try:
        if hello:
            await asyncio.sleep(0)  # now TLS has its transport
            _feed(plain.get_protocol(), hello)
        encrypted = await handshake
        session_of_tls = None if encrypted is None else encrypted.get_extra_info("ssl_object")
        if session_of_tls is None:  # the result of start_tls when the connection ended meanwhile
            raise ConnectionResetError("hung up during the handshake")
    except asyncio.CancelledError:  # by connection_lost, which asyncio may call before it says why
        events.emit("tls.failed", client=old.client.address, error="no handshake")
        raise
    except (OSError, ssl.SSLError) as error:  # ConnectionError and TimeoutError are OSErrors
        events.emit("tls.failed", client=old.client.address, error=error)
        plain.abort()
        connection.connection_lost(error)  # asyncio reports it only to a protocol after its handshake
        raise asyncio.CancelledError from None
    finally:
        handshake.cancel()
    connection.transport = encrypted
    old.reset()
    client = Client(old.client.address, old.client.port, old.client.listener, name=old.client.name)
    client.tls = tls.facts(session_of_tls)
    known = True
    if service.authentication is not None:
        try:
            client.user = await service.authentication.by_certificate(client)
        except UsersUnavailable:  # users.unavailable has said why
            known = False
    policy = service.policy_session(client, old.policy.connected)
    session = Session(service, connection.listener, client, connection, policy)
    session.errors, session.junk, session.counted = old.errors, old.junk, old.counted
    connection.session = session
    if not known:
        connection.say(session.refused(replies.R421_USERS_UNAVAILABLE))
        connection.hang_up(linger=True)


async def _refused_a_handshake(connection: Connection) -> str | None:
    """Why the client gets no handshake: a client that never begins it must not hold more sessions than another.

    A certificate may give the right to relay; only the handshake tells.
    """
    session, load, settings = connection.session, connection.service.load, connection.service.server.tls
    by_certificate = settings is not None and settings.client is not None and settings.client.relay
    full = None if load is None or by_certificate or session.may_relay() else load.refusal_of_stranger()
    return full or await phases.counted(session)


async def _proxied(connection: Connection, client: Client) -> None:
    """Read the header; what follows it stays."""
    octets = connection.lines.take()
    while (length := proxy_header.header_length(octets)) is None:
        await connection.arrival()
        octets += connection.lines.take()
    connection.lines.add(octets[length:])
    named = await proxy_header.peer(octets[:length])
    if named is not None:
        client.address, client.port = named


async def _greet(connection: Connection) -> None:
    session, phase, load = connection.session, connection.service.server.phases.connect, connection.service.load
    full = None if load is None or session.may_relay() else load.refusal_of_stranger()
    refused = full or await phases.at_connect(session)
    if refused is not None:
        connection.say(session.refused(refused))
        connection.hang_up()  # at once: who is above a limit is counted by nothing but the list of connections
        return
    delay = phase.greetdelay.total_seconds()
    if delay and phase.earlytalker == "allow":
        await asyncio.sleep(delay)
    elif phase.earlytalker == "reject" and await _talks(connection, delay):
        connection.say(session.refused(replies.R554_EARLY))
        connection.hang_up(linger=True)
        return
    connection.say(replies.R220_GREETING.format(hostname=session.service.hostname, ident=IDENT))


async def _talks(connection: Connection, delay: float) -> bool:
    """Whether octets came before the greeting."""
    if connection.lines.pending or _readable(connection):
        return True
    if delay:
        try:
            async with asyncio.timeout(delay):
                await connection.arrival()
        except TimeoutError:
            return False
    return bool(connection.lines.pending)


def _readable(connection: Connection) -> bool:
    """Whether octets wait in the kernel. Under TLS they need not be the client's words."""
    if connection.transport is None or connection.session.client.tls is not None:
        return False
    waiting = bytearray(4)
    fcntl.ioctl(connection.transport.get_extra_info("socket").fileno(), termios.FIONREAD, waiting)
    return any(waiting)


def _peer(name: object) -> tuple[str, int]:
    """Address and port; an IPv4-mapped IPv6 address as IPv4, no zone. Empty for a client that is gone already."""
    if not isinstance(name, tuple) or len(name) < 2:  # noqa: PLR2004 - address and port
        return "", 0
    address = str(name[0]).partition("%")[0]
    return (address.removeprefix("::ffff:") if "." in address else address), int(name[1])


def _feed(protocol: asyncio.BaseProtocol, octets: bytes) -> None:
    """Give octets to a protocol as its transport would."""
    if not isinstance(protocol, _Buffered):
        raise TypeError("asyncio's TLS protocol is not buffered any more")
    while octets:
        view = memoryview(protocol.get_buffer(len(octets)))
        taken = min(len(view), len(octets))
        view[:taken] = octets[:taken]
        protocol.buffer_updated(taken)
        octets = octets[taken:]


_TURN: Final = 50  # commands answered before others have their turn: about a millisecond
_AHEAD: Final = 65536  # octets a client may be ahead of our replies before we stop reading
# After these the connection is over, besides every 421 and 521 (RFC 5321 section 3.8, RFC 7504 section 3).
_LAST_WORDS: Final = frozenset({replies.R221_BYE, replies.R221_NOT_SMTP, replies.R554_PIPELINING})


class Connection(Wire):
    """One client. `register` holds every open connection of the process."""

    def __init__(self, service: Service, listener: Listener, register: set[Connection]) -> None:
        super().__init__(service)
        self.listener = listener
        self.lines = LineBuffer(service.server.limits.line)
        self.ended = asyncio.Event()
        self._register = register
        self._intake: Intake | None = None
        self._timed: Content | None = None  # whose time runs already
        self._stopping = False
        self._reply_pending = False  # the received commands are whole and will be answered without further octets
        self._eof = False  # the client closed its side meanwhile
        self._encrypt = False  # these two: after the reply
        self._ending = False

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self.transport = cast("asyncio.Transport", transport)
        self._register.add(self)
        self.session = first_session(self)
        self._begin(start(self))

    def data_received(self, data: bytes) -> None:
        """Octets, of commands or content."""
        if self._closing:
            return
        self.lines.add(data)
        if not self._busy:
            self._begin(self._serve())
        elif self._arrived is not None:
            if not self._arrived.done():
                self._arrived.set_result(None)
        elif self.lines.pending > _AHEAD and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """The client says no more: what is being answered is, but nothing else it waits for.

        Whether it still listens cannot be known. TLS would be closed whatever we return.
        """
        if self._reply_pending and self.session.client.tls is None:
            self._eof = True
            return True
        if self._running is not None:
            self._running.cancel()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone, or we closed."""
        del error
        if self.ended.is_set():
            return
        self._closing = True
        self._timer.cancel()
        if self._running is not None:
            self._running.cancel()
        if self._intake is not None:
            self._intake.close()
        self.session.reset()
        self.session.ended()
        self._register.discard(self)
        events.emit("session.closed", client=self.session.client.address)
        self.lines.clear()
        self.transport = None
        self.ended.set()

    def resume_writing(self) -> None:
        """It has taken them."""
        self._blocked = False
        self._go_on()

    # --- what commands and the listener call

    def take(self, intake: Intake) -> None:
        """The next octets go to `intake`."""
        self._intake = intake

    async def challenge(self, octets: bytes) -> bytes:
        """334 and the answer (RFC 4954 section 4)."""
        self.say(f"334 {b64encode(octets).decode()}")
        try:
            while (line := self.lines.next(AUTH_LIMIT)) is None:
                await self.arrival()
        except LineAtFault as wrong:
            raise Refused(wrong.reply) from None
        return decoded(line)

    def encrypt(self) -> None:
        """Begin TLS after the reply."""
        self._encrypt = True

    def end(self) -> None:
        """Hang up after the reply."""
        self._ending = True

    async def arrival(self) -> None:
        """Wait for more octets."""
        self._flush()
        if self._eof:
            self.hang_up()  # and connection_lost ends the wait
        self._arrived = self.loop.create_future()
        try:
            await self._arrived
        finally:
            self._arrived = None

    def stop(self) -> None:
        """Say 421 and close: now when idle, else after the reply to the message being received."""
        self._stopping = True
        waits = self._busy and self._arrived is None
        if waits or self._closing or self.transport is None:
            return
        if self._intake is not None or self.session.chunks is not None:
            return
        self.dismiss(replies.R421_STOPPING)

    # --- the loop

    def _in_content(self) -> bool:
        timed, self._timed = self._timed, self.session.chunks
        return timed is not None and timed is self._timed

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Run until it has to wait; a task remains only then."""
        self._busy = True
        running = asyncio.Task(self._guarded(work), loop=self.loop, eager_start=True)
        if not running.done():
            self._running = running
            self._flush()

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - after any error the client gets 421 and nothing else
            self.session.fault(error)
            self.say(replies.R421_FAULT)
            self.hang_up()
        finally:
            self._busy = False
            self._running = None
        self._go_on()

    def _go_on(self) -> None:
        """After a wait: read again, and answer what has come meanwhile."""
        if self._stopping:
            self.stop()
        self._flush()
        if self._closing or self._blocked or self._busy or self.transport is None:
            return
        if not self._eof:
            self.transport.resume_reading()
        if self.lines.pending and (self._intake is not None or self.lines.complete):
            self._begin(self._serve())
        elif self._eof:
            self.hang_up()

    async def _serve(self) -> None:
        """Answer everything that has come."""
        lines, answered = self.lines, 0
        while not self._closing and not self._blocked:
            intake = self._intake
            if intake is None:
                answered += 1
                if answered % _TURN == 0:
                    await self._owe(asyncio.sleep(0))
                    continue
                try:
                    line = lines.next()
                except LineAtFault as wrong:
                    await self._conclude(self.session.refused(wrong.reply))
                    continue
                if line is None:
                    return
                reply = await self._answer(line)
                if reply is not None:
                    await self._conclude(reply)
            elif not await self._feed(intake):
                return

    async def _feed(self, intake: Intake) -> bool:
        """Content; whether its end has come and was answered."""
        octets = self.lines.take(intake.wanted)
        rest = intake.feed(octets)
        if rest is None:
            # Postfix smtpd_per_request_deadline: the time left grows with what has come, never beyond the limit.
            now = self.loop.time()
            grown = self._deadline + len(octets) / self.service.server.limits.datarate
            self._wait_until(min(grown, now + self._patience()))
            return False
        self._intake = None
        if rest:
            self.lines.add(rest)
        try:
            reply = await self._owe(intake.finish())
        except Exception as error:  # noqa: BLE001 - as in _answer
            self.session.fault(error)
            reply = replies.R451_LOCAL_ERROR
        finally:
            intake.close()
        await self._conclude(reply)
        return True

    async def _owe[T](self, work: Coroutine[None, None, T]) -> T:
        """Do what the client's next octets, or their end, have no part in."""
        self._reply_pending = True
        try:
            return await work
        finally:
            self._reply_pending = False

    async def _answer(self, line: bytes) -> str | None:
        """The reply to one line."""
        session = self.session
        verb, _, argument = line.partition(b" ")
        command = COMMANDS.get(verb) or COMMANDS.get(verb.upper())
        if command is None:
            return replies.R221_NOT_SMTP if verb.upper() in FORBIDDEN else replies.R500_UNKNOWN_COMMAND
        refused = out_of_turn(command, session, self.lines.pending)
        if refused is not None:
            return session.refused(refused)
        try:
            return await command.answer(session, argument.decode("utf-8", "surrogateescape").strip())
        except Refused as refusal:
            return session.refused(refusal.reply)
        except Exception as error:
            if self._intake is not None or self._encrypt:
                raise  # it is not certain what the client's next octets are
            session.fault(error)
            return replies.R451_LOCAL_ERROR

    async def _conclude(self, reply: str) -> None:
        """Send a reply, with what errors cost, and do what follows from it."""
        session, limits = self.session, self.service.server.limits
        session.charge(reply)
        if session.errors > limits.softerrors and limits.errordelay:
            self._flush()
            await asyncio.sleep(limits.errordelay.total_seconds() * (session.errors - limits.softerrors))
        self.say(reply)
        if self._ending or reply in _LAST_WORDS or reply.startswith(("421", "521")):
            self.hang_up(linger=reply != replies.R221_BYE)
        elif session.errors >= limits.harderrors:
            self.say(replies.R421_ERRORS)
            self.hang_up(linger=True)
        elif self._encrypt:
            self._flush()
            self._encrypt = False
            await begin_tls(self)
        elif self._stopping and self._intake is None and session.chunks is None:
            self.say(replies.R421_STOPPING)
            self.hang_up()
