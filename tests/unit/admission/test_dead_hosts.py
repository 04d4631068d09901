"""test_dead_hosts — a host that failed comes after its equals for a while, and never after its inferiors"""

from __future__ import annotations

from random import Random

from queued.routing.find_hops import DeadHosts
from queued.routing.route import Hop, Host, in_order

A, B = Hop("192.0.2.1", 25, "a.example"), Hop("192.0.2.2", 25, "b.example")


def test_a_host_is_dead_for_the_configured_time_or_until_it_answers() -> None:
    dead = DeadHosts(60)
    dead.failed(A, 100)
    assert dead.is_dead("192.0.2.1", 25, 159.9)
    assert not dead.is_dead("192.0.2.1", 26, 100)
    assert not dead.is_dead("192.0.2.1", 25, 160)
    dead.answered(A)
    assert not dead.is_dead("192.0.2.1", 25, 101)


def test_a_time_of_0_remembers_no_host() -> None:
    dead = DeadHosts(0)
    dead.failed(A, 100)
    assert not dead.is_dead("192.0.2.1", 25, 100)


def test_the_oldest_host_is_forgotten_at_the_limit() -> None:
    dead = DeadHosts(60, most=1)
    dead.failed(A, 0)
    dead.failed(B, 1)
    assert not dead.is_dead(A.host, A.port, 2)
    assert dead.is_dead(B.host, B.port, 2)


def test_dead_hosts_are_tried_last_within_their_preference() -> None:
    hosts = [Host("a", 25, 10), Host("b", 25, 10), Host("c", 25, 20), Host("d", 25, 20)]
    for seed in range(20):
        order = [hop.host for hop in in_order(hosts, Random(seed), lambda host, _: host in {"a", "c"})]
        assert order == ["b", "a", "d", "c"]
