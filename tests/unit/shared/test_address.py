"""test_address — valid mailboxes, and their stored form

Owns: a table of good and bad ones for shared/mail/address.py.
See: RFC 5321 sections 4.1.2, 4.1.3, 4.5.3.1; RFC 6531 section 3.3.
"""

from __future__ import annotations

import pytest

from shared.mail.address import AddressRefused, DomainMissing, least_quoted, parse, parse_given
from shared.mail.message import Address

GOOD = [
    ("user@example.com", "user", "example.com"),
    ("User.Name@Example.COM", "User.Name", "example.com"),
    ("a!#$%&'*+-/=?^_`{|}~z@example.com", "a!#$%&'*+-/=?^_`{|}~z", "example.com"),
    ('"quoted local"@example.com', '"quoted local"', "example.com"),
    ('"a@b"@example.com', '"a@b"', "example.com"),
    (r'"a\"b\\c"@example.com', r'"a\"b\\c"', "example.com"),
    ('""@example.com', '""', "example.com"),
    ("x" * 64 + "@example.com", "x" * 64, "example.com"),
    ("user@" + "a" * 63 + ".example", "user", "a" * 63 + ".example"),
    ("user@localhost", "user", "localhost"),
    ("user@1.example", "user", "1.example"),
    ("user@under_score.example", "user", "under_score.example"),
    ("user@xn--mnchen-3ya.example", "user", "xn--mnchen-3ya.example"),
    ("user@[192.0.2.1]", "user", "[192.0.2.1]"),
    ("user@[IPv6:2001:DB8:0::1]", "user", "[ipv6:2001:db8::1]"),
    ("user@[IPv6:::1]", "user", "[ipv6:::1]"),
    ("user@[IPv6:::ffff:192.0.2.1]", "user", "[192.0.2.1]"),
    ("user@[ipv6:0:0:0:0:0:FFFF:c000:201]", "user", "[192.0.2.1]"),
    ("user@[IPv6:::192.0.2.1]", "user", "[ipv6:::c000:201]"),
    ("user@[IPv6:64:ff9b::192.0.2.1]", "user", "[ipv6:64:ff9b::c000:201]"),
    ("grüße@MÜNCHEN.example", "grüße", "xn--mnchen-3ya.example"),
    ("用户@例子.广告", "用户", "xn--fsqu00a.xn--4rr70v"),
    ("kunde@faß.de", "kunde", "xn--fa-hia.de"),
    ('"ü"@example.com', '"ü"', "example.com"),
    ("ü" * 32 + "@example.com", "ü" * 32, "example.com"),
]

BAD = [
    "@example.com",
    ".a@example.com",
    "a.@example.com",
    "a..b@example.com",
    "a b@example.com",
    "a,b@example.com",
    "a(b)@example.com",
    "a<b>@example.com",
    "<a@example.com>",
    "a;b:c@example.com",
    "a[b]@example.com",
    "a\\b@example.com",
    "a@b@example.com",
    '"a"b@example.com',
    '"a@example.com',
    'a"@example.com',
    r'"a\"@example.com',
    '"a"b"@example.com',
    "x" * 65 + "@example.com",
    "ü" * 33 + "@example.com",
    "user@-example.com",
    "user@example-.com",
    "user@.example.com",
    "user@example..com",
    "user@example.com.",
    "user@exa mple.com",
    "user@exam>ple.com",
    "user@example.com ",
    " user@example.com",
    "user@" + "a" * 64 + ".example",
    "user@" + "ü" * 64 + ".example",
    "user@" + ".".join(["a" * 62] * 5),
    "user@[192.0.2]",
    "user@[192.0.2.1",
    "user@192.0.2.1]",
    "user@[192.0.2.256]",
    "user@[2001:db8::1]",
    "user@[IPv6:192.0.2.1]",
    "user@[IPv6:2001:db8::g]",
    "user@[]",
    "user@[[192.0.2.1]]",
    "user@[192.0.2.1].example",
    # A zone is not part of an address literal, and could contain any text.
    "user@[IPv6:fe80::1%eth0]",
    "user@[IPv6:fe80::1%a b]",
    "user@[IPv6:fe80::1%> SIZE=1]",
]

#: Anywhere in an address these could end a line, a string, or the patience of a terminal.
CONTROLS = ["\r", "\n", "\0", "\t", "\x7f", "\x1b", "\x85", "\u2028", "\u2029", "\ud800"]


@pytest.mark.parametrize(("text", "localpart", "domain"), GOOD)
def test_a_valid_address_is_parsed_and_written_back(text: str, localpart: str, domain: str) -> None:
    found = parse(text)
    assert found == Address(localpart, domain)
    assert parse(str(found)) == found


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a..b@example.com", '"a..b"@example.com'),
        (".a@example.com", '".a"@example.com'),
        ("a.@example.com.", '"a."@example.com'),
        ("a.b@Example.com.", "a.b@example.com"),
        ('"a..b"@example.com', '"a..b"@example.com'),
        ("ü..@faß.de", '"ü.."@xn--fa-hia.de'),
    ],
)
def test_dots_that_clients_misplace_are_no_reason_to_refuse(text: str, written: str) -> None:
    found = parse_given(text)
    assert str(found) == written
    assert parse(written) == found


@pytest.mark.parametrize(
    "text",
    [each for each in BAD if each not in {".a@example.com", "a.@example.com", "a..b@example.com", "user@example.com."}],
)
def test_nothing_else_that_clients_give_is_repaired(text: str) -> None:
    with pytest.raises(AddressRefused):
        parse_given(text)


@pytest.mark.parametrize("text", BAD)
def test_an_invalid_address_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(AddressRefused) as refusal:
        parse(text)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).isascii()


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(
    "template", ["us{}er@example.com", '"us{}er"@example.com', "user@exa{}mple.com", "{}", "u@e.com{}"]
)
def test_a_control_character_is_refused_anywhere(template: str, control: str) -> None:
    with pytest.raises(AddressRefused, match="control characters"):
        parse(template.format(control))


@pytest.mark.parametrize("text", ["", "user", "postmaster", "user@", '"a@b"', "user @"])
def test_a_missing_domain_has_its_own_error(text: str) -> None:
    with pytest.raises(AddressRefused) as refusal:
        parse(text)
    assert isinstance(refusal.value, DomainMissing) == (not text.startswith('"'))


def test_the_length_limit_applies_to_the_lower_case_form() -> None:
    """U+0130 is two octets, its lower case three: the stored form must still be a valid address."""
    label = "\u0130" * 30
    with pytest.raises(AddressRefused):
        parse(f"user@{label}.example")


@pytest.mark.parametrize(
    ("written", "least"),
    [
        ("a", "a"),
        ('"a"', "a"),
        (r'"\a.\b"', "a.b"),
        ('"a b"', '"a b"'),
        (r'"a\ b"', '"a b"'),
        (r'"a\"b\\\c"', r'"a\"b\\c"'),
        ('"a."', '"a."'),
        ('""', '""'),
        ('"a"b', '"a"b'),
    ],
)
def test_a_local_part_has_one_spelling_without_needless_quotes(written: str, least: str) -> None:
    assert least_quoted(written) == least
    assert least_quoted(least) == least
