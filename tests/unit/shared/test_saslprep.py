"""test_saslprep — RFC 4013's own examples, and further requirements of passwords"""

from __future__ import annotations

import pytest

from shared.security.saslprep import NotPrepared, password_octets, prepared
from tests.fixtures.processor import least_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I\u00adX", "IX"),  # RFC 4013 section 3: soft hyphen mapped to nothing
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
        ("grüße", "grüße"),
        ("gru\u0308ße", "grüße"),
    ],
)
def test_prepared_strings_have_one_spelling(text: str, expected: str) -> None:
    assert prepared(text) == expected
    assert prepared(expected) == expected


@pytest.mark.parametrize(
    "text", ["\u0007", "\u0627\u0031", "", "\u00ad", "\u0627a\u0628", "a\0b", "\ud800", "\ue000", "\u202e"]
)
def test_prohibited_characters_are_refused(text: str) -> None:
    with pytest.raises(NotPrepared) as refused:
        prepared(text)
    assert text == "" or text not in str(refused.value)


def test_a_password_that_saslprep_refuses_is_its_own_octets() -> None:
    assert password_octets("\u0627\u0031") == "\u0627\u0031".encode()
    assert password_octets(b"\xff\xfe".decode(errors="surrogateescape")) == b"\xff\xfe"
    assert password_octets("I\u00adX") == b"IX"
    assert password_octets("🔑 stays") == "🔑 stays".encode()


def test_a_text_of_a_hostile_client_is_refused_before_it_takes_long() -> None:
    """Its characters become eighteen each; nothing was checked yet, and other clients wait meanwhile."""
    with pytest.raises(NotPrepared, match="longer than 255"):
        prepared("\ufdfa" * 3000)
    assert password_octets("\ufdfa" * 3000) == ("\ufdfa" * 3000).encode()
    assert least_seconds(lambda: password_octets("\ufdfa" * 3000)) < 0.02
    assert prepared("\ufdfa" * 255)
    assert prepared("a" * 3000) == "a" * 3000
