"""dead_hosts — remembers for a short time the hosts that could not be reached

Owns: the memory of places where connecting, the greeting or EHLO failed.
Guarantees: pure; bounded: of too many the oldest is forgotten. It never removes a host or moves it behind one that
    is less preferred, so that a wrong memory affects only the order among equals.
See: RFC 5321 section 5.1 (hosts of equal preference); queued/destinations/hosts.py, which leaves dead hosts alone
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from queued.routing.route import Hop

_MOST_HOSTS: Final = 10_000


class DeadHosts:
    """Hosts and ports that did not answer, each for so many seconds."""

    def __init__(self, seconds: float, most: int = _MOST_HOSTS) -> None:
        """`seconds`: how long a host stays dead after it failed; 0 remembers nothing."""
        self._seconds = seconds
        self._most = most
        self._until: dict[tuple[str, int], float] = {}

    def failed(self, hop: Hop, now: float) -> None:
        """It could not be talked to; `now` in monotonic seconds."""
        key = hop.host, hop.port
        self._until.pop(key, None)
        self._until[key] = now + self._seconds
        if len(self._until) > self._most:
            del self._until[next(iter(self._until))]

    def answered(self, hop: Hop) -> None:
        """It talks again."""
        if self._until:
            self._until.pop((hop.host, hop.port), None)

    def is_dead(self, host: str, port: int, now: float) -> bool:
        """Whether it failed so short a time ago."""
        return bool(self._until) and self._until.get((host, port), now) > now
