"""test_pace — no order of messages exceeds a limit, and none waits for a limit that is not reached

Owns: proofs about queued/pacing/pace.py and pace_gauge.py with a clock of the test's own.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from queued.pacing.gauge import Bucket
from queued.pacing.pace import Fields, Paces, Turn
from queued.waiting.deferral import Deferral
from shared.config.queued.pacing import Pacing

rates = st.floats(0.01, 1000, allow_nan=False)
MAIL = Fields("default", "example.com", "example.org", "acme", "news", "mx.example.com", "192.0.2.1")


class Clock:
    """A clock that advances only on request."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def paced(*policies: dict[str, Any], clock: Clock | None = None) -> Paces:
    """Paces with these policies."""
    pacing = Pacing.model_validate({"policies": [{"id": f"p{i}", **each} for i, each in enumerate(policies)]})
    return Paces(pacing, clock=clock or Clock())


@given(rates, st.integers(1, 50), st.lists(st.floats(0, 5), max_size=200))
def test_a_bucket_never_gives_more_than_burst_and_rate(rate: float, burst: int, gaps: list[float]) -> None:
    bucket, now, taken = Bucket(burst, 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        bucket = bucket.filled(rate, burst, now)
        if not bucket.wait(rate):
            bucket, taken = bucket.taken(), taken + 1
        assert taken <= burst + rate * now + 1e-6


@given(rates, st.integers(1, 50), st.floats(0, 49))
def test_after_the_wait_there_is_a_token(rate: float, burst: int, used: float) -> None:
    bucket = Bucket(max(0.0, burst - used), 0.0)
    wait = bucket.wait(rate)
    assert not bucket.filled(rate, burst, wait).wait(rate)
    if wait > 1e-3:
        assert bucket.filled(rate, burst, wait * 0.9).wait(rate)


@given(rates, st.integers(1, 50), st.floats(0, 10), st.floats(0, 10))
def test_a_bucket_filled_in_two_steps_is_filled_as_in_one(rate: float, burst: int, one: float, two: float) -> None:
    steps = Bucket(0.0, 0.0).filled(rate, burst, one).filled(rate, burst, one + two)
    assert abs(steps.tokens - Bucket(0.0, 0.0).filled(rate, burst, one + two).tokens) < 1e-6


@given(
    st.integers(1, 5),
    st.integers(1, 20),
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 0.5)), max_size=200),
)
def test_no_order_of_messages_exceeds_concurrency_or_rate(
    most: int, rate: int, steps: list[tuple[str, bool, float]]
) -> None:
    clock = Clock()
    paces = paced(
        {"fields": ["destination"], "concurrency": most},
        {"fields": [], "rate": f"{rate}/sec"},
        clock=clock,
    )
    out: dict[str, list[Turn]] = {}
    begun = 0
    for domain, back, gap in steps:
        clock.now += gap
        held = out.setdefault(domain, [])
        if back and held:
            held.pop().done()
            continue
        asked = paces.ask(MAIL._replace(destination=domain))
        if isinstance(asked, Turn):
            held.append(asked)
            begun += 1
        else:
            assert asked.seconds > 0
            assert asked.reason.startswith(("policy p0", "policy p1"))
        assert len(held) <= most
        assert begun <= rate + rate * (clock.now - 1000.0) + 1e-6


@given(st.integers(1, 5), st.lists(st.booleans(), max_size=60))
def test_a_slot_is_released_once_even_if_done_is_repeated(most: int, twice: list[bool]) -> None:
    paces = paced({"fields": ["destination"], "concurrency": most})
    for again in twice:
        turns = [turn for _ in range(most) if isinstance(turn := paces.ask(MAIL), Turn)]
        assert len(turns) == most
        assert isinstance(paces.ask(MAIL), Deferral)
        for turn in turns:
            turn.done()
            if again:
                turn.done()


