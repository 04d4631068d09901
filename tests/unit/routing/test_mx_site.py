"""test_mx_site — domains with the same mail exchangers are one site, and the memory of that is only a guess"""

from __future__ import annotations

import pytest

from queued.routing.route import Host, Unroutable
from queued.routing.site import Hops, Parted, SeenSites, site, site_name, site_way
from shared.config.queued.transport import Transport
from shared.mail.outcome import Outcome

MX = Transport.model_validate({"connection": {"mode": "mx", "sites": True}})
ONE = site([Host("mx1.example", 25, 10), Host("mx2.example", 25, 20)])
OTHER = site([Host("mx1.example", 25, 20), Host("mx2.example", 25, 10)])
NOWHERE = Unroutable(Outcome("failed", "destination", None, "5.1.2", "no such domain"))


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (["mx.example.com"], "mx.example.com"),
        (["MX1.example.com.", "mx2.example.com"], "(mx1|mx2).example.com"),
        (["example.com", "mx.example.com"], "(mx)?.example.com"),
        (["a.x.example", "b.y.example"], "(a|b).(x|y).example"),
        (["a.example", "b.test"], "(a|b).(example|test)"),
        ([], ""),
    ],
)
def test_a_site_is_named_by_the_common_parts_of_its_hosts(names: list[str], name: str) -> None:
    assert site_name(names) == name


def test_a_long_site_name_is_truncated() -> None:
    assert site_name(f"{'x' * 60}{n}.example" for n in range(9)) == f"{'x' * 60}0.example+8"


def test_only_domains_with_identical_exchangers_are_one_site() -> None:
    assert site([Host("mx2.example", 25, 20), Host("mx1.example", 25, 10)]) == ONE
    assert ONE.name == OTHER.name
    assert ONE != OTHER


def test_domains_of_one_site_share_a_destination_while_it_is_remembered() -> None:
    seen = SeenSites(kept=10)
    seen.saw("One.example", ONE, 0)
    seen.saw("two.example", ONE, 5)
    ways = {site_way(d, MX, seen.of(d, 9)) for d in ("one.example", "two.example")}
    assert ways == {"site 10:mx1.example:25 20:mx2.example:25"}
    assert site_way("one.example", MX, seen.of("one.example", 10)) == "mx one.example"


def test_a_route_is_not_a_site() -> None:
    routed = Transport.model_validate(
        {"connection": {"mode": "mx", "sites": True}, "routes": {"a.example": "b.example"}}
    )
    assert site_way("a.example", routed, ONE) == "route b.example"


def test_the_memory_is_bounded() -> None:
    seen = SeenSites(most=2)
    for domain in ("a.example", "b.example", "c.example"):
        seen.saw(domain, ONE, 0)
    assert [seen.of(d, 0) for d in ("a.example", "b.example", "c.example")] == [None, ONE, ONE]


def test_a_common_route_is_remembered_for_each_domain() -> None:
    seen, found = SeenSites(), Hops([], ONE)
    assert seen.together(["a.example", "b.example"], [found, found], 0) is found
    assert seen.of("a.example", 1) == seen.of("b.example", 1) == ONE


def test_domains_whose_exchangers_differ_are_separated() -> None:
    seen = SeenSites()
    with pytest.raises(Parted):
        seen.together(["a.example", "b.example"], [Hops([], ONE), Hops([], OTHER)], 0)
    assert (seen.of("a.example", 1), seen.of("b.example", 1)) == (ONE, OTHER)
    with pytest.raises(Parted):
        seen.together(["a.example", "b.example"], [Hops([], ONE), NOWHERE], 0)
    assert seen.of("b.example", 1) is None


def test_a_single_domain_without_route_raises_its_reason() -> None:
    with pytest.raises(Unroutable):
        SeenSites().together(["a.example"], [NOWHERE], 0)


def test_separated_domains_stay_separate_for_the_configured_time() -> None:
    seen = SeenSites(kept=10)
    seen.part(["a.example"], 0)
    seen.saw("a.example", ONE, 9)
    assert seen.of("a.example", 9) is None
    seen.saw("a.example", ONE, 10)
    assert seen.of("a.example", 10) == ONE
