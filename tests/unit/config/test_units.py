"""test_units — durations and sizes are read as written, and other text is refused

Owns: examples for shared.config.units; tests/property/shared/test_units_roundtrip.py has the general laws.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from shared.config.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("90s", timedelta(seconds=90)),
        ("500ms", timedelta(milliseconds=500)),
        ("5d", timedelta(days=5)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("1m5ms", timedelta(minutes=1, milliseconds=5)),
        ("0s", timedelta(0)),
        ("36500d", timedelta(days=36_500)),
        (300, timedelta(minutes=5)),
        ("300", timedelta(minutes=5)),
        (0, timedelta(0)),
        (timedelta(seconds=7), timedelta(seconds=7)),
    ],
)
def test_durations_are_read(written: object, meant: timedelta) -> None:
    assert parse_duration(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        *["5 m", " 5m", "5m\n", "5M", "1.5h", "-5m", "5m1h", "1h1h", "5w", "5min", "\u0665m"],
        *["", " ", "m", "36501d", "999999999999d", "9" * 5000, "1h, 5m", "PT5M"],
        *[-1, 10**30, 1.5, True, None, [], {}, timedelta(seconds=-1), timedelta(days=36_501)],
    ],
)
def test_an_invalid_duration_is_refused_with_the_allowed_form(written: object) -> None:
    with pytest.raises(ValueError, match=r"^.+ is not a duration; allowed: .+1h30m") as refused:
        parse_duration(written)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("25MiB", 25 * 1024 * 1024),
        ("1KiB", 1024),
        ("3GiB", 3 * 2**30),
        ("2TiB", 2 * 2**40),
        ("7B", 7),
        ("0B", 0),
        ("10240000", 10_240_000),
        (10_240_000, 10_240_000),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_sizes_are_read(written: object, meant: int) -> None:
    assert parse_size(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        *["", "MiB", "12 parsecs", "25 MiB", "25MB", "25mib", "25M", "-1B", "1.5GiB", "1MiB2KiB", "1MiB\n"],
        *["8388608TiB", "9" * 5000, -1, 2**63, 1.5, False, None, []],
    ],
)
def test_an_invalid_size_is_refused_with_the_allowed_units(written: object) -> None:
    with pytest.raises(ValueError, match=r"is not a size; allowed: a whole number with B, KiB, MiB, GiB or TiB"):
        parse_size(written)


def test_a_refusal_quotes_the_value() -> None:
    with pytest.raises(ValueError, match=r'^"12 parsecs" is not a size'):
        parse_size("12 parsecs")


@pytest.mark.parametrize(
    ("duration", "written"),
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=5), "5d"),
        (timedelta(seconds=1, milliseconds=250), "1s250ms"),
        (timedelta(microseconds=1_499), "1ms"),
    ],
)
def test_durations_are_written(duration: timedelta, written: str) -> None:
    assert format_duration(duration) == written


@pytest.mark.parametrize(
    ("size", "written"),
    [(0, "0B"), (1, "1B"), (1024, "1KiB"), (10_240_000, "10000KiB"), (2**20 + 1, "1048577B"), (2**41, "2TiB")],
)
def test_sizes_are_written(size: int, written: str) -> None:
    assert format_size(size) == written


def test_negative_values_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="negative"):
        format_duration(timedelta(seconds=-1))
    with pytest.raises(ValueError, match="negative"):
        format_size(-1)
