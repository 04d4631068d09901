"""test_destinations — after any attempts, a destination keeps its bounds and loses no recipient

Owns: properties of feedback.py and destination.py of queued/destinations over random histories, with their own clock.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queued.deliver import Deferral
from queued.destinations.destination import Busy, Destination, Rest, Share, Waiting
from queued.destinations.feedback import Steering, Window, begin, fail, succeed

STEPS = st.sampled_from(["1", "1/concurrency", "1/sqrt_concurrency"])
STEERINGS = st.builds(Steering, st.integers(1, 30), st.integers(1, 30), STEPS, STEPS, st.integers(0, 3))
ROOM = Share(12, 1000)
LATEST = 600.0


@given(STEERINGS, st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=200))
def test_a_window_is_dead_or_between_one_and_the_limit(steering: Steering, history: list[tuple[bool, int]]) -> None:
    window = begin(steering)
    for reached, active in history:
        before = window
        window = succeed(window, active, steering) if reached else fail(window, steering)
        assert window.dead or 1 <= window.width <= steering.limit
        assert not (reached and window.dead)
        assert not (window.dead and not before.dead and steering.cohorts == 0)
        if not before.dead:
            assert window.width <= before.width if not reached else window.width >= before.width


@given(STEERINGS)
def test_failures_kill_a_window_only_if_cohorts_are_configured(steering: Steering) -> None:
    window: Window = begin(steering)
    for _ in range(200):
        window = fail(window, steering)
    assert window.dead == (steering.cohorts > 0)


class Traffic(RuleBasedStateMachine):
    """Deliveries are offered, have their turn, end, give up, in any order; time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.steering = Steering(initial=2, limit=4)
        self.destination = Destination("example.com", self.steering, Rest(60, 600), self.now)
        self.offered = 0
        self.inside: list[Waiting] = []  # in flight or waiting
        self.parked = self.ended = 0
        self.takes, self.believed = 0, 0.0  # connections, as the host said last, and until when that holds

    @rule(recipients=st.integers(1, 5), octets=st.integers(0, 600), urgent=st.booleans(), older=st.booleans())
    def offer(self, recipients: int, octets: int, *, urgent: bool, older: bool) -> None:
        self.offered += 1
        rank = (-int(urgent), -self.offered if older else self.offered)
        answer = self.destination.offer(rank, recipients, octets, ROOM, self.now)
        if isinstance(answer, Deferral):
            assert (0.25 if isinstance(answer, Busy) else 1.0) <= answer.seconds <= LATEST + 60
            self.parked += 1
        else:
            self.inside.append(answer)
        self.sort_out()

    def sort_out(self) -> None:
        for place in [each for each in self.inside if each.away]:
            assert place.settled.is_set()
            assert not place.started
            self.inside.remove(place)
            self.parked += 1

    def turns(self) -> list[Waiting]:
        return [place for place in self.inside if place.started]

    @precondition(lambda self: self.turns())
    @rule(number=st.integers(0, 100), reached=st.sampled_from([True, False, None]))
    def end(self, number: int, *, reached: bool | None) -> None:
        turns = self.turns()
        place = turns[number % len(turns)]
        self.inside.remove(place)
        self.ended += 1
        self.destination.leave(place, self.now, reached=reached, why="refused")
        self.sort_out()

    @precondition(lambda self: self.turns())
    @rule(number=st.integers(0, 100), most=st.integers(1, 5))
    def be_turned_away(self, number: int, most: int) -> None:
        turns = self.turns()
        place = turns[number % len(turns)]
        self.inside.remove(place)
        self.ended += 1
        self.takes, self.believed = most, self.now + 60
        self.destination.leave(place, self.now, most=most)
        self.sort_out()

    @precondition(lambda self: self.inside)
    @rule(number=st.integers(0, 100))
    def give_up(self, number: int) -> None:
        place = self.inside[number % len(self.inside)]
        was = place.started
        self.destination.give_up(place, self.now)
        assert place.started == was, "a turn that was given is not taken back"
        self.sort_out()

    @rule()
    def retest(self) -> None:
        self.destination.retest(self.now)

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(initial=st.integers(1, 9), limit=st.integers(1, 9))
    def reload(self, initial: int, limit: int) -> None:
        self.steering = Steering(initial=initial, limit=limit)
        self.destination.steer(self.steering, Rest(30, 60))

    @invariant()
    def no_recipient_is_lost(self) -> None:
        assert self.offered == len(self.inside) + self.parked + self.ended
        assert self.destination.active == len(self.turns())
        assert sorted(self.destination.waiting) == self.destination.waiting
        assert {id(p) for p in self.destination.waiting} == {id(p) for p in self.inside if not p.started}
        assert self.destination.recipients == sum(p.recipients for p in self.inside)
        assert self.destination.octets == sum(p.octets for p in self.inside)

    @invariant()
    def bounds_hold(self) -> None:
        assert self.destination.window.dead or 1 <= self.destination.window.width <= self.steering.limit
        assert self.now >= self.believed or self.destination.window.width <= self.takes
        alone = len(self.inside) == 1
        assert alone or (self.destination.recipients <= ROOM.recipients and self.destination.octets <= ROOM.octets)

    @invariant()
    def no_turn_is_left_unused(self) -> None:
        """A delivery waits only if every slot is taken."""
        if self.destination.waiting and not self.destination.window.dead:
            assert self.destination.active >= self.destination.window.width


