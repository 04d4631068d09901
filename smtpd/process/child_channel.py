"""child_channel — a child's end of the channel to its supervisor, the same for every daemon with several processes

Guarantees: a reload that a child cannot use changes nothing in it, and the supervisor learns why. When the supervisor
    is gone the child stops as by SIGTERM, and at the second such sign at once: no process would collect it.
See: smtpd/process/supervisor.py, the other end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, Final

from shared.errors import in_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from smtpd.process.channel import Channel

    type Report = Callable[[], Awaitable[dict[str, Any]]]

ALIVE: Final = 5.0  # seconds between two signs of life


async def listen(
    channel: Channel,
    *,
    answered: Callable[[dict[str, Any]], None],
    report: Report | None,
    use: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> None:
    """Act on what the supervisor says.

    answered: takes the answer to a question about rates. report: what was counted; None without metrics. use: goes on
    by the configuration of these values, or raises.
    """
    async for message in channel:
        if "wait" in message:
            answered(message)
        elif "report" in message and report is not None:
            channel.send({"report": await report()})
        elif "reload" in message:
            channel.send({"reloaded": message["generation"], "error": await _fault(use, message["reload"])})
    # The supervisor is gone. The second time the signal has its default effect: the kill was meant.
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()


async def live(channel: Channel, report: Report | None) -> None:
    """Say that the event loop turns, and what was counted: this process may die without another word."""
    while True:
        channel.send({"alive": True} if report is None else {"report": await report()})
        await asyncio.sleep(ALIVE)


async def _fault(use: Callable[[Mapping[str, Any]], Awaitable[None]], values: Mapping[str, Any]) -> str | None:
    """Why a configuration that the supervisor could use cannot be used here; the child then keeps its own."""
    try:
        await use(values)
    except Exception as error:  # noqa: BLE001 - it goes on with what it has
        return in_words(error)
    return None
