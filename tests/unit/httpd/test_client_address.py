"""test_client_address — which client a request comes from, by what trusted proxies say and others do not"""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from httpd.access.address import client_address

PROXIES = [ip_network("10.0.0.0/8"), ip_network("::1/128")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", None, "192.0.2.1"),
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),  # no proxy of ours: its word counts for nothing
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"),  # the first is what the client wrote itself
        ("10.0.0.1", "203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("::1", "[2001:db8::7]:1234", "2001:db8::7"),
        ("10.0.0.1", "nobody", "unknown"),
        ("10.0.0.1", "", "unknown"),
        ("::ffff:192.0.2.1", None, "192.0.2.1"),
        ("", None, "unknown"),
    ],
)
def test_the_client_is_the_last_address_that_a_proxy_of_ours_names(
    peer: str, forwarded: str | None, client: str
) -> None:
    assert client_address(peer, forwarded, PROXIES) == client
