"""data_reader — finds the end of DATA and takes the dots out, block by block

Owns: the octets between 354 and the final reply, as a value machine without I/O.
Called by: smtpd.protocol.
Guarantees: only CR LF . CR LF ends the data; LF . LF, CR . CR and every other mixture are content (RFC 5321 section
    4.1.1.4). Memory is bounded: past the limit the content is dropped at once and only the end is looked for.
See: RFC 5321 section 4.5.2 (transparency), section 2.3.8 (lines).
"""

from __future__ import annotations

_END = b"\r\n.\r\n"
_STUFFED = b"\r\n."
# Before its dots are taken out a message may be a little larger than the limit; after that it may not.
_SLACK = 65536


class DataReader:
    """Feed it blocks until it returns the octets that follow the end of data."""

    def __init__(self, limit: int) -> None:
        """`limit` is the largest content in octets, line ends included, stuffed dots not."""
        self._limit = limit
        # The CR LF before the first line makes a dot there look like a dot anywhere else.
        self._buffer = bytearray(b"\r\n")
        self._searched = 0
        self.too_big = False

    def feed(self, block: bytes) -> bytes | None:
        """What follows the end of data, possibly empty; None while the end has not come."""
        self._buffer += block
        end = self._buffer.find(_END, self._searched)
        if end >= 0:
            rest = bytes(self._buffer[end + len(_END) :])
            del self._buffer[end + 2 :]
            return rest
        if len(self._buffer) > self._limit + _SLACK:
            self.too_big = True
            del self._buffer[: 1 - len(_END)]
        self._searched = max(0, len(self._buffer) - len(_END) + 1)
        return None

    def content(self) -> bytes | None:
        """The content with its dots as the client meant them; None when it is larger than the limit."""
        if self.too_big:
            return None
        content = bytes(self._buffer.replace(_STUFFED, b"\r\n")[2:])
        return content if len(content) <= self._limit else None
