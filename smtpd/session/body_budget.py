"""body_budget — the memory for content in transfer

Owns: the amount of content that all connections of a process hold, and the content of one message while it arrives.
Guarantees: the content never exceeds the budget: octets beyond it are dropped, the message is refused, and its memory
    is given back at once. Only octets that have come take room, never announced ones. However small the pieces, they
    take little more memory than their size. The work for a block depends on its own size alone. Closing twice is
    closing once. Even if any number of unknown clients hold all they can, clients that may relay find room.
See: RFC 5321 section 4.5.3.1.8 (552 for a message too big), section 4.5.3.1.10 (452 for want of room).
"""

from __future__ import annotations

from typing import Final, cast

from smtpd import replies

_JOINED: Final = 4 << 20  # octets that are joined at the end in about a millisecond
STEP: Final = 65536  # octets reserved at a time: most messages need one step
_SMALL: Final = 4096  # octets of a piece that is not worth an object of its own, which takes 33 octets more


class BodyBudget:
    """Octets of content that may be held at once.

    A client that may not relay is a stranger, known by its host; None is for all others.
    """

    def __init__(self, limit: int) -> None:
        """`limit` in octets, for all connections together."""
        self.limit = limit
        self.used = 0
        self._strangers = self._stranger = limit
        self._of_strangers = 0
        self._held: dict[str, int] = {}  # by each of them

    def divide(self, *, share: float, reserve: float, largest: int) -> None:
        """One stranger has `share` of the room at most, all of them what `reserve` leaves, and one message in any case.

        largest: octets of a message.
        """
        least = min(-(-largest // STEP) * STEP, self.limit)
        self._stranger = max(int(share * self.limit), least)
        self._strangers = max(int((1 - reserve) * self.limit), least)

    def fits(self, octets: int, stranger: str | None = None) -> bool:
        """Whether there is room for this much now."""
        return self.used + octets <= self.limit and (
            stranger is None
            or (
                self._of_strangers + octets <= self._strangers
                and self._held.get(stranger, 0) + octets <= self._stranger
            )
        )

    def take(self, octets: int, stranger: str | None = None) -> bool:
        """Reserve this much if there is room."""
        if not self.fits(octets, stranger):
            return False
        self._count(octets, stranger)
        return True

    def give(self, octets: int, stranger: str | None = None) -> None:
        """Return what was taken."""
        self._count(-octets, stranger)

    def _count(self, octets: int, stranger: str | None) -> None:
        self.used += octets
        if stranger is None:
            return
        self._of_strangers += octets
        held = self._held.get(stranger, 0) + octets
        if held:
            self._held[stranger] = held
        else:
            self._held.pop(stranger, None)


class Content:
    """The content of one message as it arrives."""

    __slots__ = ("_budget", "_large", "_limit", "_pieces", "_reserved", "_stranger", "refused", "size")

    def __init__(self, budget: BodyBudget, limit: int, stranger: str | None = None) -> None:
        """`limit` is the largest message in octets; `stranger`: the host of a client that may not relay."""
        self._budget = budget
        self._stranger = stranger
        self._limit = limit
        self._reserved = 0
        self._pieces: list[bytes | bytearray] = []
        self._large: bytearray | None = None
        self.size = 0  # octets that have come, held or not
        self.refused: str | None = None  # the reply, once it cannot be accepted any more

    def add(self, octets: bytes) -> None:
        """More content."""
        self.size += len(octets)
        if self.refused is not None:
            return
        if self.size > self._limit:
            self.refuse(replies.R552_TOO_BIG.format(limit=self._limit))
        elif self.size > self._reserved and not self._reserve(-(-self.size // STEP) * STEP):
            self.refuse(replies.R452_NO_MEMORY)
        elif self._large is not None:
            self._large += octets
        elif self.size <= _JOINED:
            self._keep(octets)
        else:
            self._large = bytearray().join((*self._pieces, octets))
            self._pieces.clear()

    def _reserve(self, octets: int) -> bool:
        """Make sure of room for this much in all."""
        if not self._budget.take(octets - self._reserved, self._stranger):
            return False
        self._reserved = octets
        return True

    def _keep(self, octets: bytes) -> None:
        """Hold one more piece: the first and large ones as they are, small ones joined with their neighbours."""
        if not self._pieces or len(octets) >= _SMALL:
            self._pieces.append(octets)
            return
        last = self._pieces[-1]
        if isinstance(last, bytearray):
            last += octets
        else:
            self._pieces.append(bytearray(octets))

    def refuse(self, reply: str) -> None:
        """Release this message; the first reason is kept."""
        if self.refused is None:
            self.refused = reply
        self.close()

    def octets(self) -> bytes:
        """All of it. Large content is the bytearray it was gathered in, which no longer changes: copies take time.

        The pieces of other content are released: beside it, they would take as much memory again until it is committed.
        """
        if self._large is not None:
            return cast("bytes", self._large)
        if len(self._pieces) != 1 or isinstance(self._pieces[0], bytearray):
            self._pieces = [b"".join(self._pieces)]
        return cast("bytes", self._pieces[0])

    def close(self) -> None:
        """Give back what was reserved."""
        self._budget.give(self._reserved, self._stranger)
        self._reserved = 0
        self._pieces.clear()
        self._large = None
