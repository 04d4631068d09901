"""data_reader — finds the end of DATA and takes the dots out, block by block

Owns: the octets between 354 and the final reply, as a value machine without I/O.
Guarantees: only CR LF . CR LF ends the data; LF . LF, CR . CR and every other mixture are content (RFC 5321 section
    4.1.1.4). At most four octets are kept between blocks; everything else is passed on at once, so that the work for a
    block depends only on its own size.
See: RFC 5321 section 4.5.2 (transparency), section 2.3.8 (lines).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_END = b"\r\n.\r\n"
_STUFFED = b"\r\n."
_LINE_END = b"\r\n"


class DataReader:
    """Feed it blocks until it returns the octets that follow the end of data."""

    __slots__ = ("_add", "_begun", "_tail")

    def __init__(self, add: Callable[[bytes], None]) -> None:
        """`add` takes the content, piece by piece, line ends included, stuffed dots not."""
        self._add = add
        # The CR LF before the first line makes a dot there look like a dot anywhere else.
        self._tail = _LINE_END
        self._begun = False

    def feed(self, block: bytes) -> bytes | None:
        """The octets after the end of data, possibly empty; None while the end has not come."""
        octets = self._tail + block if self._tail else block
        # Both at memory speed. Only between these may there be anything to do; most large content has no dot at all.
        first, last = octets.find(b"."), octets.rfind(b".")
        if first >= 0 and (end := octets.find(_END, max(0, first - 2), last + 3)) >= 0:
            self._hand_on(octets[: end + 2], first, min(last, end))
            return octets[end + len(_END) :]
        kept = _begins_end(octets)
        self._tail = octets[len(octets) - kept :]
        if kept < len(octets):
            self._hand_on(octets[: len(octets) - kept], first, last)
        return None

    def _hand_on(self, octets: bytes, first: int, last: int) -> None:
        """Whole sequences only: a dot after a line end is never cut off from it. `first`, `last`: dots of theirs."""
        stuffed = first >= 0 and octets.find(_STUFFED, max(0, first - 2), last + 1) >= 0
        content = octets.replace(_STUFFED, _LINE_END) if stuffed else octets
        if not self._begun:
            self._begun = True
            content = content[2:]
        if content:
            self._add(content)


def _begins_end(octets: bytes) -> int:
    """How many of the last octets may be the beginning of the end."""
    for length in (4, 3, 2, 1):
        if octets.endswith(_END[:length]):
            return length
    return 0
