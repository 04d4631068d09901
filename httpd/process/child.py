"""child — one of several httpd processes on the same port

Owns: what a child makes of its start message, and the order of its parts.
Guarantees: it never notifies systemd; the supervisor does.
See: smtpd/process/child_channel.py, how it hears of reloads and of the supervisor's end.
"""

from __future__ import annotations

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
from shared.observe import events
from smtpd.process import child_channel
from smtpd.process.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Mapping


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

    async def use(values: Mapping[str, Any]) -> None:
        wanted, _ = reload.effective(config, httpd_from(values))
        await serving.use(wanted)
        events.setup(wanted.environment.log.level)

    async with AsyncExitStack() as stack:
        stack.push_async_callback(serving.close)
        report = None
        if config.metrics.listen is not None:
            reporting = Reporting(stack.enter_context(counting()), serving, given["name"])
            stack.push_async_callback(reporting.close)
            report = reporting.report
        bound = socket.socket(fileno=listening)
        await serving.open(bound)
        parts = {
            **serving.parts(),
            "channel": child_channel.listen(channel, answered=asking.answered, report=report, use=use),
            "alive": child_channel.live(channel, report),
        }
        where = door.address(bound)
        channel.send({"ready": where})
        await lifecycle.serve(parts, f"listening {where}", serving.stop)
        if report is not None:
            channel.send({"report": await report()})
    channel.close()
