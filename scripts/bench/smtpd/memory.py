"""memory — what idle sessions and large messages cost smtpd in memory

Owns: the two figures: proportional set size of all its processes with many idle sessions, and the highest resident set
    while large messages arrive at once, each also as what it is above the start.
Guarantees: a message beyond the budget for content may be answered 452 (RFC 5321 section 4.2.2) and is then counted
    apart; any other refusal is an error.
See: proc_pid_smaps(5), proc_pid_status(5) VmHWM.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.bench.core.server import content
from scripts.bench.smtpd.load import RECIPIENT, connected, raise_open_files
from scripts.bench.source import SENDER

if TYPE_CHECKING:
    from scripts.bench.smtpd.ours import Smtpd

_MIB = 2**20


async def idle(smtpd: Smtpd, sessions: int) -> dict[str, float]:
    """Proportional set size with so many sessions that have said EHLO and nothing since."""
    raise_open_files()
    before = smtpd.memory()
    async with AsyncExitStack() as stack:
        for _ in range(sessions):
            await stack.enter_async_context(connected(smtpd.port))
        after = smtpd.memory()
    return {"MiB": after / _MIB, "above start, MiB": (after - before) / _MIB}


async def large(smtpd: Smtpd, messages: int, size: int) -> dict[str, float]:
    """Highest resident set while so many messages of `size` octets arrive at once, each over its own session."""
    text = content(size) + b".\r\n"
    before = sum(_highest(pid) for pid in smtpd.processes())

    async def send() -> int:
        async with connected(smtpd.port) as peer:
            await peer.say(f"MAIL FROM:<{SENDER}>", 250)
            await peer.say(f"RCPT TO:<{RECIPIENT}>", 250)
            code = await peer.say("DATA", 354, 452)
            if code == 354:  # noqa: PLR2004 - RFC 5321 section 4.2.2
                peer.writer.write(text)
                await peer.writer.drain()
                code = await peer.hear(250, 452)
            return code

    codes = await asyncio.gather(*(send() for _ in range(messages)))
    after = sum(_highest(pid) for pid in smtpd.processes())
    return {
        "MiB": after / _MIB,
        "above start, MiB": (after - before) / _MIB,
        "accepted": codes.count(250),
        "answered 452": codes.count(452),
    }


def _highest(pid: int) -> int:
    """The most octets a process has had resident; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
