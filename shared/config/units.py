"""units — durations and sizes as people write them, to values and back

Owns: the notation of durations (`1h30m`, `500ms`, plain seconds) and sizes (`25MiB`, plain bytes).
Guarantees: pure; `parse(format(x)) == x` for whole milliseconds and bytes; a value that is accepted by a
parser matches the pattern beside it, which is what the JSON Schemas show to editors.
Raises: ValueError, one line that quotes the value and says what is allowed.
See: Halon's `?d?h?m?s` and `?(TiB|GiB|MiB|KiB|B)`, https://docs.halon.io/manual/config.html
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from shared.masking import show

# Groups of digits are bounded so that no text can become a number that is costly to hold.
DURATION_PATTERN: Final = (
    r"^([0-9]{1,12}|(?=[0-9])([0-9]{1,12}d)?([0-9]{1,12}h)?([0-9]{1,12}m)?([0-9]{1,12}s)?([0-9]{1,12}ms)?)$"
)
SIZE_PATTERN: Final = r"^([0-9]{1,19})(TiB|GiB|MiB|KiB|B)?$"

LONGEST_DURATION: Final = timedelta(days=36_500)  # a date plus this still is a date
LARGEST_SIZE: Final = 2**63 - 1  # PostgreSQL's bigint, into which sizes go

DURATION_ALLOWED: Final = "whole numbers with d, h, m, s or ms in that order (1h30m), or whole seconds, at most 36500d"
TYPED_DURATION_ALLOWED: Final = "whole numbers with d, h, m, s or ms in that order (90s, 1h30m), at most 36500d"
SIZE_ALLOWED: Final = "a whole number with B, KiB, MiB, GiB or TiB, or whole bytes, below 8388608TiB"

_DURATION: Final = re.compile(DURATION_PATTERN)
_SIZE: Final = re.compile(SIZE_PATTERN)
_MILLISECONDS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_BYTES: Final = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}


def parse_duration(value: object) -> timedelta:
    """A span of time from `1d2h3m4s500ms` (any parts of it, in this order) or a whole number of seconds.

    A timedelta passes if it is not negative. Raises ValueError for anything else, or beyond 36500d.
    """
    milliseconds: int | None = None
    if isinstance(value, timedelta):
        if timedelta(0) <= value <= LONGEST_DURATION:
            return value
    elif isinstance(value, int) and not isinstance(value, bool):
        milliseconds = value * 1_000
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        plain, *parts = match.groups()
        written = [part for part in parts if part]
        milliseconds = (
            sum(int(part.rstrip("dhms")) * _MILLISECONDS[part.lstrip("0123456789")] for part in written)
            if written
            else int(plain) * 1_000
        )
    if milliseconds is None or not 0 <= milliseconds <= LONGEST_DURATION // timedelta(milliseconds=1):
        raise ValueError(f"{show(value)} is not a duration; allowed: {DURATION_ALLOWED}")
    return timedelta(milliseconds=milliseconds)


def parse_typed_duration(text: str) -> timedelta:
    """A span of time that a person types: as `parse_duration`, but always with a unit.

    By a number alone a person may mean minutes. Raises ValueError as `parse_duration` does.
    """
    try:
        if not text.isdigit():
            return parse_duration(text)
        wrong = "has no unit"
    except ValueError:
        wrong = "is not a duration"
    raise ValueError(f"{show(text)} {wrong}; allowed: {TYPED_DURATION_ALLOWED}")


def parse_size(value: object) -> int:
    """A number of bytes from `25MiB` (binary units only) or a whole number of bytes.

    Raises ValueError for anything else, or beyond PostgreSQL's bigint.
    """
    size: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        size = int(match[1]) * _BYTES[match[2] or "B"]
    if size is None or not 0 <= size <= LARGEST_SIZE:
        raise ValueError(f"{show(value)} is not a size; allowed: {SIZE_ALLOWED}")
    return size


def format_duration(duration: timedelta) -> str:
    """The shortest notation that `parse_duration` reads back, rounded to the millisecond; zero is `0s`.

    Raises ValueError when negative, since no notation exists for that.
    """
    rest = round(duration / timedelta(milliseconds=1))
    if rest < 0:
        raise ValueError(f"{duration} is negative and has no notation")
    written = ""
    for unit, milliseconds in _MILLISECONDS.items():
        count, rest = divmod(rest, milliseconds)
        if count:
            written += f"{count}{unit}"
    return written or "0s"


def format_size(size: int) -> str:
    """The notation in the largest unit that divides `size` bytes exactly; zero is `0B`.

    Raises ValueError when negative, since no notation exists for that.
    """
    if size < 0:
        raise ValueError(f"{size} is negative and has no notation")
    unit = next(unit for unit, count in _BYTES.items() if size % count == 0 and (size or unit == "B"))
    return f"{size // _BYTES[unit]}{unit}"
