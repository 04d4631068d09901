"""memory — measures httpd's memory with idle connections

Owns: the proportional set size of httpd with many connections that are kept after a message, and its increase by them.
See: proc_pid_smaps(5).
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from scripts.bench.http.load import Burst, by_http, opened
from scripts.bench.http.report import SINGLE
from scripts.bench.http.request import forms
from scripts.bench.smtpd.load import raise_open_files

if TYPE_CHECKING:
    from scripts.bench.http.ours import Both

_MIB = 2**20


async def idle(ours: Both, connections: int, text: bytes) -> dict[str, float]:
    """Memory with `connections`, each of which has sent one message; before that, some have sent as many."""
    raise_open_files()
    form = forms(text, 1)[SINGLE]
    await by_http(ours.port, Burst(connections, 20), ours.key, form)  # what the first messages load is no connection's
    before = ours.memory()
    async with AsyncExitStack() as stack:
        for _ in range(connections):
            ask = await stack.enter_async_context(opened(ours.port))
            await ask(form.octets(ours.key))
        after = ours.memory()
    return {"MiB": after / _MIB, "above start, MiB": (after - before) / _MIB}
