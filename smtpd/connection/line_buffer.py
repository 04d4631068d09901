"""line_buffer — cuts a client's octets into command lines

Owns: the octets that were received and not used yet, as a value machine without I/O.
Guarantees: only CR LF ends a line, and a line contains no CR or LF. After a faulty line, the octets up to the next
    CR LF are never taken for a command. Memory is bounded: of a line that is too long nothing is kept.
Raises: LineAtFault, with the reply, after which reading goes on.
See: RFC 5321 sections 2.3.8 (lines), 4.5.3.1.4 (length of a command line); RFC 4954 section 4 (12288 octets for AUTH).
"""

from __future__ import annotations

from typing import Final, Literal

from smtpd import replies

AUTH_LIMIT: Final = 12288  # RFC 4954 section 4
_AUTH: Final = b"AUTH "


class LineAtFault(Exception):
    """A line that is not a command; `reply` goes to the client."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply)
        self.reply = reply


class LineBuffer:
    """Octets in, lines out."""

    __slots__ = ("_at", "_limit", "_octets", "_skipping")

    def __init__(self, limit: int) -> None:
        """`limit`: the longest command line in octets, its CR LF not counted."""
        self._limit = limit
        self._octets = b""
        self._at = 0
        self._skipping: Literal["", "bare", "long"] = ""  # the fault of the line whose rest is dropped

    @property
    def pending(self) -> int:
        """How many octets wait to be read."""
        return len(self._octets) - self._at

    @property
    def complete(self) -> bool:
        """Whether next() has something to say."""
        return self._octets.find(b"\r\n", self._at) >= 0 or (self.pending > 0 and self._octets.endswith(b"\n"))

    def add(self, octets: bytes) -> None:
        """More was received."""
        self._octets = self._octets[self._at :] + octets if self._at < len(self._octets) else octets
        self._at = 0

    def take(self, most: int | None = None) -> bytes:
        """All that waits, or so many octets of it, to be read as something else than lines."""
        if most is not None and most < self.pending:
            self._at += most
            return self._octets[self._at - most : self._at]
        octets = self._octets[self._at :] if self._at else self._octets
        self.clear()
        return octets

    def clear(self) -> None:
        """Forget what waits."""
        self._octets = b""
        self._at = 0

    def next(self, limit: int = 0) -> bytes | None:
        """The next line without its CR LF; None while none is complete. `limit` replaces the usual one."""
        while True:
            octets, at = self._octets, self._at
            end = octets.find(b"\r\n", at)
            if end < 0:
                self._unfinished(limit)
                return None
            self._at = end + 2
            skipping, self._skipping = self._skipping, ""
            if skipping == "long":
                continue  # reported when it grew too long
            line = octets[at:end]
            if len(line) > self._limit and len(line) > (limit or self._limit_of(line)):
                raise LineAtFault(replies.R500_LINE_TOO_LONG)
            if skipping or b"\n" in line or b"\r" in line:
                raise LineAtFault(replies.R500_BARE_NEWLINE)
            return line

    def _unfinished(self, limit: int) -> None:
        """Look at a line whose end has not come: it may be at fault already."""
        length = self.pending - self._octets.endswith(b"\r")  # a CR may be the first half of the line's end
        if not length:
            return
        if self._skipping == "long":
            self._drop()
        elif length > self._limit and length > (limit or self._limit_of(self._octets[self._at : self._at + 5])):
            self._drop()
            self._skipping = "long"
            raise LineAtFault(replies.R500_LINE_TOO_LONG)
        elif self._octets.endswith(b"\n"):
            # A client that ends lines so waits for a reply now. Nothing is read from here to the next CR LF: otherwise
            # an attacker who makes a client send a bare LF could give commands in its name.
            self.clear()
            self._skipping = "bare"
            raise LineAtFault(replies.R500_BARE_NEWLINE)

    def _drop(self) -> None:
        """Keep nothing but a CR that the next octets may complete."""
        self._octets = b"\r" if self._octets.endswith(b"\r") else b""
        self._at = 0

    def _limit_of(self, line: bytes) -> int:
        return AUTH_LIMIT if line[: len(_AUTH)].upper() == _AUTH else self._limit
