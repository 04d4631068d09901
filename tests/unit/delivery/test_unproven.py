"""test_unproven — who finds no place among unproven destinations waits at the pace of late, not of the time before"""

from __future__ import annotations

import pytest

from queued.destinations.unproven import Unproven


@pytest.mark.parametrize("started", [0.0, 1e3, 1e7])
def test_the_time_before_the_first_of_them_is_not_slowness(started: float) -> None:
    """A host that has been up for long, or a worker that was idle, parks nobody for minutes."""
    unproven = Unproven(200)
    assert unproven.enter(150, started) is None
    parked = [unproven.enter(1, started + 0.001) for _ in range(50)]
    assert all(each is not None and each.seconds < 3 for each in parked)
    unproven.leave(150, started + 0.01)
    assert unproven.enter(150, started + 3600) is None
    late = unproven.enter(1, started + 3600.001)
    assert late is not None
    assert late.seconds < 3


def test_the_line_grows_while_no_place_is_freed() -> None:
    unproven = Unproven(200)
    assert unproven.enter(150, 0.0) is None
    first, second = unproven.enter(1, 300.0), unproven.enter(1, 300.0)
    assert first is not None
    assert second is not None
    assert second.seconds > first.seconds / 2
