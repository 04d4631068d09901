"""test_route_order — for any published records, the order holds and no loop remains"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queued.routing.route import Host, Unroutable, cut_loops, in_order, may_connect

ADDRESSES = st.one_of(
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.integers(0, 2**128 - 1).map(IPv6Address),
    st.sampled_from([IPv4Address("127.0.0.1"), IPv6Address("::1"), IPv6Address("::ffff:10.0.0.1")]),
)
HOSTS = st.lists(
    st.builds(
        Host,
        name=st.sampled_from("abcdef"),
        port=st.just(25),
        preference=st.integers(0, 5),
        weight=st.integers(1, 9),
        addresses=st.lists(ADDRESSES, min_size=1, max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@given(HOSTS, st.integers())
def test_hops_are_the_addresses_each_once_in_the_order_of_preference(hosts: list[Host], seed: int) -> None:
    hops = in_order(hosts, Random(seed))
    best = {str(a): min(h.preference for h in hosts if a in h.addresses) for h in hosts for a in h.addresses}
    assert sorted(hop.host for hop in hops) == sorted(best)
    preferences = [best[hop.host] for hop in hops]
    assert preferences == sorted(preferences)


@given(HOSTS, st.sets(st.sampled_from("abcdef")))
def test_only_hosts_preferred_to_our_own_remain(hosts: list[Host], ours: set[str]) -> None:
    own = [host.preference for host in hosts if host.name in ours]
    expected = [host for host in hosts if not own or host.preference < min(own)]
    if expected:
        assert list(cut_loops(hosts, lambda host: host.name in ours, "example.test")) == expected
    else:
        with pytest.raises(Unroutable, match="loops back to ourselves"):
            cut_loops(hosts, lambda host: host.name in ours, "example.test")


@given(ADDRESSES)
def test_public_addresses_are_allowed_with_private_ones(address: IPv4Address | IPv6Address) -> None:
    assert may_connect(address, private=True) or not may_connect(address, private=False)
