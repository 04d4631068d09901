"""child — one of several smtpd processes on the same ports

Owns: the child's end of the channel: its start message, reloads, its heartbeats, its questions about rates.
Guarantees: when the supervisor is gone it stops as by SIGTERM, and at the second such sign at once: no process would
    collect it. It never notifies systemd; the supervisor does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from shared import lifecycle
from shared.config.smtpd.load import smtpd_from
from shared.errors import in_words
from shared.observe import events, tracing
from smtpd.connection.sockets import Bound, addresses
from smtpd.process import reload
from smtpd.process.channel import Channel
from smtpd.process.metrics import Reporting, counting
from smtpd.process.serve import Serving
from smtpd.rates.client import RemoteCounts

if TYPE_CHECKING:
    from shared.config.smtpd.settings import SmtpdConfig

ALIVE: Final = 5.0  # seconds between two signs of life


async def run(number: int) -> None:
    """Serve as the supervisor at the other end of this file descriptor says, until a signal comes."""
    channel = await Channel.over(socket.socket(fileno=number))
    received = await channel.receive()
    if received is None:
        return
    config = smtpd_from(received["values"])
    if received["reload"] is not None:
        config, _ = reload.effective(config, smtpd_from(received["reload"]))
    events.setup(config.environment.log.level)
    doors = [Bound(server, listener, socket.socket(fileno=door)) for server, listener, door in received["doors"]]
    counts = RemoteCounts(channel.send, config.processes)
    serving = Serving(config, received["conninfo"], counts)
    await serving.open(doors)
    tracing.setup(config.tracing, "smtpd", received["name"])
    with ExitStack() as stack:
        reporting = None
        if config.metrics.listen is not None:
            reporting = Reporting(stack.enter_context(counting()), serving, received["name"])
        parts = {
            **serving.parts(),
            "channel": _listen(channel, serving, counts, config, reporting),
            "alive": _live(channel, reporting),
        }
        channel.send({"ready": addresses(doors)})
        await lifecycle.serve(parts, "serving", serving.stop)
        await tracing.close()
        if reporting is not None:
            channel.send({"report": reporting.report()})
    channel.close()


async def _listen(
    channel: Channel, serving: Serving, counts: RemoteCounts, config: SmtpdConfig, reporting: Reporting | None
) -> None:
    """Act on what the supervisor says."""
    async for message in channel:
        if "report" in message and reporting is not None:
            channel.send({"report": reporting.report()})
        if "wait" in message:
            counts.answered(message)
        elif "reload" in message:
            channel.send(_reloaded(message, serving, config))
    # The supervisor is gone. The second time the signal has its default effect: the kill was meant.
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()


def _reloaded(message: dict[str, Any], serving: Serving, config: SmtpdConfig) -> dict[str, Any]:
    """The result of a reload; a child that cannot use a configuration that the supervisor could use keeps its own."""
    try:
        wanted, _ = reload.effective(config, smtpd_from(message["reload"]))
        serving.reload(wanted)
    except Exception as error:  # noqa: BLE001 - it goes on with what it has
        return {"reloaded": message["generation"], "error": in_words(error)}
    events.setup(wanted.environment.log.level)
    return {"reloaded": message["generation"], "error": None}


async def _live(channel: Channel, reporting: Reporting | None) -> None:
    """Say that the event loop turns, and what was counted: this process may die without another word."""
    while True:
        channel.send({"alive": True} if reporting is None else {"report": reporting.report()})
        await asyncio.sleep(ALIVE)
