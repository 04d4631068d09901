"""timed_wait — waits for an event, but not for longer than a time"""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Return when the event is set, or after so many seconds; whether it came. None: wait however long it takes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False
