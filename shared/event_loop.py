"""event-loop — runs a daemon's asynchronous main on uvloop

Owns: the daemons' choice of event loop. uvloop's is written in C on libuv: a worker and smtpd spend a tenth less
    processor time for each message than on asyncio's own, and deliver a sixth more from a full queue.
Guarantees: as asyncio.run: SIGINT cancels `main`, remaining tasks are cancelled, and the loop is closed. What was
    loaded before is never looked at again by the garbage collector: with it, a full collection stops a busy worker for
    half a second.
See: docs/explanation/benchmarks-flow.md.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import uvloop

if TYPE_CHECKING:
    from collections.abc import Coroutine


def new() -> asyncio.AbstractEventLoop:
    """A loop as the daemons have it; tests of what listens and talks run on it too."""
    return uvloop.new_event_loop()


def run[T](main: Coroutine[object, object, T]) -> T:
    """Run to its end and return what it returns."""
    gc.collect()
    gc.freeze()
    return asyncio.run(main, loop_factory=new)
