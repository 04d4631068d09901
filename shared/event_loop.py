"""event-loop — runs a daemon's asynchronous main on uvloop

Owns: the daemons' choice of event loop. uvloop's is written in C on libuv: a worker and smtpd spend a tenth less
    processor time for each message than on asyncio's own, and deliver a sixth more from a full queue.
Guarantees: as asyncio.run: SIGINT cancels `main`, remaining tasks are cancelled, and the loop is closed. What was
    loaded before is never looked at again by the garbage collector: with it, a full collection stops a busy worker for
    half a second. Full collections are rare.
See: docs/explanation/benchmarks-flow.md.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Final

import uvloop

if TYPE_CHECKING:
    from collections.abc import Coroutine

# So many objects more begin a collection of the youngest, so many of these one of the middle, which takes 20 ms, and so
# many of those a full one: up to 0.3 s where thousands of domains are remembered. Python has 2000, 10 and 10.
_COLLECT: Final = (5000, 4, 100)


def new() -> asyncio.AbstractEventLoop:
    """A loop as the daemons have it; tests of what listens and talks run on it too."""
    return uvloop.new_event_loop()


def run[T](main: Coroutine[object, object, T]) -> T:
    """Run to its end and return what it returns."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)
    return asyncio.run(main, loop_factory=new)