TestTraffic = Traffic.TestCase


def test_a_host_gets_no_more_connections_than_it_took_for_a_minute() -> None:
    now = 0.0
    host = Destination("host", Steering(initial=5, limit=20), Rest(60, 600), now)
    turns = [place for number in range(5) if isinstance(place := host.offer((0, number), 1, 1, ROOM, now), Waiting)]
    for place in turns[3:]:
        host.leave(place, now, most=3)
    widths = []
    for number in range(70):
        now += 1
        host.leave(turns.pop(0), now, reached=True)
        place = host.offer((0, 100 + number), 1, 1, ROOM, now)
        assert isinstance(place, Waiting)
        turns.append(place)
        widths.append(host.window.width)
    assert widths[:59] == [3] * 59
    assert widths[-1] > 3


def test_a_dead_destination_is_probed_by_one_delivery_at_a_time() -> None:
    now = 0.0
    destination = Destination("example.com", Steering(initial=1), Rest(60, 600), now)
    waits = []
    for number in range(6):
        probe = destination.offer((0, number), 1, 1, ROOM, now)
        assert isinstance(probe, Waiting)
        assert probe.started
        while_asking = destination.offer((0, 100 + number), 1, 1, ROOM, now)
        if number:  # alive, it lets the next one wait in memory
            assert isinstance(while_asking, Deferral)
            assert while_asking.stopped == "destination"
        destination.leave(probe, now, reached=False, why="connection refused")
        answer = destination.offer((0, 200 + number), 1, 1, ROOM, now)
        assert isinstance(answer, Deferral)
        assert answer.stopped == "destination"
        assert answer.reason == "example.com does not answer: connection refused"
        waits.append(destination._dead_until - now)
        assert waits[-1] <= answer.seconds <= waits[-1] + 60
        now = destination._dead_until
    assert waits == [60, 120, 240, 480, 600, 600]
    probe = destination.offer((0, 300), 1, 1, ROOM, now)
    assert isinstance(probe, Waiting)
    destination.leave(probe, now, reached=True)
    assert isinstance(destination.offer((0, 301), 1, 1, ROOM, now), Waiting)


def test_an_operator_s_retry_lets_one_delivery_test_a_dead_destination_at_once() -> None:
    destination = Destination("example.com", Steering(initial=1), Rest(600, 900), 0.0)
    failing = destination.offer((0, 1), 1, 1, ROOM, 0.0)
    assert isinstance(failing, Waiting)
    destination.leave(failing, 1.0, reached=False, why="connection refused")
    assert [type(destination.offer((0, n), 1, 1, ROOM, 2.0)) for n in range(500)] == [Deferral] * 500
    destination.retest(2.0)
    probe, beside = (destination.offer((0, number), 1, 1, ROOM, 2.0) for number in (2, 3))
    assert isinstance(probe, Waiting)
    assert isinstance(beside, Deferral)
    assert beside.seconds <= 60 + 2  # not behind those that were parked for ten minutes
    destination.leave(probe, 3.0, reached=False, why="connection refused")
    again = destination.offer((0, 4), 1, 1, ROOM, 4.0)
    assert isinstance(again, Deferral)
    assert again.seconds > 800


def test_parked_mail_returns_at_the_rate_of_its_destination() -> None:
    """One turn every two seconds and ten in memory: of those parked the n-th comes about 20 + 2n seconds later."""
    now, number, turns = 0.0, 0, list[Waiting]()
    destination = Destination("example.com", Steering(initial=1, limit=1, cohorts=0), Rest(60, 600), now)
    for _ in range(100):
        while not isinstance(answer := destination.offer((0, number), 1, 1, ROOM, now), Deferral):
            turns.append(answer)
            number += 1
        now += 2
        destination.leave(turns.pop(0), now, reached=True)
    answers = [destination.offer((0, number + n), 1, 1, Share(1, 1), now) for n in range(50)]
    waits = [each.seconds for each in answers if isinstance(each, Deferral)]
    assert len(waits) == len(answers)
    assert all(wait >= 1 for wait in waits)
    # Mail parked in those 100 rounds goes first; mail comes early rather than late.
    first = destination._last_parked - now - 50 * 2
    assert all(0.7 * 0.9 * (first + 2 * n) <= wait <= 1.1 * (first + 2 * n) for n, wait in enumerate(waits, 1))


def test_an_older_delivery_replaces_a_younger_waiting_one() -> None:
    destination = Destination("example.com", Steering(initial=1, limit=1), Rest(60, 600), 0.0)
    sent, younger = (destination.offer((0, number), 1, 1, Share(2, 100), 0.0) for number in (1, 9))
    assert isinstance(sent, Waiting)
    assert isinstance(younger, Waiting)
    older = destination.offer((0, 5), 1, 1, Share(2, 100), 0.0)
    assert isinstance(older, Waiting)
    assert isinstance(younger.away, Deferral)
    assert isinstance(destination.offer((0, 7), 1, 1, Share(2, 100), 0.0), Deferral)
    destination.leave(sent, 1.0, reached=True)
    assert older.started
