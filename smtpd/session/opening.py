"""opening — what happens before a client may give commands

Owns: the PROXY header, TLS (implicit or by STARTTLS), the look for early talkers, and the greeting.
Guarantees: a session under TLS knows nothing that was said in the clear but who connected and what policy decided of
    that. A client is greeted once, and only after policy and rates have let it in.
See: RFC 5321 section 3.1; RFC 3207 section 4.2; RFC 8314 section 3.3 (implicit TLS).
"""

from __future__ import annotations

import asyncio
import fcntl
import ssl
import termios
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from shared.observe import events
from smtpd import replies, tls
from smtpd.login.users import UsersUnavailable
from smtpd.policy import phases
from smtpd.policy.recipient import in_networks
from smtpd.session import proxy_header
from smtpd.session.client import Client
from smtpd.session.service import IDENT
from smtpd.session.session import Session

if TYPE_CHECKING:
    from smtpd.session.protocol import Connection


@runtime_checkable
class _Buffered(Protocol):
    """An asyncio.BufferedProtocol in all but name, as uvloop's TLS is."""

    def get_buffer(self, sizehint: int) -> bytearray: ...

    def buffer_updated(self, nbytes: int) -> None: ...


def first_session(connection: Connection) -> Session:
    """A session with whoever is at the other end of the transport."""
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
        await begin_tls(connection)
    if not connection.hanging_up:
        await _greet(connection)


async def begin_tls(connection: Connection) -> None:
    """Hand the transport to TLS. A handshake that fails ends the connection; nobody could read a reply.

    Nor does it go on when nobody can say who a certificate's user is: without it the client might be told 5xx.
    """
    service, plain, old = connection.service, connection.transport, connection.session
    if plain is None or service.certificates is None:
        return
    hello = connection.lines.take()  # of TLS: it may have come with the PROXY header
    handshake = asyncio.Task(
        connection.loop.start_tls(
            plain,
            connection,
            service.certificates.context(),
            server_side=True,
            ssl_handshake_timeout=service.server.timeout.tls.total_seconds(),
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
        if session_of_tls is None:  # what start_tls leaves when the connection ended meanwhile
            raise ConnectionResetError("hung up during the handshake")
    except asyncio.CancelledError:  # by connection_lost, which asyncio may call before it says why
        events.emit("tls.failed", client=old.client.address, error="no handshake")
        raise
    except (OSError, ssl.SSLError) as error:  # ConnectionError and TimeoutError are OSErrors
        events.emit("tls.failed", client=old.client.address, error=error)
        plain.abort()
        connection.connection_lost(error)  # asyncio tells it only to a protocol whose handshake was done
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
        connection.hang_up(linger=True)
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
    """Address and port; an IPv4-mapped IPv6 address as IPv4, no zone. A client that is gone already has none."""
    if not isinstance(name, tuple) or len(name) < 2:  # noqa: PLR2004 - address and port
        return "", 0
    address = str(name[0]).partition("%")[0]
    return (address.removeprefix("::ffff:") if "." in address else address), int(name[1])


def _feed(protocol: asyncio.BaseProtocol, octets: bytes) -> None:
    """Give octets to a protocol as its transport would."""
    if not isinstance(protocol, _Buffered):
        raise TypeError("TLS takes octets otherwise than it did")
    while octets:
        view = memoryview(protocol.get_buffer(len(octets)))
        taken = min(len(view), len(octets))
        view[:taken] = octets[:taken]
        protocol.buffer_updated(taken)
        octets = octets[taken:]
