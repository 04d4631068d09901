"""overload — decides when a process turns new clients away, and gives the others less time

Owns: the number of this process's sessions, the lag of its event loop, and the decision that follows.
Guarantees: past the limits a new client costs one short reply and no session, so that the clients that are served do
    not wait for the others. Begin and end of it are one event each.
See: https://www.postfix.org/STRESS_README.html; RFC 5321 section 3.8 (421)
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from shared.observe import events
from smtpd import replies

if TYPE_CHECKING:
    from collections.abc import Sized

    from shared.config.smtpd.overload import Load as Settings

_BEAT: Final = 0.1  # seconds between two looks at the clock
_CALM: Final = 1.0  # seconds without a refusal until it is over


class Load:
    """How busy one process is; `open_sessions` holds those it has."""

    def __init__(self, settings: Settings, open_sessions: Sized) -> None:
        self._settings = settings
        self._open = open_sessions
        self._due: float | None = None
        self._lag = 0.0
        self._refused = 0
        self._shedding_since = self._refused_last = 0.0

    def configure(self, settings: Settings) -> None:
        """Use these settings from now on."""
        self._settings = settings

    @property
    def sessions(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def stressed(self) -> bool:
        """Whether so many sessions are open that each must do with less time."""
        return self.sessions > self._settings.stress * self._settings.sessions

    def patience(self, usual: float) -> float:
        """Seconds a client may stay silent, `usual` when there is room for all."""
        return min(usual, self._settings.patience.total_seconds()) if self.stressed else usual

    @property
    def lag(self) -> float:
        """Seconds the event loop is late: at the last beat, or by now if the next one is overdue."""
        overdue = 0.0 if self._due is None else asyncio.get_running_loop().time() - self._due
        return max(self._lag, overdue)

    def refusal(self) -> str | None:
        """The reply to a new client in place of a greeting; None when it is accepted."""
        if self.sessions >= self._settings.sessions:
            reason = "sessions"
        elif self.lag > self._settings.lag.total_seconds():
            reason = "lag"
        else:
            return None
        return self._refuse(reason)

    def refusal_of_stranger(self) -> str | None:
        """The reply to a client that may not relay, when only sessions reserved for those that may are left."""
        most = self._settings.sessions
        if self.sessions <= most - int(self._settings.reserve * most):
            return None
        return self._refuse("reserve")

    def _refuse(self, reason: str) -> str:
        self._refused_last = asyncio.get_running_loop().time()
        if not self._refused:
            self._shedding_since = self._refused_last
            events.emit("load.shedding", reason=reason, sessions=self.sessions, lag=self.lag)
        self._refused += 1
        events.emit("load.refused", reason=reason)
        return replies.R421_TOO_BUSY

    async def watch(self) -> None:
        """Look at the clock until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._due = loop.time() + _BEAT
            await asyncio.sleep(_BEAT)
            now = loop.time()
            self._lag = now - self._due
            if self._refused and now - self._refused_last > _CALM:
                events.emit("load.restored", refused=self._refused, seconds=self._refused_last - self._shedding_since)
                self._refused = 0
