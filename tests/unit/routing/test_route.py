"""test_route — the decisions about where mail goes, one by one"""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address
from random import Random
from typing import Any

import pytest

from queued.routing.dns_answer import Answer
from queued.routing.find_hops import Ourselves
from queued.routing.route import (
    Address,
    ByLiteral,
    ByMx,
    Fixed,
    Hop,
    Host,
    Unroutable,
    choose,
    cut_loops,
    in_order,
    mail_hosts,
    may_connect,
    override,
    reachable,
    way,
)
from shared.config.queued.routing import HostPort
from shared.config.queued.transport import Transport

WAY = ByMx("example.test", 25)


def transport(**sections: Any) -> Transport:
    return Transport.model_validate(sections)


def found(*addresses: str) -> Answer[Address]:
    return Answer("found", tuple(ip_address(a) for a in addresses))


def verdict(error: pytest.ExceptionInfo[Unroutable]) -> tuple[str, str, str | None]:
    outcome = error.value.outcome
    return outcome.kind, outcome.scope, outcome.enhanced


@pytest.mark.parametrize(
    ("domain", "key"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.com.", "example.com"),
        ("a.example.com", ".example.com"),
        ("b.a.example.com", ".a.example.com"),
        ("example.net", ".net"),
        ("a.example.net", ".net"),
        ("net", None),
        ("notexample.com", None),
        ("com", None),
        ("[192.0.2.1]", None),
    ],
)
def test_the_most_specific_route_is_used(domain: str, key: str | None) -> None:
    routes = dict.fromkeys(("example.com", ".example.com", ".a.example.com", ".net"), HostPort("h", None))
    assert override(domain, routes) == key


def test_by_default_all_mail_goes_to_one_server() -> None:
    assert choose("example.com", transport()) == Fixed((Host("127.0.0.1", 25, 0),))
    assert choose("[192.0.2.1]", transport()) == Fixed((Host("127.0.0.1", 25, 0),))


def test_route_mode_and_hosts_decide_the_next_hop() -> None:
    mx = transport(
        connection={"mode": "mx", "port": 2525}, routes={"Example.com": "relay.test:26", ".example.com": "2001:db8::1"}
    )
    assert choose("example.com", mx) == Fixed((Host("relay.test", 26, 0),))
    assert choose("a.example.com", mx) == Fixed((Host("2001:db8::1", 25, 0),))
    assert choose("example.net", mx) == ByMx("example.net", 2525)
    assert choose("[IPv6:2001:db8::2]", mx) == ByLiteral(
        Host("[IPv6:2001:db8::2]", 2525, 0, addresses=(ip_address("2001:db8::2"),))
    )
    hosts = [{"server": "a.test"}, {"server": "b.test", "port": 26, "preference": 5, "weight": 3}]
    several = transport(connection={"hosts": hosts})
    assert choose("example.com", several) == Fixed((Host("a.test", 25, 10), Host("b.test", 26, 5, 3)))


@pytest.mark.parametrize("domain", ["[192.0.2]", "[192.0.2.1", "[IPv6:fe80::1%eth0]", "[tag:content]", "[]"])
def test_a_broken_address_literal_is_permanent(domain: str) -> None:
    with pytest.raises(Unroutable) as error:
        choose(domain, transport(connection={"mode": "mx"}))
    assert verdict(error) == ("failed", "destination", "5.1.2")


def test_recipients_with_the_same_next_hop_share_an_attempt() -> None:
    relay = transport(routes={"a.test": "h.test", "b.test": "h.test", "c.test": "h.test:26"})
    ways = {domain: way(domain, relay) for domain in ("a.test", "b.test", "c.test", "d.test", "e.test")}
    assert ways["a.test"] == ways["b.test"] != ways["c.test"]
    assert ways["d.test"] == ways["e.test"] == ""
    mx = transport(connection={"mode": "mx"})
    assert way("A.test", mx) == way("a.TEST", mx) != way("b.test", mx)


def test_mail_hosts_are_those_of_the_answer_or_the_domain_itself() -> None:
    answer = Answer("found", ((20, "b.test"), (10, "a.test"), (10, "a.test"), (0, ".")))
    assert mail_hosts(WAY, answer) == (Host("a.test", 25, 10), Host("b.test", 25, 20))
    assert mail_hosts(WAY, Answer("nothing")) == (Host("example.test", 25, 0),)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer[tuple[int, str]]("failed", (), "SERVFAIL"), ("deferred", "destination", "4.4.3")),
        (Answer[tuple[int, str]]("unknown"), ("failed", "destination", "5.1.2")),
        (Answer("found", ((0, "."),)), ("failed", "destination", "5.1.10")),
    ],
)
def test_a_domain_without_mail_hosts_has_its_outcome(
    answer: Answer[tuple[int, str]], expected: tuple[str, str, str]
) -> None:
    with pytest.raises(Unroutable) as error:
        mail_hosts(WAY, answer)
    assert verdict(error) == expected


def test_hosts_of_our_preference_and_worse_are_cut() -> None:
    hosts = [Host("a", 25, 10), Host("us", 25, 20), Host("c", 25, 20), Host("d", 25, 30)]
    assert [h.name for h in cut_loops(hosts, lambda h: h.name == "us", "x")] == ["a"]
    assert [h.name for h in cut_loops(hosts, lambda h: False, "x")] == ["a", "us", "c", "d"]
    with pytest.raises(Unroutable) as error:
        cut_loops(hosts, lambda h: h.name == "a", "x")
    assert verdict(error) == ("failed", "destination", "5.4.6")


