"""test_address — an accepted address contains nothing out of place, and is parsed back unchanged

Owns: properties of shared/mail/address.py.
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.mail.address import AddressRefused, parse
from shared.mail.domain import comparable
from shared.mail.suppression import target
from smtpd.policy.facts import known_mailbox
from smtpd.policy.lists import Domains

# Text near enough to addresses that many are accepted.
WORDS = ["a", "b.c", "example.com", "192.0.2.1", "IPv6:", "::1", "SIZE=1", "\u0130", "\u2028"]
PIECES = st.sampled_from([*WORDS, *'.@"\\ <>[]%-_ü例\r\n\0\t\x7f\x85'])
NEARLY = st.lists(PIECES, max_size=12).map("".join)
LOCALPARTS = st.from_regex(r'[a-z0-9!#.]{1,10}|"[a-z \\"]{0,10}"', fullmatch=True)
DOMAINS = st.from_regex(r"[a-zA-Z0-9_ü\u0130-]{1,60}(\.[a-z]{2,5})?|\[(IPv6:)?[0-9a-f:.%> ]{2,20}\]", fullmatch=True)
ADDRESSES = NEARLY | st.builds("{}@{}".format, LOCALPARTS, DOMAINS) | st.text(max_size=30).map("a@{}".format)

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


_MAPPED = 0xFFFF << 32  # ::ffff:0:0/96, RFC 4291 section 2.5.5.2


def literals(address: ipaddress.IPv6Address) -> list[str]:
    """Spellings of the literal of one host."""
    high, low = divmod(int(address), 2**32)
    dotted = f"{ipaddress.IPv6Address(high << 32).exploded[:30]}{ipaddress.IPv4Address(low)}"
    written = [str(address), address.exploded, dotted]
    found = [f"[{tag}{each}]" for tag in ("IPv6:", "ipv6:") for each in (*written, *map(str.upper, written))]
    return [*found, f"[{ipaddress.IPv4Address(low)}]"] if high == 0xFFFF else found


HOSTS = (st.integers(0, 2**32 - 1).map(lambda low: _MAPPED + low) | st.integers(0, 2**128 - 1)).map(
    ipaddress.IPv6Address
)


def accepted(text: str) -> str | None:
    """The address as we pass it on; None when it is refused."""
    try:
        return str(parse(text))
    except AddressRefused:
        return None


@given(ADDRESSES)
@example("user@[IPv6:fe80::1%> SIZE=1]")
@example('"a b"@example.com')
def test_an_address_contains_no_delimiter_outside_quotes(text: str) -> None:
    found = accepted(text)
    if found is None:
        return
    assert not _CONTROL.search(found)
    outside = _QUOTED.sub("", found)
    assert not set(outside) & set(' <>()[],;:\\"') - set("[]:"), found
    if set(outside) & set("[]:"):
        assert re.search(r"@\[(ipv6:[0-9a-f:]+|[0-9.]+)\]$", outside), found


@given(ADDRESSES)
@example("user@" + "\u0130" * 30 + ".example")
@example("user@[IPv6:2001:DB8::0001]")
def test_an_accepted_address_is_parsed_back_unchanged(text: str) -> None:
    found = accepted(text)
    if found is not None:
        assert str(parse(found)) == found
        assert parse(found) == parse(text)


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(AddressRefused):
        found = parse(text)
        assert found.localpart == text.rpartition("@")[0] != ""
        assert found.domain


def test_the_strategy_finds_valid_and_invalid_addresses() -> None:
    """Else the properties above would say nothing."""
    assert accepted("a@example.com") == "a@example.com"
    with pytest.raises(AddressRefused):
        parse("a b@example.com")


@given(HOSTS, HOSTS)
@example(ipaddress.IPv6Address(_MAPPED + 1), ipaddress.IPv6Address(1))
def test_a_host_has_one_literal_in_addresses_rules_and_suppressions(
    host: ipaddress.IPv6Address, other: ipaddress.IPv6Address
) -> None:
    written = literals(host)
    [domain] = {parse(f"user@{each}").domain for each in written}
    assert {comparable(each) for each in written} == {domain}
    assert {target(f"user@{each}") for each in written} == {f"user@{domain}"}
    assert {known_mailbox(f"User@{each}") for each in written} == {f"user@{domain}"}
    assert all(domain in Domains([each]) for each in written)
    assert (parse(f"user@{literals(other)[0]}").domain == domain) is (host == other)
