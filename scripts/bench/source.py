"""source — the smtp-source that submits the mail of a measured burst

Owns: its process, its addresses, and the meaning of its exit status.
Guarantees: it returns only when every message was answered 250, and leaves no process behind.
Raises: PillarboxError otherwise, and when smtp-source is missing; TimeoutError when the burst takes too long.
See: smtp-source(1).
"""

from __future__ import annotations

import asyncio
from typing import Final

from scripts.dev.peers import need_peer
from shared.errors import PillarboxError

SENDER: Final = "source@pillarbox.example"
#: One domain for each half of the partitions, so that both workers have work (six, shared/mail/partition.py).
DOMAINS: Final = ("alder.example", "birch.example")
_PATIENCE: Final = 600.0  # seconds that a burst may take


async def submit(port: int, domain: str, *options: str) -> None:
    """Send mail to one mailbox of this domain; `options` are smtp-source's."""
    words = (*options, "-f", SENDER, "-t", f"sink@{domain}", f"127.0.0.1:{port}")
    source = await asyncio.create_subprocess_exec(need_peer("smtp-source"), *words)
    try:
        status = await asyncio.wait_for(source.wait(), _PATIENCE)
    finally:
        if source.returncode is None:
            source.kill()
            await source.wait()
    if status:
        raise PillarboxError(f"smtp-source ended with status {status}: not every message was accepted")
