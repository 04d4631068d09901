"""answer — what an endpoint's answer means, and when it is asked again

Owns: the kinds of answers, and the schedule of tries.
Guarantees: pure.
See: the Standard Webhooks specification, "Deliverability and reliability"; RFC 9110 section 10.2.3 (Retry-After).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from random import Random

#: How long after each failure in a row the next try comes, the specification's own; the last one stays.
TRIES: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 300, 1800, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
)
#: An endpoint that has failed for as long is paused.
PATIENCE: Final = sum(TRIES, timedelta(0))
_JITTER: Final = 0.1
_LONGEST: Final = timedelta(days=1)  # that an endpoint may ask us to wait
_GONE: Final = 410


class Answer(NamedTuple):
    """What became of a request. error: why it was not taken; gone: the endpoint wants no more, for ever."""

    error: str | None = None
    wait: timedelta | None = None
    gone: bool = False


TAKEN: Final = Answer()


def read(status: int, retry_after: str, now: datetime) -> Answer:
    """What an answer with this status and this Retry-After field means."""
    if 200 <= status < 300:  # noqa: PLR2004 - as RFC 9110 has it
        return TAKEN
    return Answer(f"answered {status}", _asked(retry_after, now), status == _GONE)


def next_try(tries: int, answer: Answer, random: Random) -> timedelta:
    """How long to wait after this many failures in a row: what the endpoint asks for, or else the schedule."""
    if answer.wait is not None:
        return answer.wait
    return TRIES[min(tries, len(TRIES)) - 1] * (1 + random.random() * _JITTER)


def _asked(text: str, now: datetime) -> timedelta | None:
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=int(text[:9])), _LONGEST)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # a year of twenty digits
        return None
    return min(max((at if at.tzinfo else at.replace(tzinfo=UTC)) - now, timedelta(0)), _LONGEST)
