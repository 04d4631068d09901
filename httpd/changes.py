"""changes — changes of mail that go on in the background while their page shows how far they are

Owns: the tasks of this process that change mail, each on a connection of its own; every process knows of them.
Guarantees: a change that is quick is over when its page is shown. A longer one goes on whether somebody watches or
    not, batch by batch; where httpd ends first, its audit row says exactly what was done (operate/queue/act.py). At
    most so many go on at once that half of the connections are left for pages.
Raises: what the change raises before its first batch; Problem 503.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from httpd import problems

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from starlette.requests import Request

    from httpd.tally import Tally
    from operate.queue.act import Change, Done, Watch

_PATIENCE: Final = 1.5  # seconds after which a page that shows the progress is better than none


class Changes:
    """The changes that are under way."""

    def __init__(self, connections: int, tally: Tally) -> None:
        """connections: of the pool."""
        self._tally = tally
        self._most = max(1, connections // 2)
        self._tasks: set[asyncio.Task[Done]] = set()

    def has(self, audit: int) -> bool:
        """Whether the change with this audit row goes on, in this process or another one of this httpd."""
        return self._tally.changes(audit)

    async def begun(self, request: Request, work: Callable[[Watch], Coroutine[object, object, Done]]) -> int:
        """Begin a change; the number of its audit row, once it is over or has taken a moment."""
        if len(self._tasks) >= self._most:
            raise problems.unavailable("other large changes are under way; try again when they are over")
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        @contextmanager
        def watch(_: Change, done: Done) -> Iterator[Callable[[], object]]:
            self._tally.begin(done.audit)
            if not started.done():
                started.set_result(done.audit)
            try:
                yield lambda: None
            finally:
                self._tally.end(done.audit)

        task = asyncio.ensure_future(work(watch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=_PATIENCE)
        if not task.done():
            await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
        if task.done():
            return task.result().audit
        task.add_done_callback(lambda ended: _note(ended, request))
        return started.result()

    async def ended(self) -> None:
        """End what is under way after the batch that is being committed, or before it."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _note(task: asyncio.Task[Done], request: Request) -> None:
    """An error that no page shows is in the log."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, Exception):
        problems.noted(error, request)
