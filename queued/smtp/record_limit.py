"""record_limit — counts what a peer sends under TLS, where no octet of a reply need arrive

Owns: the protocol between a TCP connection and its TLS session.
Guarantees: session tickets, key updates and empty records count as the octets they take on the wire. A peer that sends
    more than it may is reported once, and nothing of it is decrypted after that. What it may is asked for each read.
See: RFC 8446 section 4.6 (post-handshake messages, of which a peer may send any number); queued/smtp/wire.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable


def limit(transport: asyncio.Transport, may_send: Callable[[], int], exceeded: Callable[[], None]) -> RecordLimit:
    """Count what arrives at this connection, whose protocol is a finished TLS session; see RecordLimit."""
    counting = RecordLimit(cast("asyncio.BufferedProtocol", transport.get_protocol()), may_send, exceeded)
    transport.set_protocol(counting)
    return counting


class RecordLimit(asyncio.BufferedProtocol):
    """Hands everything on to the TLS session. octets: since they were last set to 0."""

    def __init__(
        self, session: asyncio.BufferedProtocol, may_send: Callable[[], int], exceeded: Callable[[], None]
    ) -> None:
        """may_send: the octets that may arrive. exceeded: called when more have."""
        self.octets = 0
        self._session = session
        self._may_send = may_send
        self._exceeded = exceeded
        self._over = False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the octets go."""
        return cast("memoryview", self._session.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        """Some have arrived."""
        self.octets += nbytes
        if self.octets <= self._may_send():
            self._session.buffer_updated(nbytes)
        elif not self._over:
            self._over = True
            self._exceeded()

    def eof_received(self) -> bool | None:
        """The peer hung up."""
        return self._session.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._session.connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not read."""
        self._session.pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        self._session.resume_writing()
