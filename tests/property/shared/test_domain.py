"""test_domain — the same rules apply to every spelling of a domain that resolves to it

Guarantees: the address of an envelope, and each configuration key and command that names domains, are stored as one
    text, so that comparisons are of text.
"""

from __future__ import annotations

import unicodedata
from contextlib import suppress
from datetime import UTC, datetime
from uuid import uuid4

import dns.name
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from queued.pacing.match import Fields, Selection
from queued.routing.route import override
from shared.config.condition.fields import FIELDS
from shared.config.condition.values import read_value
from shared.config.fields import Domain
from shared.config.queued.pacing import match_of
from shared.config.queued.routing import HostPort, Routes
from shared.config.queued.signing import read_domain
from shared.config.smtpd.policy_fields import Domain as PolicyDomain
from shared.config.smtpd.users import read_sender
from shared.mail.address import AddressRefused, parse
from shared.mail.domain import DomainRefused, comparable, to_ascii
from shared.mail.partition import partition_id
from shared.mail.suppression import target
from smtpd.envelope.client import User
from smtpd.policy.facts import Facts
from smtpd.policy.lists import Domains

# Names in DNS, and U-labels with many spellings.
DOMAINS = {
    "pinned.example": "pinned.example",
    "faß.de": "xn--fa-hia.de",
    "bücher.example": "xn--bcher-kva.example",
    "größe.faß.example": "xn--gre-6ka8i.xn--fa-hia.example",
    "例え.テスト": "xn--r8jz45g.xn--zckzah",
    "βόλος.com": "xn--nxasmm1c.com",
    "a_b.münchen.example": "a_b.xn--mnchen-3ya.example",
}
_DOTS = (".", "\u3002", "\uff0e", "\uff61")


def _wide(character: str) -> str:
    return chr(ord(character) + 0xFEE0) if "!" <= character <= "~" and character != "." else character


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A domain as DNS has it, and one way to write it."""
    written = draw(st.sampled_from(sorted(DOMAINS)))
    name = DOMAINS[written]
    text = draw(st.sampled_from([written, name]))
    text = unicodedata.normalize("NFD", text) if draw(st.booleans()) else text
    # ς has no upper case of its own, and SS is not ß: such letters stay as they are.
    letters = [
        draw(st.sampled_from([c, _wide(c), *([c.upper()] if c.upper().lower() == c else [])])) if c != "." else c
        for c in text
    ]
    return name, "".join(draw(st.sampled_from(_DOTS)) if c == "." else c for c in letters)


@given(spellings())
def test_every_spelling_meets_the_same_rules(spelling: tuple[str, str]) -> None:
    name, written = spelling
    address = parse(f"kunde@{written}")
    assert address.domain == name
    assert dns.name.from_text(to_ascii(written)) == dns.name.from_text(name)
    routes = TypeAdapter(Routes).validate_python({written: "relay.example"})
    assert routes == {name: HostPort("relay.example", None)}
    assert override(address.domain, routes) == name
    assert override(f"below.{name}", TypeAdapter(Routes).validate_python({f".{written}": "relay.example"}))
    for match in ({"destination": [written]}, match_of({"destination": [written]}).model_dump()):
        assert Selection(match).fits(Fields("default", address.domain).folded())
    assert target(f"Kunde@{written}") == f"kunde@{name}"
    assert TypeAdapter(PolicyDomain).validate_python(f"*.{written}") == f"*.{name}"
    assert f"a.{name}" in Domains([f"*.{written}"])
    assert Facts(now=datetime.now(UTC), client="", listener="", recipient=address).recipient_domain == name
    assert read_sender(written) == name
    assert User("u", senders=(read_sender(f"kunde@{written}"),)).may_send_as(address)
    assert read_domain(written) == name
    assert read_value(FIELDS["recipientdomain"], "=", written, exact=False).low == name
    assert TypeAdapter(Domain).validate_python(written) == name
    assert partition_id(written, 64) == partition_id(name, 64)


@pytest.mark.parametrize(
    "hidden", ["\u200b", "\u00ad", "\u2060", "\ufeff", "\ufe0f", "\u200d", "\u200c", "\u034f", "\u180e"]
)
@pytest.mark.parametrize("domain", ["pin{}ned.example", "pinned{}.example", "{}pinned.example", "pinned.example{}"])
def test_invisible_characters_are_refused(hidden: str, domain: str) -> None:
    with pytest.raises(AddressRefused):
        parse(f"kunde@{domain.format(hidden)}")
    with pytest.raises(DomainRefused):
        to_ascii(domain.format(hidden))


@pytest.mark.parametrize("domain", ["\uff20.example", "a\uff0fb.example", "a\u2024b.example", "☃.example", "a\uff05.b"])
def test_characters_that_map_to_delimiters_are_refused(domain: str) -> None:
    with pytest.raises(DomainRefused):
        to_ascii(domain)


@given(st.text(max_size=80))
def test_a_normalised_domain_stays_unchanged(text: str) -> None:
    with suppress(DomainRefused):
        once = to_ascii(text)
        assert once.isascii()
        assert to_ascii(once) == once
        assert comparable(text) == once


def test_a_route_in_two_spellings_is_a_duplicate() -> None:
    with pytest.raises(ValueError, match="is there twice"):
        TypeAdapter(Routes).validate_python({"faß.de": "a.example", "XN--FA-HIA.de": "b.example"})


def test_the_idna_codec_of_python_names_another_domain() -> None:
    """The reason for this file: `fass.de` is another domain, and its owner would get the bounce for faß.de."""
    assert "faß.de".encode("idna") == b"fass.de"
    assert str(parse(f"{uuid4()}@faß.de")).endswith("@xn--fa-hia.de")
