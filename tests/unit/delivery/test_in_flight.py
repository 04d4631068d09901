"""test_in_flight — what a worker has in flight, as those see it who wait for company before they commit"""

from __future__ import annotations

from typing import Any

from queued.destinations.unproven import Held
from queued.in_flight import InFlight
from shared.config.queued.settings import Claim
from tests.fixtures.daemons.in_hand import in_hand


class Unused:
    """Neither pool nor claimer is asked."""

    def done(self, _: object) -> bool:
        return False


def test_attempts_that_hang_at_hosts_never_reached_are_no_company() -> None:
    """Or each claim and each result beside them would wait for a group that does not come."""
    nobody: Any = Unused()
    in_flight = InFlight(nobody, nobody, Claim())
    held = Held(9, first=True, newest=9)
    claimed = [in_hand(number) for number in range(10)]
    in_flight.take(claimed)
    assert in_flight.unproven.enter(held, 0.0)
    assert (len(in_flight), in_flight.moving) == (10, 1)
    in_flight.unproven.leave(held, 1.0)
    in_flight.leave(claimed[:9])
    assert (len(in_flight), in_flight.moving) == (1, 1)
