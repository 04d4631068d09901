"""test_in_flight — which attempts in flight count when a commit waits for more results"""

from __future__ import annotations

from typing import Any

from queued.admission.unproven import Held
from queued.in_flight import InFlight
from shared.config.queued.settings import Claim
from tests.fixtures.daemons.in_hand import in_hand


class Unused:
    """The pool and the claimer are not used."""

    def done(self, _: object) -> bool:
        return False


def test_attempts_at_unreached_hosts_do_not_delay_a_commit() -> None:
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
