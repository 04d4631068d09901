"""test_unproven — which recipients get a slot among unproven destinations, and how long others wait"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from queued.admission.unproven import Held, Unproven
from queued.waiting.newest import Newest

if TYPE_CHECKING:
    from collections.abc import Callable


def first(ident: int, recipients: int = 1) -> Held:
    """Places for recipients that were never tried."""
    return Held(recipients, first=True, newest=ident)


def again(ident: int, recipients: int = 1) -> Held:
    """Places for recipients that were tried before."""
    return Held(recipients, first=False, newest=ident)


@pytest.mark.parametrize("started", [0.0, 1e3, 1e7])
@pytest.mark.parametrize("wanted", [first, again])
def test_idle_time_does_not_count_as_slowness(started: float, wanted: Callable[..., Held]) -> None:
    """Recipients are not parked for minutes because the machine has run for long or the worker was idle."""
    unproven, whole = Unproven(200), wanted(1, 150)
    assert unproven.enter(whole, started)
    parked = [unproven.parked(wanted(n), started + 0.001) for n in range(2, 52)]
    assert all(each.seconds < 5 for each in parked)
    unproven.leave(whole, started + 0.01)
    assert unproven.enter(whole, started + 3600)
    assert unproven.parked(wanted(60), started + 3600.001).seconds < 5


def test_the_wait_grows_while_no_slot_is_freed() -> None:
    unproven = Unproven(200)
    assert unproven.enter(again(1, 150), 0.0)
    assert not unproven.enter(again(2), 300.0)
    waits = [unproven.parked(again(n), 300.0).seconds for n in range(2, 202)]
    assert waits[-1] > 10 * waits[0]
    assert max(waits) < 200 * 10 / 75 + 1, "an attempt that is stalled for ten seconds yields"


def test_large_deliveries_take_the_places_of_as_many_small_ones_as_their_octets() -> None:
    """Or a few large messages to silent hosts would hold all the content that the worker may have in memory."""
    unproven = Unproven(1000, 100_000_000)
    entered = [unproven.enter(Held(1, first=True, newest=n, octets=10_000_000), 0.0) for n in range(10)]
    assert sum(entered) == 7
    assert unproven.recipients == 7
    assert sum(unproven.enter(Held(1, first=True, newest=n, octets=1000), 0.0) for n in range(100)) == 50
    unproven.leave(Held(1, first=True, newest=1, octets=10_000_000), 1.0)
    assert unproven.enter(first(200, 100), 1.0)


def test_retries_take_half_of_the_share_and_first_tries_all_of_it() -> None:
    unproven = Unproven(1000)
    entered = [unproven.enter(again(n), 0.0) for n in range(1000)]
    assert sum(entered) == 375
    assert unproven.has_no_room(again(1))
    assert not unproven.has_no_room(first(1))
    entered = [unproven.enter(first(n), 0.0) for n in range(1000)]
    assert sum(entered) == 375
    unproven = Unproven(1000)
    assert sum(unproven.enter(first(n), 0.0) for n in range(1000)) == 750


def test_an_oversized_delivery_has_the_share_alone() -> None:
    unproven = Unproven(200)
    assert unproven.enter(again(1, 120), 0.0)
    assert not unproven.enter(first(2, 31), 0.0)
    unproven.leave(again(1, 120), 1.0)
    assert unproven.enter(first(2, 500), 1.0)
    assert not unproven.enter(first(3), 1.0)


def test_the_newest_recipients_go_before_any_backlog() -> None:
    unproven = Unproven(1000)
    assert unproven.enter(first(1, 750), 0.0)
    for n in range(2, 5002):
        unproven.parked(first(n), 3.0)
    assert unproven.parked(first(2), 3.1).seconds > 10
    assert unproven.parked(first(2), 3.1).seconds <= 60
    new = [unproven.parked(first(n), 3.2).seconds for n in range(6000, 6020)]
    assert max(new) <= 1.0


def test_mail_of_a_flood_does_not_return_at_one_moment() -> None:
    """It comes oldest first, so each one is the newest when it is parked."""
    unproven = Unproven(1000)
    assert unproven.enter(first(1, 750), 0.0)
    comes = [3.0 + n / 5000 for n in range(5000)]
    returns = [at + unproven.parked(first(2 + n), at, follow=4999 - n).seconds for n, at in enumerate(comes)]
    assert max(Counter(map(int, returns)).values()) < 2000
    assert unproven.parked(first(5002), 4.1).seconds == 1.0, "nothing follows: it is the newest"


def taken(unproven: Unproven, wanted: Held, now: float) -> int:
    """How many chances there are for these at one moment."""
    count = 0
    while (chances := unproven.chances(wanted, now)) is not None:
        chances.take()
        count += 1
    return count


def test_others_and_the_newest_never_tried_have_chances_of_their_own() -> None:
    unproven = Unproven(1000)
    unproven.parked(first(7), 1.0)
    assert taken(unproven, again(1), 1.0) == 50
    assert taken(unproven, first(7), 1.0) == 0, "it was parked before"
    assert taken(unproven, first(8), 1.0) == 100, "however many others wait"
    assert [taken(unproven, first(n), 1.25) for n in (7, 8)] == [12, 25]
    assert taken(unproven, first(8), 9.0) == 100


def test_old_waiting_mail_leaves_half_of_the_chances_to_newer_mail() -> None:
    unproven = Unproven(1000)
    for n in range(100, 300):
        unproven.parked(first(n), 1.0)
    assert taken(unproven, first(150), 1.0) == 26
    assert taken(unproven, first(250), 1.0) == 24


def test_a_delivery_that_reached_its_destination_gives_its_chance_back() -> None:
    unproven = Unproven(1000)
    for wanted, most in ((first(8), 100), (again(1), 50)):
        assert taken(unproven, wanted, 1.0) == most
        unproven.reached(1.0)
        assert taken(unproven, wanted, 1.0) == 1
        for _ in range(200):
            unproven.reached(1.0)
        assert taken(unproven, wanted, 1.0) == most


def test_others_have_fewer_chances_while_known_destinations_take_mail_and_a_fifth_at_the_least() -> None:
    for deliveries, expected in ((0, 50), (50, 36), (1000, 10)):
        unproven = Unproven(1000)
        assert taken(unproven, again(1), 1.0) == 50
        for n in range(deliveries):
            unproven.delivered(1.0 + n / max(deliveries, 1))
        assert taken(unproven, again(1), 2.0) == pytest.approx(expected, abs=2)
        assert taken(unproven, first(8), 2.0) == 100, "mail that came just now"


def test_a_flood_returns_as_fast_as_its_destinations_are_reached() -> None:
    def longest(reached: int) -> float:
        unproven = Unproven(1000)
        for n in range(700):
            unproven.enter(first(n), 0.0)
        for n in range(700):
            unproven.leave(first(n), n / 700)
        for n in range(reached):
            unproven.reached(n / reached)
        return max(unproven.parked(first(n), 1.0).seconds for n in range(3000, 1000, -1))

    assert longest(0) > 25, "fifty a second"
    assert 2 <= longest(700) < 6
    assert longest(70) > 15


def begun(unproven: Unproven, started: float, *, flows: bool, reached: int) -> int:
    """How many of 100 a second begin within ten seconds, where of each `reached` one reaches its destination."""
    found = 0
    for n in range(1000):
        now = started + n / 100
        if flows:
            unproven.delivered(now)
        if unproven.may_begin(now):
            found += 1
            if reached and found % reached == 0:
                unproven.reached(now)
    return found


def test_attempts_mostly_in_vain_begin_more_rarely_beside_mail_that_flows() -> None:
    assert begun(Unproven(1000), 0.0, flows=False, reached=0) == 1000
    assert 100 <= begun(Unproven(1000), 0.0, flows=True, reached=0) < 200
    assert 100 <= begun(Unproven(1000), 0.0, flows=True, reached=10) < 250
    assert begun(Unproven(1000), 0.0, flows=True, reached=2) == 1000, "half of them reach their destination"


def test_what_began_before_mail_flows_counts_too() -> None:
    unproven = Unproven(1000)
    assert begun(unproven, 0.0, flows=False, reached=0) == 1000
    assert begun(unproven, 10.0, flows=True, reached=0) < 110


@pytest.mark.parametrize("inflight", [1, 3, 100])
def test_a_small_share_gives_way_too(inflight: int) -> None:
    unproven = Unproven(inflight)
    for wanted in (again(1), first(2)):
        assert taken(unproven, wanted, 1.0)
        assert taken(unproven, wanted, 5.0)


def test_a_recipient_that_does_not_return_blocks_no_other() -> None:
    newest = Newest()
    for n in range(100, 200):
        newest.wait(n, 60.0)
    newest.wait(300, 200.0)
    assert newest.newer(1, 0.0) == 101
    newest.leave(150)
    newest.leave(151_000)
    assert newest.newer(140, 60.0) == 59
    assert newest.newer(1, 71.0) == 1
    assert newest.newer(300, 71.0) == 0


def test_the_oldest_entries_are_forgotten_at_the_limit() -> None:
    newest = Newest()
    for n in range(11_000):
        newest.wait(n, 1.0)
        newest.wait(n, 2.0)
    assert len(newest) == 10_000
    assert newest.newer(999, 0.0) == 10_000
    assert newest.newer(1999, 0.0) == 9000
