"""workers — runs a function on many portions, in this process or in several

Owns: the processes, their priority, and telling how many portions are done.
Guarantees: results are in the order of the portions; a worker's error is raised here as it is. Nothing of Spark is
    needed: what an export can do is limited by PostgreSQL, which reads for it.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from scripts.analytics import priority
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: One for each core, and a few at most: each has a connection, whose process at PostgreSQL does not run after mail.
JOBS: Final = min(4, os.cpu_count() or 1)


class Runner(Protocol):
    """Runs a function on portions."""

    def run[P, A](self, function: Callable[[P], A], portions: Sequence[P], tell: Callable[[int], None]) -> list[A]:
        """The function's results, in the order of the portions."""


class Here:
    """Runs one portion after another in this process."""

    def run[P, A](self, function: Callable[[P], A], portions: Sequence[P], tell: Callable[[int], None]) -> list[A]:
        """The function's results, in the order of the portions."""
        answers = []
        for portion in portions:
            answers.append(function(portion))
            tell(len(answers))
        return answers


class Processes:
    """Runs portions in several processes."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run[P, A](self, function: Callable[[P], A], portions: Sequence[P], tell: Callable[[int], None]) -> list[A]:
        """The function's results, in the order of the portions."""
        answers = []
        try:
            for answer in self._pool.map(function, portions):
                answers.append(answer)
                tell(len(answers))
        except BrokenProcessPool:
            raise PillarboxError("a worker process was killed; run it again") from None
        return answers


@contextmanager
def started(jobs: int = JOBS) -> Iterator[Runner]:
    """Workers for the block, in the time that mail leaves; with one job, this process."""
    priority.only_in_idle_time()
    if jobs == 1:
        yield Here()
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn) as pool:
        try:
            yield Processes(pool)
        finally:
            pool.shutdown(cancel_futures=True)
