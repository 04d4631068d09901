"""rate_client — asks the supervisor's counts, and does not wait for it

Owns: a child's questions about rates and the answers it waits for.
Called by: smtpd.rates, through Counts; smtpd.child brings the answers.
Guarantees: an answer that does not come within PATIENCE, or cannot come any more, lets the client in: a mail server
    that counts badly is better than one that stands still. That is an event, once a minute at most.
"""

from __future__ import annotations

import asyncio
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from shared import events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from smtpd.rate_count import Limit

PATIENCE: Final = 0.05  # seconds
_QUIET: Final = 60.0  # seconds between two events


class RemoteCounts:
    """Counts kept by another process (smtpd.rates.Counts); `send` takes a question to it, `answered` its answers."""

    def __init__(self, send: Callable[[dict[str, object]], None]) -> None:
        self._send = send
        self._numbers = count(1)
        self._awaited: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._said = -_QUIET

    async def hit(self, limits: Sequence[Limit], n: int) -> float:
        """As in Counts."""
        answer = await self._ask({"ask": "hit", "limits": limits, "n": n})
        return float(answer["wait"]) if answer else 0.0

    async def open(
        self, token: int, sessions: Sequence[tuple[str, int]], limits: Sequence[Limit]
    ) -> tuple[bool, float]:
        """As in Counts."""
        answer = await self._ask({"ask": "open", "token": token, "sessions": sessions, "limits": limits})
        return (bool(answer["fits"]), float(answer["wait"])) if answer else (True, 0.0)

    def close(self, token: int) -> None:
        """As in Counts."""
        self._send({"ask": "close", "token": token})

    def answered(self, answer: dict[str, Any]) -> None:
        """An answer has come; too late, perhaps, for anybody to want it."""
        awaited = self._awaited.get(answer["id"])
        if awaited is not None and not awaited.done():
            awaited.set_result(answer)

    async def _ask(self, question: dict[str, object]) -> dict[str, Any] | None:
        number = next(self._numbers)
        awaited = self._awaited[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({**question, "id": number})
            async with asyncio.timeout(PATIENCE):
                answer: dict[str, Any] = await awaited
                return answer
        except (TimeoutError, OSError) as error:
            if monotonic() - self._said > _QUIET:
                self._said = monotonic()
                events.emit("rates.unanswered", ask=question["ask"], error=repr(error))
            return None
        finally:
            del self._awaited[number]
