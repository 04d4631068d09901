"""test_dns_cache — kept answers are bounded in number and in octets, and the one used longest ago goes first"""

from __future__ import annotations

from queued.routing.dns_answer import Answer
from queued.routing.dns_cache import DnsCache

SMALL = Answer("found", ((10, "mx.example.test"),))


def test_the_least_recently_used_answer_is_dropped_first() -> None:
    cache = DnsCache[str](2)
    cache.keep("a", 1.0, SMALL)
    cache.keep("b", 2.0, SMALL)
    assert cache.get("a") == (1.0, SMALL)
    cache.keep("c", 3.0, SMALL)
    assert [cache.get(name) is not None for name in "abc"] == [True, False, True]


def test_a_large_answer_counts_as_several() -> None:
    """Ten thousand answers of 64 KiB would be more than 600 MB."""
    cache = DnsCache[int](1000)
    for n in range(1000):
        cache.keep(n, 1.0, Answer("found", ("x" * 65_000,)))
        assert cache.octets <= 1000 * 2048
    assert len(cache) == 31


def test_a_replaced_answer_is_counted_once() -> None:
    cache = DnsCache[str](10)
    for _ in range(1000):
        cache.keep("a", 1.0, Answer("found", ("x" * 1500,)))
        cache.keep("b", 1.0, SMALL)
    assert len(cache) == 2
    cache.keep("a", 2.0, SMALL)
    assert cache.octets == 2 * len(repr(SMALL))
