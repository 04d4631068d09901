"""feedback — how many connections a destination may have after another success or failure

Owns: the arithmetic of Postfix's concurrency scheduler: window, hysteresis and failed cohorts.
Guarantees: pure. The window is 0, which means dead, or between 1 and the limit. It grows only while it is used.
See: Postfix SCHEDULER_README, "Concurrency scheduling", and qmgr_queue.c: the same order of steps, so that a window
    moves as an operator of Postfix expects. Positive feedback that ends its cycle restarts the negative one, and
    the other way round; a success ends a run of failures.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from shared.config.queued.feedback import Step

# Sums of fractions such as 1/3 come out a little below 1 (Postfix FEEDBACK_GRACE).
_GRACE: Final = 1e-6
_DEAD: Final = 0


class Steering(NamedTuple):
    """The steps of a window: see shared.config.queued.feedback for each."""

    initial: int = 5
    limit: int = 20
    positive: Step = "1/concurrency"
    negative: Step = "1/concurrency"
    cohorts: int = 1


class Window(NamedTuple):
    """How many attempts may go on at once, and the feedback gathered towards its next change."""

    width: int
    success: float = 0.0
    failure: float = 0.0
    cohorts: float = 0.0

    @property
    def dead(self) -> bool:
        """Whether nothing is to be tried until it is asked after."""
        return self.width == _DEAD


#: The window of a destination that is to be left alone.
DEAD: Final = Window(_DEAD)


def begin(steering: Steering) -> Window:
    """The window of a destination nothing is known of."""
    return Window(min(steering.initial, steering.limit))


def succeed(window: Window, active: int, steering: Steering) -> Window:
    """After an attempt that reached the destination, while `active` others go on."""
    if window.dead:
        # Back from nearly the grave: the best concurrency is anyone's guess.
        return Window(min(active or steering.initial, steering.limit))
    width, success, failure = window.width, window.success, window.failure
    if width == steering.limit and success >= 0 and not window.cohorts:
        return window  # as wide as may be, and nothing to forget
    if width < steering.limit and width < active + 1 + steering.initial:
        success += _step(steering.positive, width)
        while success + _GRACE >= 1 and width < steering.limit:
            width, success, failure = width + 1, success - 1, 0.0
    return Window(width, max(success, 0.0), failure)


def fail(window: Window, steering: Steering) -> Window:
    """After an attempt that failed by the destination's fault."""
    if window.dead:
        return window
    cohorts = window.cohorts + 1 / window.width
    if steering.cohorts and cohorts + _GRACE >= steering.cohorts:
        return DEAD
    width, success = window.width, window.success
    # It takes effect at the start of its cycle, growth at the end: caution comes first.
    failure = window.failure - _step(steering.negative, width)
    while failure + _GRACE < 0:
        width, success, failure = width - 1, 0.0, failure + 1
    return Window(max(width, 1), success, failure, cohorts)


def narrow(window: Window, most: int) -> Window:
    """After a host refused one connection more than these: its word, and no failure."""
    return window if window.width <= most else Window(max(most, 1), 0.0, window.failure, window.cohorts)


def _step(step: Step, width: int) -> float:
    return {"1": 1.0, "1/concurrency": 1 / width, "1/sqrt_concurrency": 1 / sqrt(width)}[step]
