"""test_flow — recipients counted from events, over the last minutes

See: shared/observe/flow.py.
"""

from __future__ import annotations

from shared.observe import events
from shared.observe.flow import COUNTED, SLOT, Flow


class Clock:
    """Seconds, as they are set."""

    now = 1000 * SLOT

    def __call__(self) -> float:
        return self.now


def test_counts_leave_each_sum_when_they_are_too_old() -> None:
    clock = Clock()
    flow = Flow(clock)
    seen = []
    for _ in range(4):  # one at 0, 2, 4 and 6 minutes
        flow.add("delivered", 10)
        flow.add("delivered", 1)
        seen.append(flow.sums("delivered"))
        clock.now += 120
    assert seen == [[11, 11, 11], [11, 22, 22], [11, 33, 33], [11, 33, 44]]
    assert flow.sums("delivered") == [0, 22, 44]
    clock.now += 8 * 60
    assert flow.sums("delivered") == [0, 0, 33]
    clock.now += 3600
    assert flow.sums("delivered") == [0, 0, 0]
    flow.add("delivered", 7)
    assert flow.sums("delivered") == [7, 7, 7]
    assert flow.sums("failed") == [0, 0, 0]


def test_events_are_counted_while_they_are_watched() -> None:
    flow = Flow()
    with events.watched(flow.watchers()):
        events.emit("spool.committed", id="1", recipients=3, size=10)
        events.emit("collect.batch", tokens=4, seconds=0.1)
        for outcome in ("delivered", "deferred", "failed", "held"):
            events.emit(f"result.{outcome}", id=1)
    events.emit("spool.committed", id="2", recipients=5, size=10)
    assert {name: flow.sums(name)[0] for name in COUNTED} == {"accepted": 7, "delivered": 1, "deferred": 1, "failed": 1}
