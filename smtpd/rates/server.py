"""server — counts the hits and sessions of all smtpd processes of a host

Owns: the counters, and the answers to the processes.
Guarantees: exact: one counter, one thread, each question answered whole before the next. A process that dies takes
    its sessions with it.
See: anvil(8), which does the same for Postfix.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from smtpd.rates.counters import Hits, Limit, SessionCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class RateServer:
    """Counts for every process of the host; `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._hits = Hits()
        self._sessions = SessionCounter()
        self._tokens: dict[int, set[int]] = {}

    def hit(self, limits: Sequence[Limit], n: int) -> float:
        """Count n hits; the seconds until they would be allowed, 0 when they were counted."""
        return self._hits.hit(limits, n, self._clock())

    def open(
        self, process: int, token: int, sessions: Iterable[tuple[str, int]], limits: Sequence[Limit]
    ) -> tuple[bool, float]:
        """Count a session of a process, and its connection: whether it fits, and the seconds to wait for the rate."""
        if not self._sessions.open((process, token), sessions):
            return False, 0.0
        wait = self.hit(limits, 1)
        if wait:
            self._sessions.close((process, token))
        else:
            self._tokens.setdefault(process, set()).add(token)
        return True, wait

    def close(self, process: int, token: int) -> None:
        """A session of a process has ended."""
        self._sessions.close((process, token))
        self._tokens.get(process, set()).discard(token)

    def asked(self, process: int, question: dict[str, object], reply: Callable[[dict[str, object]], None]) -> None:
        """Answer a child (smtpd.process.supervisor.Counting)."""
        found = answer(self, process, question)
        if found is not None:
            reply(found)

    def gone(self, process: int) -> None:
        """A process has ended, and every session of it."""
        for token in self._tokens.pop(process, ()):
            self._sessions.close((process, token))


class LocalRateCounts:
    """Counts of a process that is alone (smtpd.rates.limits.RateCounts)."""

    def __init__(self, server: RateServer) -> None:
        self._server = server

    async def hit(self, limits: Sequence[Limit], n: int) -> float:
        """As in Counts."""
        return self._server.hit(limits, n)

    async def open(
        self, token: int, sessions: Sequence[tuple[str, int]], limits: Sequence[Limit]
    ) -> tuple[bool, float]:
        """As in Counts."""
        return self._server.open(0, token, sessions, limits)

    def close(self, token: int) -> None:
        """As in Counts."""
        self._server.close(0, token)


def answer(server: RateServer, process: int, question: dict[str, object]) -> dict[str, object] | None:
    """The answer to one question of a process (smtpd.rates.client asks them); None where none is awaited."""
    match question:
        case {"ask": "hit", "id": number, "limits": list(limits), "n": int(hits)}:
            return {"id": number, "wait": server.hit([Limit(*each) for each in limits], hits)}
        case {"ask": "open", "id": number, "token": int(token), "sessions": list(sessions), "limits": list(limits)}:
            fits, wait = server.open(
                process, token, [(key, most) for key, most in sessions], [Limit(*each) for each in limits]
            )
            return {"id": number, "fits": fits, "wait": wait}
        case {"ask": "close", "token": int(token)}:
            server.close(process, token)
            return None
        case _:
            raise ValueError(f"no such question: {question!r}")
