"""proofs — checks a proof and counts it, even if the client hangs up

Owns: the order of ban, count, check and ban; the events of refused logins.
Guarantees: a check that has begun ends: hanging up does not avoid the count of a failure or leave a success counted
    as one. Trouble of ours does not count as a failure.
Raises: NotProven, with its cost; Banned; the exceptions of the check.
See: smtpd/login/failures.py for the arithmetic.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from smtpd.login.failures import Failures

_SHOWN: Final = 128  # characters of a name in the log


class NotProven(Exception):
    """A login failed; `name` as far as the client said one. The reason is for the log."""

    def __init__(self, reason: str, name: str = "") -> None:
        super().__init__(reason)
        self.name = name
        self.seconds: float | None = None  # its reply waits; None: not counted yet


class Proofs:
    """Those under way in this process."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._tasks: set[asyncio.Task[Any]] = set()

    async def judged[T](self, address: str, name: str, mechanism: str, look: Callable[[], Awaitable[T]]) -> T:
        """The result of `look`, counted before and taken back after unless it raises NotProven. Raises Banned too."""
        return await self._whole(self._judged(address, name, mechanism, look))

    async def failed(self, address: str, mechanism: str, reason: NotProven) -> float:
        """Count what failed without a proof, unless it is counted; seconds its reply waits."""
        if reason.seconds is None:
            await self._whole(self._failed(address, mechanism, reason))
        return reason.seconds or 0.0

    async def close(self) -> None:
        """Give up the check that is under way; it does not count as a failure."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _judged[T](self, address: str, name: str, mechanism: str, look: Callable[[], Awaitable[T]]) -> T:
        attempt = await self._failures.begin(address, name)
        try:
            proven = await look()
        except NotProven as reason:
            _refused(address, mechanism, reason, await self._failures.wrong(attempt))
            raise
        except BaseException:
            await self._failures.right(attempt)
            raise
        await self._failures.right(attempt)
        return proven

    async def _failed(self, address: str, mechanism: str, reason: NotProven) -> None:
        _refused(address, mechanism, reason, await self._failures.failed(address, reason.name))

    async def _whole[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end, even if the caller that waits here is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        await asyncio.wait([task])
        return task.result()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, though no caller may wait for it any more


def _refused(address: str, mechanism: str, reason: NotProven, cost: tuple[float, bool]) -> None:
    """Log the login."""
    reason.seconds, banned = cost
    user = reason.name[:_SHOWN] or None
    events.emit(
        "authenticate.refused", client=address, user=user, mechanism=mechanism, reason=reason, seconds=reason.seconds
    )
    if banned:
        events.emit("authenticate.banned", client=address, user=user)
