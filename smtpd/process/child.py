"""child — one of several smtpd processes on the same ports

Owns: what a child makes of its start message, and the order of its parts.
Guarantees: it never notifies systemd; the supervisor does.
See: smtpd/process/child_channel.py, how it hears of reloads and of the supervisor's end.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from shared import lifecycle
from shared.config.smtpd.load import smtpd_from
from shared.observe import events, tracing
from smtpd.connection.sockets import Bound, addresses
from smtpd.process import child_channel, reload
from smtpd.process.channel import Channel
from smtpd.process.metrics import Reporting, counting
from smtpd.process.serve import Serving
from smtpd.rates.client import RemoteCounts

if TYPE_CHECKING:
    from collections.abc import Mapping


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

    async def use(values: Mapping[str, Any]) -> None:
        wanted, _ = reload.effective(config, smtpd_from(values))
        serving.reload(wanted)
        events.setup(wanted.environment.log.level)

    with ExitStack() as stack:
        report = None
        if config.metrics.listen is not None:
            report = Reporting(stack.enter_context(counting()), serving, received["name"]).report
        parts = {
            **serving.parts(),
            "channel": child_channel.listen(channel, answered=counts.answered, report=report, use=use),
            "alive": child_channel.live(channel, report),
        }
        channel.send({"ready": addresses(doors)})
        await lifecycle.serve(parts, "serving", serving.stop)
        await tracing.close()
        if report is not None:
            channel.send({"report": await report()})
    channel.close()
