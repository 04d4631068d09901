"""test_feedback — a window moves as in Postfix's examples

Owns: examples for queued/destinations/feedback.py; tests/property/queued/test_destinations.py has every history.
See: Postfix SCHEDULER_README, "Concurrency scheduling".
"""

from __future__ import annotations

from queued.destinations.feedback import Steering, Window, begin, fail, succeed

STEADY = Steering()
FIXED = Steering(positive="1", negative="1")
PATIENT = Steering(cohorts=0)


def successes(window: Window, count: int, steering: Steering = STEADY) -> Window:
    for _ in range(count):
        window = succeed(window, window.width - 1, steering)
    return window


def failures(window: Window, count: int, steering: Steering = STEADY) -> Window:
    for _ in range(count):
        window = fail(window, steering)
    return window


def test_a_window_begins_with_the_initial_concurrency_within_the_limit() -> None:
    assert begin(STEADY).width == 5
    assert begin(Steering(initial=5, limit=2)).width == 2


def test_one_round_of_successes_adds_one_connection() -> None:
    window = begin(STEADY)
    assert successes(window, 4).width == 5
    assert successes(window, 5).width == 6
    assert successes(window, 5 + 6).width == 7


def test_a_window_grows_to_the_limit_and_stays_there() -> None:
    assert successes(begin(STEADY), sum(range(5, 20))).width == 20
    assert successes(begin(STEADY), 5000).width == 20


def test_every_success_adds_one_with_a_fixed_step() -> None:
    assert [successes(begin(FIXED), n, FIXED).width for n in (1, 2, 15, 16)] == [6, 7, 20, 20]


def test_an_unused_window_does_not_grow() -> None:
    """Postfix leaves a margin of the initial concurrency."""
    assert succeed(Window(20), 1, Steering(limit=50)) == Window(20)
    assert succeed(Window(6), 0, FIXED) == Window(6)
    assert succeed(Window(5), 0, FIXED).width == 6


def test_the_first_failure_removes_one_connection_at_once() -> None:
    window = failures(Window(10), 1, PATIENT)
    assert window.width == 9
    assert failures(window, 8, PATIENT).width == 9, "the rest of the round is the same trouble"
    assert failures(window, 10, PATIENT).width == 8


def test_a_live_window_never_falls_below_one() -> None:
    assert failures(begin(PATIENT), 1000, PATIENT).width == 1


def test_a_cohort_of_failures_kills_the_window() -> None:
    assert [failures(begin(STEADY), n).dead for n in range(7)] == [False] * 5 + [True, True]


def test_more_cohorts_take_longer() -> None:
    assert not failures(begin(STEADY), 6, Steering(cohorts=2)).dead
    assert failures(begin(STEADY), 20, Steering(cohorts=2)).dead


def test_a_success_ends_a_run_of_failures() -> None:
    window = begin(STEADY)
    for _ in range(50):
        window = succeed(failures(window, 2), 1, STEADY)
    assert not window.dead


def test_a_revived_window_begins_with_the_running_attempts() -> None:
    assert succeed(Window(0), 3, STEADY) == Window(3)
    assert succeed(Window(0), 0, STEADY) == Window(5)
    assert fail(Window(0), STEADY).dead
