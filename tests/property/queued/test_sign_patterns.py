"""test_sign_patterns — the rules that are looked up for a domain are those whose patterns fit it"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from queued.signing.sign import patterns_of

NAMES = st.text("ab.*", max_size=8)


@given(domain=NAMES, pattern=NAMES)
@example(domain="a.b", pattern="*.a.b")
@example(domain="a.b", pattern="*.b")
@example(domain=".b", pattern="*.b")
def test_a_pattern_is_found_if_it_fits(domain: str, pattern: str) -> None:
    below = pattern.startswith("*.") and domain.endswith(pattern[1:])
    assert (pattern in patterns_of(domain)) == (pattern in {"*", domain} or below)
