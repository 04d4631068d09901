"""test_array_text — PostgreSQL reads the text of an array exactly as it was written

Owns: proofs about shared/postgres/array_text.py, with PostgreSQL as the reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.postgres.array_text import numbers, texts

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

HARD = [
    "",
    "NULL",
    "null",
    '"',
    "\\",
    '\\"',
    "{",
    "}",
    "{}",
    ",",
    " a ",
    "a\r\nb",
    "\x01\x7f",
    "ü \U0001f4ee",
    "%s",
    None,
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | st.sampled_from(HARD) | st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
def test_any_array_of_texts_is_read_back(factory: Factory, values: list[str | None]) -> None:
    assert factory.one("SELECT %(a)s::text[]", a=texts(values)) == values


@pytest.mark.parametrize("value", HARD)
def test_each_difficult_text_is_read_back(factory: Factory, value: str | None) -> None:
    assert factory.one("SELECT %(a)s::text[]", a=texts([value])) == [value]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("bigint", [-(2**63), 0, 2**63 - 1, None]),
        ("integer", []),
        ("float8", [0.0, 1e-07, 1.5, 123456.789, None]),
    ],
)
def test_numbers_survive_the_text_form_of_an_array(factory: Factory, type_: str, values: list[float | None]) -> None:
    assert factory.one(f"SELECT %(a)s::{type_}[]", a=numbers(values)) == values


def test_a_nul_octet_is_refused_not_cut(factory: Factory) -> None:
    with pytest.raises(psycopg.DataError):
        factory.one("SELECT %(a)s::text[]", a=texts(["a\0b"]))
