"""outcome — the outcome of a task for which several callers may wait

Guarantees: a caller that is cancelled ends neither the task nor the waiting of others. A failure of the task after that
    is not logged as an error, as asyncio.shield logs it from Python 3.14 on.
"""

from __future__ import annotations

import asyncio


async def outcome_of[T](task: asyncio.Future[T], cancelled: type[Exception] | None = None) -> T:
    """What the task returns or raises. CancelledError when this caller was cancelled.

    cancelled: what to raise when the task was cancelled, in place of CancelledError.
    """
    if not task.done():
        await asyncio.wait((task,))
    if cancelled is not None and task.cancelled():
        raise cancelled
    return task.result()
