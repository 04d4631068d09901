"""child — one of several httpd processes on the same port

Owns: the child's end of the channel: its start message, reloads, its signs of life, its questions about rates.
Guarantees: when the supervisor is gone it stops as by SIGTERM, and at the second such sign at once: no process would
    collect it. It never notifies systemd; the supervisor does.
See: smtpd/process/child.py, which does the same for smtpd.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from httpd import reload
from httpd.process.counts import Asking
from httpd.process.metrics import Reporting, counting
from httpd.process.serving import Serving
from httpd.server import door
from httpd.server.certificate import Certificate
from httpd.tally import Tally
from shared import lifecycle
from shared.config.httpd.load import httpd_from
from shared.errors import in_words
from shared.observe import events
from smtpd.process.channel import Channel
from smtpd.process.child import ALIVE

if TYPE_CHECKING:
    from shared.config.httpd.settings import HttpdConfig


async def run(number: int) -> None:
    """Serve as the supervisor at the other end of this file descriptor says, until a signal comes."""
    channel = await Channel.over(socket.socket(fileno=number))
    given = await channel.receive()
    if given is None:
        return
    config = httpd_from(given["values"])
    if given["reload"] is not None:
        config, _ = reload.effective(config, httpd_from(given["reload"]))
    events.setup(config.environment.log.level)
    [(_, _, listening)] = given["doors"]
    asking = Asking(channel, config.processes)
    tally = Tally(config.processes, given["number"], given["tally"])
    certificate = Certificate(config.tls) if config.tls else None
    serving = await Serving.made(
        Path(given["path"]), config, given["conninfo"], tally, asking.keys, asking.mail, certificate
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(serving.close)
        reporting = None
        if config.metrics.listen is not None:
            reporting = Reporting(stack.enter_context(counting()), serving, given["name"])
            stack.push_async_callback(reporting.close)
        bound = socket.socket(fileno=listening)
        await serving.open(bound)
        parts = {
            **serving.parts(),
            "channel": _listen(channel, serving, asking, config, reporting),
            "alive": _live(channel, reporting),
        }
        where = door.address(bound)
        channel.send({"ready": where})
        await lifecycle.serve(parts, f"listening {where}", serving.stop)
        if reporting is not None:
            channel.send({"report": await reporting.report()})
    channel.close()


async def _listen(
    channel: Channel, serving: Serving, asking: Asking, config: HttpdConfig, reporting: Reporting | None
) -> None:
    """Act on what the supervisor says."""
    async for message in channel:
        if "wait" in message:
            asking.answered(message)
        elif "report" in message and reporting is not None:
            channel.send({"report": await reporting.report()})
        elif "reload" in message:
            channel.send(await _reloaded(message, serving, config))
    # The supervisor is gone. The second time the signal has its default effect: the kill was meant.
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()


async def _reloaded(message: dict[str, Any], serving: Serving, config: HttpdConfig) -> dict[str, Any]:
    """The result of a reload; a child that cannot use a configuration that the supervisor could use keeps its own."""
    try:
        wanted, _ = reload.effective(config, httpd_from(message["reload"]))
        await serving.use(wanted)
    except Exception as error:  # noqa: BLE001 - it goes on with what it has
        return {"reloaded": message["generation"], "error": in_words(error)}
    events.setup(wanted.environment.log.level)
    return {"reloaded": message["generation"], "error": None}


async def _live(channel: Channel, reporting: Reporting | None) -> None:
    """Say that the event loop turns, and what was counted: this process may die without another word."""
    while True:
        channel.send({"alive": True} if reporting is None else {"report": await reporting.report()})
        await asyncio.sleep(ALIVE)
