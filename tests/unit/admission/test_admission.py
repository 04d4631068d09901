"""test_admission — what a delivery passes before its attempt begins

Owns: proofs about queued/admission/gates.py that need no worker; tests/scenario/pace has those of the gates under
    attack.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from queued.admission.gates import Admission, Admitted
from queued.admission.unproven import Held, Unproven
from queued.destinations.destinations import Destinations
from queued.outcome.settle import DestinationVerdict
from queued.pacing.pace import Paces
from queued.values import Lease
from queued.waiting.deferral import Deferral
from queued.waiting.watchdog import AttemptStep, Watch
from shared.config.queued.settings import Claim
from tests.fixtures.daemons.in_hand import in_hand

if TYPE_CHECKING:
    from queued.deliver import Transport

FULL = 300  # places among unproven destinations, of 400


def full() -> tuple[Admission, Unproven, list[AttemptStep]]:
    """Gates whose share of unproven destinations is full of attempts that stand still."""
    settings = Claim.model_validate({"inflight": 400})
    transports: dict[str, Transport] = {}
    unproven, watch, now = Unproven(settings.inflight), Watch(), monotonic()
    admission = Admission(transports, Destinations(transports, settings), Paces(), watch, unproven, settings)
    silent = list[AttemptStep]()
    for n in range(FULL):
        held = Held(1, first=True, newest=n)
        assert unproven.enter(held, now)
        gone = partial(unproven.leave, held, now)
        silent.append(AttemptStep(Lease(now + 900), 3600.0, 3600.0, unproven="first", yields=gone))
        silent[-1].moved = now - 11.0
        watch.begin(silent[-1])
    return admission, unproven, silent


async def test_an_attempt_that_reaches_its_destination_lets_the_next_begin() -> None:
    """Or a burst of mail to new domains that answer would begin no faster beside silent hosts than poison does."""
    admission, unproven, silent = full()
    for n in range(100):
        admitted = admission.admit((in_hand(1000 + n),))
        assert isinstance(admitted, Admitted), n
        admission.leave(admitted, DestinationVerdict(reached=True))
        held = Held(1, first=True, newest=n)
        assert unproven.enter(held, monotonic()), "somebody else takes the place"
    assert sum(bool(each.stuck) for each in silent) == 100


async def test_for_several_recipients_several_attempts_give_way_at_once() -> None:
    """Were it one by one as chances come, others would take the places, and such mail would never have enough."""
    admission, unproven, silent = full()
    chances = unproven.chances(Held(1, first=True, newest=FULL), monotonic())
    assert chances is not None
    for _ in range(90):
        chances.take()
    admitted = admission.admit(tuple(in_hand(1000 + n) for n in range(40)))
    assert isinstance(admitted, Admitted)
    assert unproven.recipients == FULL
    assert sum(bool(each.stuck) for each in silent) == 40
    assert isinstance(admission.admit((in_hand(2000),)), Deferral), "later ones wait until that is made up for"


async def test_beside_mail_that_flows_old_mail_for_unproven_destinations_is_put_off_and_new_mail_begins() -> None:
    settings = Claim.model_validate({"inflight": 400})
    transports: dict[str, Transport] = {}
    unproven = Unproven(settings.inflight)
    admission = Admission(transports, Destinations(transports, settings), Paces(), Watch(), unproven, settings)
    while unproven.may_begin(monotonic()):
        unproven.delivered(monotonic())

    def put_off(**fields: Any) -> bool:
        admitted = admission.admit((in_hand(1, **fields),))
        assert isinstance(admitted, Admitted)
        unproven.delivered(monotonic())
        later = admission.put_off(admitted)
        assert (admitted.unproven is None) == (later is not None), "it holds no place while it is parked"
        return later is not None

    old = in_hand().received - timedelta(seconds=5)
    assert not put_off()
    assert put_off(received=old)
    assert put_off(retry_count=2)
    unproven.reached(monotonic())
    assert not put_off(received=old)
