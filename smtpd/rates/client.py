"""client — asks the counting process for counts, with bounded waiting

Owns: the questions of a child of smtpd, or of another daemon, about rates; the answers it waits for, and its own counts
    where none comes.
Guarantees: while answers come within `patience`, limits are exact over all processes. Without an answer in its time,
    this process counts against its share of the limit, `most` divided by the processes and one at least, after what it
    has let in before. So however long answers are missing, and for whatever reason, all processes together let in at
    most as much as the limit a second time, or one each where there are more processes than that. A ban that this
    process has caused or met stays in force meanwhile. Missing answers are an event, once a minute at most. Questions
    that wait for an answer are bounded, so a process that stands still costs no memory and finds few to catch up with.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from shared.observe import events
from smtpd.rates.counters import Hits, Limit, SessionCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PATIENCE: Final = 0.05  # seconds
_QUIET: Final = 60.0  # seconds between two events
_UNANSWERED: Final = 1000  # questions; above that none is asked, and they count as unanswered
_REMEMBERED: Final = 20_000  # keys of each kind


class RemoteCounts:
    """Counts kept by another process (smtpd.rates.limits.RateCounts).

    `send` takes a question to it, `answered` its answers; ConnectionError of `send`: there is none to be asked now.
    """

    def __init__(
        self,
        send: Callable[[dict[str, object]], None],
        processes: int,
        clock: Callable[[], float] = monotonic,
        *,
        patience: float = PATIENCE,
    ) -> None:
        """`processes`: how many share the limits; patience: seconds to wait for an answer."""
        self._patience = patience
        self._send = send
        self._processes = processes
        self._clock = clock
        self._hits = Hits(_REMEMBERED)  # the hits that this process let in
        self._sessions = SessionCounter()  # those of this process
        self._numbers = count(1)
        self._awaited: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._unanswered: set[int] = set()  # those asked, also when no longer awaited
        self._tokens: set[int] = set()  # of sessions that the other process was asked about
        self._said = -_QUIET

    async def hit(self, limits: Sequence[Limit], n: int) -> float:
        """As in Counts."""
        answer = await self._ask({"ask": "hit", "limits": limits, "n": n})
        if answer is None or n < 0:
            return self._hits.hit(self._shares(limits), n, self._clock())
        return self._noted(limits, n, float(answer["wait"]))

    async def open(
        self, token: int, sessions: Sequence[tuple[str, int]], limits: Sequence[Limit]
    ) -> tuple[bool, float]:
        """As in Counts."""
        answer = await self._ask({"ask": "open", "token": token, "sessions": sessions, "limits": limits})
        if answer is None:
            return self._open_alone(token, sessions, limits)
        wait = float(answer["wait"])
        if answer["fits"]:
            self._noted(limits, 1, wait)
            if not wait:
                self._sessions.open(token, [(key, sys.maxsize) for key, _ in sessions])
        return bool(answer["fits"]), wait

    def close(self, token: int) -> None:
        """As in Counts."""
        self._sessions.close(token)
        if token in self._tokens:
            self._tokens.discard(token)
            with suppress(ConnectionError):
                self._send({"ask": "close", "token": token})

    def disconnected(self) -> None:
        """The other process is gone, with all questions and sessions; the next one knows nothing of them."""
        self._unanswered.clear()
        self._tokens.clear()

    def answered(self, answer: dict[str, Any]) -> None:
        """An answer has come, perhaps too late to be used."""
        self._unanswered.discard(answer["id"])
        awaited = self._awaited.get(answer["id"])
        if awaited is not None and not awaited.done():
            awaited.set_result(answer)

    def _open_alone(
        self, token: int, sessions: Sequence[tuple[str, int]], limits: Sequence[Limit]
    ) -> tuple[bool, float]:
        """The same by what this process knows. The question is counted when it is read, so a refusal is taken back."""
        fits = self._sessions.open(token, [(key, self._share(most)) for key, most in sessions])
        wait = self._hits.hit(self._shares(limits), 1, self._clock()) if fits else 0.0
        if not fits or wait:
            self.close(token)
        return fits, wait

    def _noted(self, limits: Sequence[Limit], n: int, wait: float) -> float:
        """Remember the hits that were let in or refused, for times without answers."""
        self._hits.note(self._shares(limits), n, wait, self._clock())
        return wait

    def _share(self, most: int) -> int:
        return max(1, most // self._processes)

    def _shares(self, limits: Sequence[Limit]) -> list[Limit]:
        return [limit._replace(most=self._share(limit.most)) for limit in limits]

    async def _ask(self, question: dict[str, object]) -> dict[str, Any] | None:
        number = next(self._numbers)
        awaited = self._awaited[number] = asyncio.get_running_loop().create_future()
        try:
            if len(self._unanswered) >= _UNANSWERED:
                raise TimeoutError(f"{_UNANSWERED} questions wait for an answer")  # noqa: TRY301
            self._send({**question, "id": number})
            self._unanswered.add(number)
            if isinstance(token := question.get("token"), int):
                self._tokens.add(token)
            async with asyncio.timeout(self._patience):
                answer: dict[str, Any] = await awaited
                return answer
        except ConnectionError:
            return None
        except (TimeoutError, OSError) as error:
            if monotonic() - self._said > _QUIET:
                self._said = monotonic()
                events.emit("rates.unanswered", ask=question["ask"], error=repr(error))
            return None
        finally:
            del self._awaited[number]
