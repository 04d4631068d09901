"""wire — one connection's transport: replies out, the client's time, and the end

Owns: replies that are not sent yet, how long the client may take, and how a connection is closed.
Guarantees: replies to pipelined commands go out in one write. A client that is silent, sends too slowly or does not
    take its replies is cut off in time; one timer serves all of it and is not moved for each reply.
See: RFC 5321 sections 3.8, 4.5.3.2; RFC 2920 section 3.2; Postfix smtpd_timeout, smtpd_per_request_deadline.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aiosmtpd.smtp import SMTP

from shared.observe import events
from smtpd import replies

if TYPE_CHECKING:
    from smtpd.session.service import Service
    from smtpd.session.session import Session

_LINGER: Final = 2.0  # seconds for a client to take our last reply before the connection is cut


class Wire(SMTP):
    """A transport with replies and time, still without commands."""

    # SMTP.__init__ is left out on purpose: it looks up every hook of the class again for each connection, half a
    # millisecond, and makes a StreamReader; we have no hooks or streams.
    def __init__(self, service: Service) -> None:
        self.loop = asyncio.get_running_loop()
        self.service = service
        self.transport: asyncio.Transport | None = None
        self.session: Session  # type: ignore[assignment]  # in place of aiosmtpd's; there before anything is said
        self._out: list[str] = []
        self._busy = False  # a coroutine is at work or waits
        self._running: asyncio.Task[None] | None = None  # the one that waits
        self._arrived: asyncio.Future[None] | None = None  # it waits for the client
        self._blocked = False  # the client does not take our replies
        self._closing = False
        self._usual = service.server.timeout.idle.total_seconds()
        self._deadline = self.loop.time() + self._patience()
        self._rings = self._deadline  # when the timer does: what uvloop makes of a time that is over cannot tell
        self._timer = self.loop.call_at(self._rings, self._look)

    def pause_writing(self) -> None:
        """The client takes replies more slowly than it gives commands: read no more."""
        self._blocked = True
        if self.transport is not None:
            self.transport.pause_reading()

    def say(self, reply: str) -> None:
        """A reply, sent with those around it."""
        self._out.append(reply)
        events.emit("session.replied", client=self.session.client.address, reply=reply)
        if self._running is not None and len(self._out) == 1:
            self.loop.call_soon(self._flush)

    @property
    def hanging_up(self) -> bool:
        """Whether the last reply was given."""
        return self._closing

    def hang_up(self, *, linger: bool = False) -> None:
        """Send what was said and close. `linger` leaves a client that is still sending the time to read why."""
        self._flush()
        self._closing = True
        if self.transport is None or self.transport.is_closing():
            return
        self._wait_until(self.loop.time() + _LINGER)
        if linger and self.transport.can_write_eof():
            self.transport.write_eof()
            self.transport.resume_reading()
        else:
            self.transport.close()

    def dismiss(self, reply: str, *, linger: bool = False) -> None:
        """Hang up with this reply on a client that is waited for; what waits may have a time limit of its own."""
        self.say(reply)
        self.hang_up(linger=linger)
        if self._running is not None:
            self._running.cancel()

    def _flush(self) -> None:
        """Send what was said. From now on it is the client's turn, and its time runs."""
        if not self._out or self.transport is None:
            return
        octets = ("\r\n".join(self._out) + "\r\n").encode("utf-8", "replace")
        self._out.clear()
        if not self.transport.is_closing():
            self.transport.write(octets)
        if not self._in_content():
            self._wait_until(self.loop.time() + self._patience())

    def _in_content(self) -> bool:
        """Whether the client is between two pieces of one content: only content earns it more time."""
        return False

    def _wait_until(self, deadline: float) -> None:
        """The client's time ends then, if nothing comes before."""
        self._deadline = deadline
        if deadline < self._rings:
            self._timer.cancel()
            self._rings = deadline
            self._timer = self.loop.call_at(deadline, self._look)

    def _look(self) -> None:
        """See whether the client's time is over. The timer is not moved for each reply, only when it rings."""
        now = self.loop.time()
        if self._busy and self._arrived is None and not self._closing and now >= self._deadline:
            self._deadline = now + self._patience()  # it waits for us
        if now >= self._deadline:
            if self._closing or self._blocked or self.transport is None or self.transport.is_closing():
                self._closing = True
                if self.transport is not None:
                    # Not close(), which waits for a client that does not read to read everything first.
                    self.transport.abort()
                return
            # A client that still drips would lose a reply that is followed by a reset.
            self.dismiss(replies.R421_IDLE, linger=True)
        self._rings = self._deadline
        self._timer = self.loop.call_at(self._deadline, self._look)

    def _patience(self) -> float:
        """Seconds the client may take now: fewer while the process is nearly full."""
        load = self.service.load
        return self._usual if load is None else load.patience(self._usual)
