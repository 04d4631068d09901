"""test_watchdog — which attempts are cut off so that other mail can be claimed

Owns: proofs about queued/waiting/watchdog.py's `relieve` and `make_room`, and about slots set aside
    (queued/in_flight.py); tests/integration/attacks has those of a stuck attempt.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from queued.destinations.destination import Destination, Rest, Share, Waiting
from queued.destinations.destinations import Destinations
from queued.destinations.feedback import Steering
from queued.in_flight import StalledAttempts
from queued.values import Lease
from queued.waiting.deferral import Deferral
from queued.waiting.watchdog import AttemptStep, Phase, Watch, give_way
from shared.config.queued.settings import Claim
from shared.config.queued.transport import Transport


def begun(watch: Watch, phase: Phase | None, *, still: float, ago: float = 0.0) -> AttemptStep:
    """An attempt that has stood still in this phase for so long, and began even longer ago."""
    now = monotonic()
    step = AttemptStep(Lease(now + 900), 3600.0, 3600.0)
    step.phase, step.moved, step.begun = phase, now - still, now - still - ago
    watch.begin(step)
    return step


def cut(watch: Watch, *attempts: AttemptStep) -> list[bool]:
    watch.relieve(monotonic())
    return [bool(each.stuck) for each in attempts]


async def test_stalled_attempts_are_cut_off() -> None:
    watch = Watch()
    attempts = [begun(watch, phase, still=11.0) for phase in ("greeting", "mail", "rcpt", "data", None)]
    assert cut(watch, *attempts) == [True] * 5


async def test_moving_attempts_and_attempts_with_content_sent_go_on() -> None:
    watch = Watch()
    attempts = [
        begun(watch, "greeting", still=9.0),
        begun(watch, "rcpt", still=9.0, ago=20.0),
        begun(watch, "body", still=500.0),
        begun(watch, "dot", still=500.0),
    ]
    assert cut(watch, *attempts) == [False] * 4


async def test_an_attempt_that_drips_replies_is_cut_off() -> None:
    watch = Watch()
    dripped = begun(watch, "rcpt", still=3.0, ago=60.0)
    assert cut(watch, dripped) == [True]


def named(*attempts: AttemptStep) -> list[AttemptStep]:
    """Those of them that the watch names from now on."""
    found = list[AttemptStep]()
    for each in attempts:
        each.stands = partial(found.append, each)
    return found


async def test_a_stalled_attempt_with_content_sent_is_named_and_goes_on() -> None:
    watch = Watch()
    standing = [begun(watch, "body", still=11.0), begun(watch, "dot", still=11.0)]
    dripping = [begun(watch, "body", still=0.5, ago=60.0), begun(watch, "dot", still=0.5, ago=60.0)]
    moving = [begun(watch, "body", still=9.0, ago=9.0), begun(watch, "dot", still=9.0)]
    found = named(*standing, *dripping, *moving)
    assert cut(watch, *standing, *dripping, *moving) == [False] * 6
    assert set(found) == {*standing, *dripping}


async def test_attempts_crowded_by_unproven_destinations_are_named_later() -> None:
    watch = Watch()
    late = begun(watch, "dot", still=31.0)
    late.unproven = "first"
    soon, proven = begun(watch, "dot", still=20.0), begun(watch, "dot", still=31.0)
    soon.unproven = "again"
    found = named(late, soon, proven)
    assert not watch.make_room(monotonic(), again=False)
    assert found == [late]
    assert not any(each.stuck for each in (late, soon, proven))
    watch.make_room(monotonic(), again=False)
    assert found == [late], "it looks once a second"


def unproven(first: list[float], again: list[float], phase: Phase = "greeting") -> list[AttemptStep]:
    """Attempts that have stood still for so many seconds at second 1000, by which try they are."""
    steps = list[AttemptStep]()
    which: Literal["first", "again"]
    for which, standing in ("first", first), ("again", again):
        for still in standing:
            step = AttemptStep(Lease(2000.0), 3600.0, 3600.0, unproven=which)
            step.phase, step.moved, step.begun = phase, 1000.0 - still, 1000.0 - still
            steps.append(step)
    return steps


@pytest.mark.parametrize(
    ("first", "again", "gives"),
    [
        ([10.0, 11.0, 1.0], [10.5], 11.0),
        ([9.0, 0.0], [9.5, 1.0], None),  # half of them move
        ([4.0, 9.0, 1.0], [2.0, 9.5], 9.0),  # most of them are stalled
        ([4.0, 5.0], [11.0], 5.0),  # it is the longest beyond its time
        ([2.0, 2.5], [9.0] * 9, None),  # a retry has its full time
    ],
)
def test_a_stalled_attempt_yields_to_a_first_try(first: list[float], again: list[float], gives: float | None) -> None:
    found = give_way(unproven(first, again), 1000.0, again=False)
    assert (1000.0 - found[-1].moved if found else None) == gives


@pytest.mark.parametrize(("again", "gives"), [([9.0] * 9, None), ([9.0, 10.0, 12.0], 12.0)])
def test_a_stalled_retry_yields_to_another_retry_after_its_full_time(again: list[float], gives: float | None) -> None:
    found = give_way(unproven([60.0, 15.0], again), 1000.0, again=True)
    assert (1000.0 - found[-1].moved if found else None) == gives


def test_a_dripping_attempt_yields_and_one_with_content_sent_never_does() -> None:
    [dripping] = steps = unproven([1.0], [])
    dripping.begun = 940.0
    assert give_way(steps, 1000.0, again=False) == [dripping]
    assert give_way(unproven([500.0], [500.0], "dot"), 1000.0, again=False) == []


def test_if_most_attempts_drip_a_slow_first_try_yields_and_a_retry_does_not() -> None:
    steps = unproven([2.5] * 3, [2.5])
    for each in steps:
        each.begun = 1000.0 - 9.5
    assert give_way(steps, 1000.0, again=False) == []
    for each in steps:
        each.begun = 1000.0 - 11.0
    assert give_way(steps, 1000.0, again=False) == steps[:3]
    assert give_way(steps, 1000.0, again=True) == []
    assert give_way([*steps, *unproven([0.0] * 4, [])], 1000.0, again=False) == [], "half of them go on"


async def test_a_yielding_attempt_is_cut_off_once_and_frees_its_slot_at_once() -> None:
    watch, left = Watch(), list[str]()
    step = begun(watch, "greeting", still=11.0)
    step.unproven, step.yields = "again", partial(left.append, "place")
    assert watch.make_room(monotonic(), again=True)
    assert not watch.make_room(monotonic(), again=True)
    assert (bool(step.stuck), step.starved, left) == (True, False, ["place"])


async def test_one_look_finds_several_and_spares_those_that_have_moved_or_ended_since() -> None:
    watch, now = Watch(), monotonic()
    steps = [begun(watch, "greeting", still=still) for still in (40.0, 30.0, 20.0, 12.0)]
    for step in steps:
        step.unproven = "again"
    assert watch.make_room(now, again=True)
    watch.end(steps[1])
    steps[2].moved = now
    assert watch.make_room(now + 0.01, again=True)
    assert not watch.make_room(now + 0.02, again=True)
    assert [bool(step.stuck) for step in steps] == [True, False, False, True]


@pytest.mark.parametrize(("sizes", "taken"), [([1] * 30, 25), ([400] * 3, 1), ([20, 4, 2, 1], 3)])
def test_at_most_a_quarter_of_the_slots_or_one_is_set_aside(sizes: list[int], taken: int) -> None:
    aside = StalledAttempts(100, 10**6)
    took = [recipients for recipients in sizes if aside.take(recipients, 10)]
    assert len(took) == taken
    assert aside.recipients == sum(took)
    for recipients in took:
        aside.leave(recipients, 10)
    assert aside.recipients == 0
    assert aside.take(5, 250_001)
    assert not aside.take(1, 1)


async def test_a_destination_stalled_after_content_gets_no_new_attempt() -> None:
    destination = Destination("mx x.example", Steering(), Rest(60.0, 600.0), 0.0)
    places = [destination.offer((0, n), 1, 10, Share(100, 10_000), 0.0) for n in range(30)]
    running = [place for place in places if isinstance(place, Waiting) and place.started]
    destination.stand(11.0)
    assert all(place.away for place in places if isinstance(place, Waiting) and not place.started)
    assert isinstance(destination.offer((0, 99), 1, 10, Share(100, 10_000), 11.0), Deferral)
    assert not destination.window.dead
    destination.leave(running[0], 12.0, reached=True)
    assert isinstance(destination.offer((0, 99), 1, 10, Share(100, 10_000), 12.0), Waiting)
    destination.stand(13.0)
    assert isinstance(destination.offer((0, 100), 1, 10, Share(100, 10_000), 13.0), Waiting), "it was just reached"


async def test_a_worker_without_room_sends_no_more_to_destinations_that_have_attempts_and_do_not_move() -> None:
    now = 0.0
    transport = SimpleNamespace(settings=Transport(id="t", hostname="x"), way=lambda domain: domain)
    reaches: dict[str, Any] = {"t": transport}
    destinations = Destinations(reaches, Claim(), clock=lambda: now)

    def offer(domain: str, number: int) -> Waiting | Deferral:
        recipient = SimpleNamespace(domain=domain)
        claimed: Any = SimpleNamespace(transportid="t", recipient=recipient, priority=0, id=number, size=10)
        return destinations.offer((claimed,))

    for domain in ("stalled", "moving", "idle"):
        first = offer(domain, 1)
        assert isinstance(first, Waiting)
        destinations.leave(first, reached=True)
    stalled, moving, now = offer("stalled", 2), offer("moving", 2), 11.0
    assert isinstance(stalled, Waiting)
    assert isinstance(moving, Waiting)
    destinations.leave(moving, reached=True)
    offer("moving", 3)
    destinations.stand_still()
    deferred = {domain: isinstance(offer(domain, 4), Deferral) for domain in ("stalled", "moving", "idle", "new")}
    assert deferred == {"stalled": True, "moving": False, "idle": False, "new": False}
    destinations.leave(stalled, reached=True)
    assert isinstance(offer("stalled", 5), Waiting)
