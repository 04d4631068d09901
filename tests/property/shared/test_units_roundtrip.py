"""test_units_roundtrip — written units can be read, and editors accept the same values as we do

Owns: the laws of shared.config.units for all values; tests/unit/config/test_units.py has the examples.
"""

from __future__ import annotations

import re
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.config.units import (
    DURATION_PATTERN,
    LARGEST_SIZE,
    LONGEST_DURATION,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

MILLISECONDS = st.integers(0, LONGEST_DURATION // timedelta(milliseconds=1))
ALMOST_UNITS = st.text("0123456789dhmsKMGTiB -.\n", max_size=12)


@given(MILLISECONDS)
def test_a_written_duration_is_parsed_back(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@given(st.integers(0, LARGEST_SIZE))
def test_a_written_size_is_parsed_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 2**20), st.sampled_from(["KiB", "MiB", "GiB", "TiB"]))
def test_a_size_in_whole_units_is_written_no_longer_than_given(count: int, unit: str) -> None:
    size = parse_size(f"{count}{unit}")
    assert parse_size(format_size(size)) == size
    assert len(format_size(size)) <= len(f"{count}{unit}")


@given(st.text() | ALMOST_UNITS)
def test_durations_are_read_exactly_when_they_match_the_pattern(text: str) -> None:
    try:
        duration = parse_duration(text)
    except ValueError as refused:
        assert "allowed: " in str(refused)  # noqa: PT017 - the refusal is one of two good ends
        too_long = re.fullmatch(DURATION_PATTERN, text)
        assert not too_long or sum(map(int, re.findall("[0-9]+", text))) > LONGEST_DURATION.days
    else:
        assert timedelta(0) <= duration <= LONGEST_DURATION
        assert re.fullmatch(DURATION_PATTERN, text)


@given(st.text() | ALMOST_UNITS)
def test_sizes_are_read_exactly_when_they_match_the_pattern(text: str) -> None:
    try:
        size = parse_size(text)
    except ValueError as refused:
        assert str(refused).isprintable()  # noqa: PT017 - the refusal is one of two good ends
        too_large = re.fullmatch(SIZE_PATTERN, text)
        assert not too_large or int(too_large[1]) > LARGEST_SIZE // 2**40
    else:
        assert 0 <= size <= LARGEST_SIZE
        assert re.fullmatch(SIZE_PATTERN, text)
