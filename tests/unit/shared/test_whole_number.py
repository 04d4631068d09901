"""test_whole_number — digits are a number if PostgreSQL's bigint has it; any other text is none, and no text raises"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.whole_number import LARGEST, whole_number


@given(st.integers(0, LARGEST))
def test_every_number_of_a_bigint_is_read(number: int) -> None:
    assert whole_number(str(number)) == number


@given(st.one_of(st.text(), st.text("-+_0123456789.² \u0663\uff11")))
def test_any_text_is_a_number_or_none(text: str) -> None:
    number = whole_number(text)
    assert number is None or (text.lstrip("0") or "0") == str(number)


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1_0", " 1", "1\n", "²", "\u0663", "\uff11", "1.0", str(LARGEST + 1), "9" * 5000]
)
def test_what_is_no_number_of_a_bigint_is_none(text: str) -> None:
    assert whole_number(text) is None