def test_our_own_name_and_addresses_are_recognised() -> None:
    us = Ourselves(["MX.example.com.", "203.0.113.5", "[192.0.2.9]"])
    assert us.is_named(Host("mx.example.com", 25, 0))
    assert not us.is_named(Host("mx2.example.com", 25, 0))
    for address, port, ours in [
        ("203.0.113.5", 2525, True),
        ("::ffff:203.0.113.5", 2525, True),
        ("192.0.2.9", 25, True),
        ("127.0.0.2", 25, True),
        ("127.0.0.2", 2525, False),
        ("198.51.100.7", 25, False),
        ("224.0.0.1", 25, False),
    ]:
        assert us.has_address(Host("h", port, 0, addresses=(ip_address(address),))) is ours, address


@pytest.mark.parametrize(
    ("address", "public", "private"),
    [
        ("8.8.8.8", True, True),
        ("2606:4700::1", True, True),
        ("127.0.0.1", False, True),
        ("10.1.2.3", False, True),
        ("172.16.0.1", False, True),
        ("192.168.1.1", False, True),
        ("169.254.1.1", False, True),
        ("100.64.0.1", False, True),
        ("::1", False, True),
        ("fe80::1", False, True),
        ("fd00::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("64:ff9b::127.0.0.1", False, True),
        ("2002:7f00:1::", False, True),
        ("64:ff9b::8.8.8.8", True, True),
        ("0.0.0.0", False, False),  # noqa: S104 - nobody binds here
        ("::", False, False),
        ("::ffff:0.0.0.0", False, False),
        ("224.0.0.1", False, False),
        ("ff02::1", False, False),
        ("255.255.255.255", False, False),
    ],
)
def test_dns_may_lead_only_to_allowed_addresses(address: str, public: bool, private: bool) -> None:  # noqa: FBT001 - a column each
    assert may_connect(ip_address(address), private=False) is public
    assert may_connect(ip_address(address), private=True) is private


def test_one_reachable_host_is_enough() -> None:
    hosts = [Host(name, 25, 10) for name in ("gone", "failed", "inside", "good")]
    answers: dict[str, Answer[Address]] = {
        "gone": Answer("unknown"),
        "failed": Answer("failed", (), "SERVFAIL"),
        "inside": found("10.0.0.1"),
        "good": found("10.0.0.2", "8.8.8.8"),
    }
    [only] = reachable("example.test", hosts, answers, by_mx=True, private=False)
    assert (only.name, only.addresses) == ("good", (ip_address("8.8.8.8"),))


@pytest.mark.parametrize(
    ("answers", "by_mx", "expected"),
    [
        ([Answer("unknown"), Answer("failed", (), "SERVFAIL")], True, ("deferred", "4.4.3")),
        ([found("10.0.0.1"), Answer("failed", (), "SERVFAIL")], True, ("deferred", "4.4.3")),
        ([found("10.0.0.1"), Answer("unknown")], True, ("deferred", "4.4.4")),
        ([Answer("nothing"), Answer("unknown")], True, ("failed", "5.4.4")),
        ([Answer("nothing")], False, ("failed", "5.1.2")),
    ],
)
def test_unusable_hosts_are_an_error(answers: list[Answer[Address]], by_mx: bool, expected: tuple[str, str]) -> None:  # noqa: FBT001 - as above
    hosts = [Host(f"h{n}", 25, 10) for n in range(len(answers))]
    by_name = {host.name: answer for host, answer in zip(hosts, answers, strict=True)}
    with pytest.raises(Unroutable) as error:
        reachable("example.test", hosts, by_name, by_mx=by_mx, private=False)
    kind, scope, enhanced = verdict(error)
    assert (kind, enhanced, scope) == (*expected, "destination")


def test_preference_first_then_weight() -> None:
    hosts = [Host("rare", 25, 10), Host("often", 25, 10, weight=9), Host("last", 25, 20, weight=1000)]
    random = Random(7)
    orders = Counter(tuple(hop.host for hop in in_order(hosts, random)) for _ in range(2000))
    assert set(orders) == {("often", "rare", "last"), ("rare", "often", "last")}
    assert 0.86 < orders["often", "rare", "last"] / 2000 < 0.94


def test_address_families_alternate_and_each_address_occurs_once() -> None:
    four = tuple(ip_address(f"192.0.2.{n}") for n in range(1, 5))
    six = tuple(ip_address(f"2001:db8::{n}") for n in range(1, 3))
    host = Host("mx.test", 25, 10, addresses=(*four, *six))
    for seed in range(20):
        hops = in_order([host, Host("alias.test", 25, 20, addresses=four)], Random(seed))
        assert sorted(hop.host for hop in hops) == sorted(map(str, (*four, *six)))
        assert len({":" in hop.host for hop in hops[:2]}) == 2


def test_a_hop_is_written_as_in_a_mail_log() -> None:
    assert str(Hop("127.0.0.1", 25, "127.0.0.1")) == "127.0.0.1:25"
    assert str(Hop("2001:db8::1", 25, "2001:db8::1")) == "[2001:db8::1]:25"
    assert str(Hop("relay.test", 25, "relay.test")) == "relay.test:25"
    assert str(Hop("192.0.2.1", 25, "mx.test")) == "mx.test[192.0.2.1]:25"
    assert str(Hop("2001:db8::1", 25, "mx.test")) == "mx.test[2001:db8::1]:25"
