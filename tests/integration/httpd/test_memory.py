"""test_memory — requests with files at the same time take a few times their own size of httpd's memory, and no more

Owns: the peak of a real httpd's memory beside `limits.bodies`, whose default is to leave room in a container's 512 MiB.
"""

from __future__ import annotations

import asyncio
import os
import re
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api

_MIB: Final = 1 << 20
_FILE: Final = 3 * _MIB
_REQUESTS: Final = 16


async def test_requests_with_files_take_a_few_times_their_size(api: Api) -> None:
    client = await api.caller("shop")
    content = b64encode(os.urandom(_FILE)).decode()
    mail = {"from": "shop@example.com", "to": "ann@example.net", "text": "Your invoice."}
    files = {"attachments": [{"filename": "invoice.pdf", "content": content}]}
    assert (await client.post("/v1/messages", json=mail)).status_code == 202
    before = most(api.daemon.pid)
    answers = await asyncio.gather(*(client.post("/v1/messages", json={**mail, **files}) for _ in range(_REQUESTS)))
    assert [answer.status_code for answer in answers] == [202] * _REQUESTS
    grown = most(api.daemon.pid) - before
    assert grown < 3 * _REQUESTS * len(content), f"{grown / _MIB:.0f} MiB for {_REQUESTS * len(content) / _MIB:.0f}"


def most(pid: int) -> int:
    """The most octets of memory that a process has held."""
    status = Path(f"/proc/{pid}/status").read_text()
    [found] = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found) * 1024
