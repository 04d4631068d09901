"""test_saslprep — preparing a prepared text does not change it"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.security.saslprep import NotPrepared, password_octets, prepared


@given(st.text(max_size=30))
def test_preparing_twice_changes_nothing(text: str) -> None:
    try:
        once = prepared(text)
    except NotPrepared:
        return
    assert prepared(once) == once
    assert once
    assert "\0" not in once
    assert not any(0xD800 <= ord(c) <= 0xDFFF for c in once)


@given(st.binary(max_size=40))
def test_any_octets_can_be_a_password(octets: bytes) -> None:
    assert isinstance(password_octets(octets.decode(errors="surrogateescape")), bytes)
