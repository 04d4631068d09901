"""runner — runs a function on many portions, on Spark or in this process

Owns: handing portions to Spark's workers and reporting how many are done.
Guarantees: results are in the order of the portions; rows never pass through Java. A worker's PillarboxError is raised
    here with the same type and text.
Raises: PillarboxError.
"""

from __future__ import annotations

import importlib
import re
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING, Final, Protocol

from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

_LOOK: Final = 0.5  # seconds between looks at Spark's progress
# The line of an exception in Python's or Java's stack trace; before Java's there is a colon.
_NAMED: Final = re.compile(r"(?:: )?(?:[\w$]+\.)*[A-Z][\w$]*: \S")
_RAISED: Final = re.compile(r"^((?:scripts|shared)\.[\w.]+)\.(\w+): (.+)$", re.MULTILINE)


class Runner(Protocol):
    """Runs a function on portions."""

    at_once: int  # threads that may call `run` concurrently, so that none waits for another's last portion

    def run[P, A](self, function: Callable[[P], A], portions: Sequence[P], tell: Callable[[int], None]) -> list[A]:
        """The function's results, in the order of the portions."""


class Here:
    """Runs one portion after another in this process, for small inputs and tests."""

    at_once = 1

    def run[P, A](self, function: Callable[[P], A], portions: Sequence[P], tell: Callable[[int], None]) -> list[A]:
        """The function's results, in the order of the portions."""
        answers = []
        for portion in portions:
            answers.append(function(portion))
            tell(len(answers))
        return answers


class OnSpark:
    """Runs portions in parallel in Spark's Python workers."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        # With a single worker, PostgreSQL's work for a second day would take the core left for mail.
        self.at_once = min(2, self._context.defaultParallelism)

    def run[P, A](self, function: Callable[[P], A], portions: Sequence[P], tell: Callable[[int], None]) -> list[A]:
        """The function's results, in the order of the portions."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with PySpark
        from pyspark.errors import PySparkException  # noqa: PLC0415 - loaded only for Spark

        if not portions:
            return []
        done = Event()
        group = f"pillarbox-{get_ident()}"
        watch = Thread(target=self._watch, args=(group, done, tell), daemon=True)
        watch.start()
        try:
            self._context.setJobGroup(group, function.__name__)
            return self._context.parallelize(portions, len(portions)).map(function).collect()
        except (Py4JJavaError, PySparkException) as error:
            raise _ours(str(error)) from None
        finally:
            done.set()
            watch.join()

    def _watch(self, group: str, done: Event, tell: Callable[[int], None]) -> None:
        tracker = self._context.statusTracker()
        while not done.wait(_LOOK):
            active = set(tracker.getActiveStageIds())
            for job in tracker.getJobIdsForGroup(group):
                known = tracker.getJobInfo(job)
                for stage in active.intersection(known.stageIds if known is not None else ()):
                    if (found := tracker.getStageInfo(stage)) is not None:
                        tell(found.numCompletedTasks)


def _ours(said: str) -> PillarboxError:
    """A worker's error, from the text of its stack trace; in its own type if that is a PillarboxError."""
    raised = _RAISED.search(said)
    if raised is None:
        line = next(filter(_NAMED.match, said.splitlines()), "a worker failed")
        return PillarboxError(f"Spark: {line.removeprefix(': ').strip()}")
    module, name, text = raised.groups()
    kind = getattr(importlib.import_module(module), name, None)
    known = kind if isinstance(kind, type) and issubclass(kind, PillarboxError) else PillarboxError
    return known(text)
