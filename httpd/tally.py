"""tally — what the processes of httpd hold at this moment, in memory that all of them see

Owns: a row of numbers for each process: octets of bodies, connections, and the changes of mail that it carries on.
Guarantees: a process writes its own row alone, so no lock is needed and each sum is right to within what is being
    written. What a process held is gone with it: the supervisor clears its row.
See: memfd_create(2), mmap(2).
"""

from __future__ import annotations

import mmap
import os
from typing import Final, Self

_WORD: Final = 8  # octets of a number
_BODIES, _CONNECTIONS, _CHANGES = range(3)  # the first change is in the last of these
_MOST_CHANGES: Final = 500  # of one process: half of the most connections that its pool may have


class Tally:
    """The rows, as one process sees them."""

    def __init__(self, processes: int = 1, own: int = 1, file: int | None = None) -> None:
        """`own`: the number of this process, from 1; file: the descriptor that `shared` made, None: for one process."""
        self._columns = _CHANGES + _MOST_CHANGES
        self._processes = processes
        self._row = (own - 1) * self._columns
        octets = processes * self._columns * _WORD
        self._numbers = memoryview(bytearray(octets) if file is None else mmap.mmap(file, octets)).cast("q")

    @classmethod
    def shared(cls, processes: int) -> tuple[Self, int]:
        """The rows of so many processes, and the descriptor of a file that children inherit."""
        file = os.memfd_create("httpd")
        os.ftruncate(file, processes * (_CHANGES + _MOST_CHANGES) * _WORD)
        return cls(processes, 1, file), file

    def hold(self, octets: int) -> int:
        """This process holds so many octets of bodies more, or fewer; how many all of them hold."""
        self._numbers[self._row + _BODIES] += octets
        return self._sum(_BODIES)

    def connected(self, connections: int) -> int:
        """This process has so many connections; how many all of them have."""
        self._numbers[self._row + _CONNECTIONS] = connections
        return self._sum(_CONNECTIONS)

    def begin(self, audit: int) -> None:
        """This process carries on the change with this audit row."""
        self._replace(0, audit)

    def end(self, audit: int) -> None:
        """It does so no more."""
        self._replace(audit, 0)

    def changes(self, audit: int) -> bool:
        """Whether a process carries on this change."""
        return any(
            audit in self._numbers[row + _CHANGES : row + self._columns]
            for row in range(0, self._processes * self._columns, self._columns)
        )

    def clear(self, process: int) -> None:
        """The process of this number has ended."""
        for place in range((process - 1) * self._columns, process * self._columns):
            self._numbers[place] = 0

    def _sum(self, column: int) -> int:
        return sum(self._numbers[column :: self._columns])

    def _replace(self, one: int, other: int) -> None:
        for place in range(self._row + _CHANGES, self._row + self._columns):
            if self._numbers[place] == one:
                self._numbers[place] = other
                return
