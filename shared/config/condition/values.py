"""values — reads the values of a condition, each by the kind of its field

Owns: ranges, patterns, instants, and how each value is written.
Guarantees: pure; `str` of a value is read back as the same value. Instants stay relative to `now` until a condition is
    compiled, so that one that is kept means the same tomorrow.
Raises: ValueError, which quotes the value.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from shared.config.condition.fields import STATES
from shared.config.units import format_duration, format_size, parse_size, parse_typed_duration
from shared.mail import found_by
from shared.mail.domain import DomainRefused, to_ascii
from shared.masking import show

if TYPE_CHECKING:
    from shared.config.condition.fields import Field

_RANGE: Final = re.compile(r"(?P<low>.*?)\.\.(?P<high>.*)", re.DOTALL)
_RELATIVE: Final = re.compile(r"now(?:(?P<sign>[+-])(?P<span>\w+))?", re.IGNORECASE)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_PLAIN: Final = re.compile(r"(?![=~])[^\s,()\"'*\\.]+(?:\.[^\s,()\"'*\\.]+)*")
_ORDERED: Final = frozenset({"number", "size", "time", "age", "wait"})
_UNITS: Final = frozenset({"age", "wait"})
_FIRST, _LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Instant:
    """A time: `at` itself, or `offset` from whatever now is when the condition is used."""

    at: datetime | None = None
    offset: timedelta = timedelta(0)

    def when(self, now: datetime) -> datetime:
        """The time, given now; never beyond what a date can be."""
        if self.at is not None:
            return self.at
        try:
            return now + self.offset
        except OverflowError:
            return _FIRST if self.offset < timedelta(0) else _LAST

    def __str__(self) -> str:
        if self.at is not None:
            return self.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        if not self.offset:
            return "now"
        return f"now{'-' if self.offset < timedelta(0) else '+'}{format_duration(abs(self.offset))}"


type Scalar = str | int | timedelta | Instant | UUID


@dataclass(frozen=True, slots=True)
class Value:
    """One value as read.

    how: exact (`low` is it), pattern (`low` with * for any characters), contains (`low` occurs, in whatever case),
    range (from `low` to `high`, both included, None is open), unset (the column has none).
    size: whether numbers are octets, which only matters for how they are written.
    """

    how: str
    low: Scalar | None = None
    high: Scalar | None = None
    size: bool = False

    @property
    def is_single(self) -> bool:
        """Whether it can stand after < and >."""
        return self.how == "exact"

    def __str__(self) -> str:
        if self.how == "range":
            return f"{self._written(self.low)}..{self._written(self.high)}"
        return self._written(self.low)

    def _written(self, scalar: Scalar | None) -> str:
        if scalar is None:
            return ""
        if isinstance(scalar, timedelta):
            return format_duration(scalar)
        if self.size and isinstance(scalar, int):
            return format_size(scalar)
        return str(scalar) if self.how == "pattern" or not isinstance(scalar, str) else written(scalar)


UNSET: Final = Value("unset")


def written(text: str) -> str:
    """A text as a value of a condition, in quotes where it needs them."""
    return text if _PLAIN.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """The same, always in quotes: in them every character is itself."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def read_value(field: Field, operator: str, text: str, *, exact: bool) -> Value:
    """The value after `operator`, which is =, ~, <, <=, > or >=. `exact`: it stood in quotes, so that * is itself."""
    if operator == "~":
        return _contained(field, text)
    if operator != "=" and field.kind not in _ORDERED:
        raise ValueError(f"{operator} compares numbers, sizes, times and durations")
    if text == "":
        if operator != "=":
            raise ValueError("a value is missing")
        if field.kind in {"state", "uuid"}:
            raise ValueError("it is always set")
        return UNSET
    if field.kind == "state":
        return Value("exact", _state(text))
    if field.kind == "uuid":
        return Value("exact", _uuid(text))
    if field.kind in _ORDERED:
        return _ordered(field, operator, text)
    wanted = _domain(text) if field.kind == "domain" else _msgid(text) if field.kind == "msgid" else text
    if field.kind == "address" and wanted != "<>" and "@" not in wanted and "*" not in wanted:
        raise ValueError(f"{show(text)} is not an address")
    return Value("pattern" if "*" in wanted and not exact else "exact", wanted)


def _domain(text: str) -> str:
    """A domain or a pattern of domains, as the queue has them."""
    try:
        return to_ascii(text)
    except DomainRefused as error:
        if "*" in text:
            return text.lower()
        raise ValueError(f"{show(text)}: {error}") from None


def _msgid(text: str) -> str:
    """A Message-ID or a pattern of Message-IDs, as they are kept."""
    wanted = found_by.asked(text)
    if wanted is None:
        raise ValueError(f"{show(text)} is not a Message-ID")
    return wanted


def _contained(field: Field, text: str) -> Value:
    if field.kind not in {"text", "domain", "address", "msgid"}:
        raise ValueError("~ needs a text field, in which it searches for text")
    if not text:
        raise ValueError("a value is missing")
    return Value("contains", text)


def _ordered(field: Field, operator: str, text: str) -> Value:
    found = _RANGE.fullmatch(text)
    size = field.kind == "size"
    if found is None:
        only = _scalar(field, text)
        if field.kind == "time" and operator == "=" and _DAY.fullmatch(text) and isinstance(only, Instant) and only.at:
            return Value("range", only, Instant(only.at + timedelta(days=1, microseconds=-1)))
        return Value("exact", only, size=size)
    if operator != "=":
        raise ValueError(f"{show(text)} is a range, and {operator} takes one value")
    low = _scalar(field, found["low"]) if found["low"] else None
    high = _scalar(field, found["high"]) if found["high"] else None
    if low is None and high is None:
        raise ValueError("a range has at least one end")
    if _is_empty(low, high):
        raise ValueError(f"{show(text)} is empty: its end comes before its beginning")
    return Value("range", low, high, size=size)


def _is_empty(low: Scalar | None, high: Scalar | None) -> bool:
    match low, high:
        case Instant(at=None, offset=first), Instant(at=None, offset=last):
            return first > last
        case Instant(at=datetime() as begin), Instant(at=datetime() as end):
            return begin > end
        case (int() as least, int() as most):
            return least > most
        case (timedelta() as short, timedelta() as long):
            return short > long
    return False


def _scalar(field: Field, text: str) -> Scalar:
    if field.kind in _UNITS:
        return parse_typed_duration(text)
    if field.kind == "size":
        return parse_size(text)
    if field.kind == "time":
        return _instant(text)
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{show(text)} is not a valid number")
    number = int(text)
    if not field.least <= number <= field.most:
        raise ValueError(f"{text} is not between {field.least} and {field.most}")
    return number


def _instant(text: str) -> Instant:
    found = _RELATIVE.fullmatch(text)
    if found is not None:
        span = parse_typed_duration(found["span"]) if found["span"] else timedelta(0)
        return Instant(offset=-span if found["sign"] == "-" else span)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{show(text)} is not a time") from None
    try:
        return Instant((at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC))
    except OverflowError:
        raise ValueError(f"{show(text)} is not a time") from None


def _state(text: str) -> str:
    if text.upper() in STATES:
        return text.upper()
    near = difflib.get_close_matches(text.upper(), STATES, 1)
    raise ValueError(f"state {show(text)} does not exist" + (f", did you mean {near[0]}" if near else ""))


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError(f"{show(text)} is not a message id") from None
