"""memory — measures smtpd's memory with idle sessions and with large messages

Owns: two figures: the proportional set size of all smtpd processes with many idle sessions, and their peak resident set
    while large messages arrive at once. Each is also shown as the increase since the start.
Guarantees: smtpd may answer 452 (RFC 5321 section 4.2.2) to a message beyond the budget for content; such messages are
    counted separately. Any other refusal is an error.
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
    """Proportional set size with `sessions` connections that are idle after EHLO."""
    raise_open_files()
    before = smtpd.memory()
    async with AsyncExitStack() as stack:
        for _ in range(sessions):
            await stack.enter_async_context(connected(smtpd.port))
        after = smtpd.memory()
    return {"MiB": after / _MIB, "above start, MiB": (after - before) / _MIB}


async def large(smtpd: Smtpd, messages: int, size: int) -> dict[str, float]:
    """Peak resident set while `messages` of `size` octets arrive at once, each in its own session."""
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
    """The peak resident octets of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