def test_a_refusal_by_one_policy_takes_no_token_of_another() -> None:
    paces = paced({"rate": "1/min", "burst": 3}, {"concurrency": 1})
    first = paces.ask(MAIL)
    assert isinstance(first, Turn)
    for _ in range(5):
        assert paces.ask(MAIL) == Deferral(1.0, "policy p1: 1 at once", 1.0, ("p1",))
    first.done()
    second = paces.ask(MAIL)
    assert isinstance(second, Turn)
    second.done()
    assert isinstance(paces.ask(MAIL), Turn)  # the third token: the refusals have taken none


def test_an_attempt_that_did_not_start_returns_its_token() -> None:
    paces = paced({"rate": "1/hour"})
    for _ in range(5):
        turn = paces.ask(MAIL)
        assert isinstance(turn, Turn)
        turn.done(unused=True)
    turn = paces.ask(MAIL)
    assert isinstance(turn, Turn)
    turn.done()
    assert isinstance(paces.ask(MAIL), Deferral)


def test_a_policy_does_not_count_mail_without_its_field() -> None:
    paces = paced({"fields": ["tenant"], "concurrency": 1})
    assert all(isinstance(paces.ask(MAIL._replace(tenant=None)), Turn) for _ in range(3))
    assert isinstance(paces.ask(MAIL), Turn)
    assert isinstance(paces.ask(MAIL), Deferral)


def test_policies_on_site_or_source_apply_once_these_are_known() -> None:
    paces = paced({"fields": ["site"], "concurrency": 1}, {"match": {"source": ["192.0.2.1"]}, "concurrency": 2})
    assert all(isinstance(paces.ask(MAIL), Turn) for _ in range(5))
    assert isinstance(paces.ask_host(MAIL), Turn)
    assert paces.ask_host(MAIL) == Deferral(1.0, "policy p0: 1 at once", 1.0, ("p0", "mx.example.com"))
    assert isinstance(paces.ask_host(MAIL._replace(site="mx.example.net")), Turn)
    assert paces.ask_host(MAIL._replace(site="mx.example.info")) == Deferral(0.5, "policy p1: 2 at once", 0.5, ("p1",))


def test_new_connections_keep_their_distance() -> None:
    clock = Clock()
    paces = paced({"fields": ["destination"], "connectinterval": "2s"}, clock=clock)
    assert paces.ask_connect(MAIL) is None
    clock.now += 0.5
    assert paces.ask_connect(MAIL) == Deferral(1.5, "policy p0: a connection every 2 s", 2.0, ("p0", "example.com"))
    assert paces.ask_connect(MAIL._replace(destination="example.net")) is None
    clock.now += 1.5
    assert paces.ask_connect(MAIL) is None


def test_a_limit_that_is_idle_is_forgotten() -> None:
    clock = Clock()
    paces = paced({"fields": ["destination"], "rate": "100/sec"}, clock=clock)
    for number in range(20_000):
        clock.now += 0.1
        turn = paces.ask(MAIL._replace(destination=f"d{number}.example"))
        assert isinstance(turn, Turn)
        turn.done()
    assert len(paces._gauges) < 5000


def test_new_limits_keep_the_counts() -> None:
    paces = paced({"concurrency": 1})
    assert isinstance(paces.ask(MAIL), Turn)
    assert isinstance(paces.ask(MAIL), Deferral)
    paces.use(Pacing.model_validate({"policies": [{"id": "p0", "concurrency": 2}]}), {})
    assert isinstance(paces.ask(MAIL), Turn)
    assert isinstance(paces.ask(MAIL), Deferral)


def test_a_wait_is_capped_so_that_a_changed_limit_applies_soon() -> None:
    paces = paced({"rate": "1/day"})
    assert isinstance(paces.ask(MAIL), Turn)
    assert paces.ask(MAIL) == Deferral(600.0, "policy p0: 1/day", 86_400.0, ("p0",))
