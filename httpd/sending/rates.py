"""rates — limits of mail that comes by HTTP, counted by the smtpd of this host

Owns: the connection to smtpd's socket, and what counts where none answers.
Guarantees: while smtpd answers, a limit of `rates` holds for SMTP and HTTP together. Without it httpd counts by itself,
    after what it has let in before, and each door lets in at most as much as the limit. It comes back by itself.
See: smtpd/process/rates_socket.py, which answers; smtpd/rates/client.py for answers that do not come in time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from shared.observe import events
from smtpd.process import rates_socket
from smtpd.process.channel import Channel
from smtpd.rates.client import RemoteCounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from smtpd.rates.counters import Limit

_PAUSE: Final = 1.0  # seconds between two tries to reach smtpd


class SharedCounts:
    """Counts of smtpd and httpd together, all its processes (smtpd.rates.limits.RateCounts)."""

    def __init__(self, var: Path) -> None:
        """`var`: the folder of smtpd.yaml for run-time files."""
        self.var = var
        self._channel: Channel | None = None
        self._counts = RemoteCounts(self._send, 1)

    async def hit(self, limits: Sequence[Limit], n: int) -> float:
        """As in RateCounts."""
        return await self._counts.hit(limits, n)

    async def open(
        self, token: int, sessions: Sequence[tuple[str, int]], limits: Sequence[Limit]
    ) -> tuple[bool, float]:
        """As in RateCounts."""
        return await self._counts.open(token, sessions, limits)

    def close(self, token: int) -> None:
        """As in RateCounts."""
        self._counts.close(token)

    async def run(self) -> None:
        """Keep the connection to smtpd, until cancelled."""
        apart = False
        while True:
            where = str(self.var / rates_socket.NAME)
            try:
                channel = await Channel.over(rates_socket.connect(self.var))
            except OSError as error:
                if not apart:
                    events.emit("rates.apart", socket=where, error=repr(error))
                apart = True
                await asyncio.sleep(_PAUSE)
                continue
            apart, self._channel = False, channel
            events.emit("rates.shared", socket=where)
            try:
                async for message in channel:
                    self._counts.answered(message)
            finally:
                self._channel = None
                self._counts.disconnected()
                channel.close()

    def _send(self, question: Mapping[str, Any]) -> None:
        if self._channel is None:
            raise ConnectionError
        self._channel.send(question)
