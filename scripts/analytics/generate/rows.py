"""rows — synthetic history: the recipients received in one stretch of a day, and every try at them

Owns: the mix of destinations (Zipf), providers and their wording, the load over a day and a week, retries, transports,
    source addresses and TLS.
Guarantees: a function of its arguments: the same seed, day and number give the same rows. NumPy and Arrow generate
    whole columns, never row by row. Every name is in a domain reserved for examples.
Bugs: a recipient's tries continue after midnight but stop at `until`, so the last ones are unfinished, as in reality.
See: RFC 3463 (enhanced codes).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scripts.analytics.generate.replies import PROVIDERS, replies
from scripts.analytics.generate.text import hexadecimal, numbered, uuids

if TYPE_CHECKING:
    from numpy.typing import NDArray

type Numbers = NDArray[Any]

_DOMAINS: Final = 5000
_DELAYS: Final = np.array([0, 300, 900, 1800, 3600, 7200, 14_400, 28_800], dtype=np.float64)  # seconds before each try
#: Chances of delivered, deferred, failed and lease_expired at the first try, and at later ones.
_FIRST: Final = np.array([0.925, 0.05, 0.0245, 0.0005])
_LATER: Final = np.array([0.71, 0.25, 0.0395, 0.0005])
#: Load by hour, and by weekday from Monday.
_HOURS: Final = 1 + 0.85 * np.sin((np.arange(24) - 7) * np.pi / 12)
_WEEK: Final = np.array([1.1, 1.2, 1.15, 1.1, 1.0, 0.4, 0.35])
OUTCOMES: Final = ("delivered", "deferred", "failed", "lease_expired")
_SCOPES: Final = np.array([0, 2, 0, 3])  # by outcome, in the list below
_SCOPE_NAMES: Final = ("recipient", "message", "destination", "us")
_TLS: Final = ("TLSv1.3", "TLSv1.2", None)
#: Average tries for each recipient, from which the number of recipients is estimated.
TRIES: Final = 1.249


@dataclass(frozen=True, slots=True)
class First:
    """The first free numbers of a stretch."""

    attempt: int
    recipient: int
    token: int


def share(day: date) -> float:
    """The load of this weekday relative to an average day."""
    return float(_WEEK[day.weekday()])


def make(seed: int, day: date, stretch: int, count: int, first: First, until: date) -> tuple[pa.Table, pa.Table]:
    """The attempts and the archive of `count` recipients received on `day`; nothing happens at or after `until`."""
    rng = np.random.default_rng((seed, day.toordinal(), stretch))
    midnight, end = (int(datetime(d.year, d.month, d.day, tzinfo=UTC).timestamp()) for d in (day, until))
    hours = rng.choice(24, count, p=_HOURS / _HOURS.sum())
    received = np.sort(midnight + hours * 3600 + rng.random(count) * 3600)
    domains = np.minimum(rng.zipf(1.3, count), 10**6) % _DOMAINS
    people = _People(rng, received, domains)
    steps = [_step(rng, people, number) for number in range(len(_DELAYS))]
    row = np.concatenate([step[0] for step in steps])
    number = np.concatenate([np.full(len(step[0]), index + 1, np.int32) for index, step in enumerate(steps)])
    outcome, ts, duration = (np.concatenate([step[column] for step in steps]) for column in (1, 2, 3))
    order = np.argsort(ts, kind="stable")
    order = order[ts[order] < end]
    row, number, outcome, ts, duration = (column[order] for column in (row, number, outcome, ts, duration))
    ids = pa.chunked_array([uuids(rng, received)])
    attempts = _attempts(rng, people, ids, first, row, number, outcome, ts, duration)
    done = np.flatnonzero((outcome == 0) | (outcome == 2) | (number == len(_DELAYS)))  # noqa: PLR2004 - failed
    return attempts, _archive(people, ids, first, row[done], number[done], outcome[done], ts[done], attempts, done)


class _People:
    """Recipients of a stretch: the values that are the same for every try."""

    def __init__(self, rng: np.random.Generator, received: Numbers, domains: Numbers) -> None:
        self.received = received
        self.domains = domains
        self.provider = domains % len(PROVIDERS)
        self.sender = np.minimum(rng.zipf(1.6, len(received)), 400) % 300
        self.size = np.clip(rng.lognormal(9.3, 1.1, len(received)), 400, 30_000_000).astype(np.int32)
        # The second provider throttles high rates: its deferrals follow the load of the day.
        busy = ((received // 3600) % 24 >= 9) & ((received // 3600) % 24 < 16)  # noqa: PLR2004 - hours of the day
        self.defer = np.where((self.provider == 1) & busy, 3.0, 1.0) * (1 + (domains % 7) / 6)
        self.due = received.copy()
        self.waiting = np.arange(len(received))


def _step(rng: np.random.Generator, people: _People, number: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """One try at every waiting recipient: recipient, outcome, end, duration."""
    who = people.waiting
    chances = _FIRST if number == 0 else _LATER
    deferred = np.minimum(chances[1] * people.defer[who], 0.9)
    drawn = rng.random(len(who))
    outcome = np.select([drawn < deferred, drawn < deferred + chances[2], drawn > 1 - chances[3]], [1, 2, 3], 0)
    duration = rng.lognormal(-1.2, 0.9, len(who)) * (1 + 4 * (outcome == 1))
    begun = people.due[who] + _DELAYS[number] * rng.uniform(0.9, 1.2, len(who)) + rng.exponential(0.4, len(who))
    people.due[who] = begun + duration
    people.waiting = who[(outcome == 1) | (outcome == 3)]  # noqa: PLR2004 - lease_expired
    return who, outcome.astype(np.int8), begun + duration, duration


def _attempts(
    rng: np.random.Generator,
    people: _People,
    ids: pa.ChunkedArray,
    first: First,
    row: Numbers,
    number: Numbers,
    outcome: Numbers,
    ts: Numbers,
    duration: Numbers,
) -> pa.Table:
    count = len(row)
    domain, provider = people.domains[row], people.provider[row]
    code, enhanced, text = replies(rng, outcome, provider, hexadecimal(rng, count))
    lost = pa.array(outcome == 3)  # noqa: PLR2004 - lease_expired: the peer and its reply are unknown
    hosts = numbered("192.0.2.", domain % 254 + 1, ":25")
    nothing = pa.scalar(None, pa.string())
    tls = np.where(rng.random(count) < 0.04 + 0.1 * (provider == 5), 2, rng.random(count) < 0.2)  # noqa: PLR2004
    columns = {
        "id": pa.array(np.arange(first.attempt, first.attempt + count)),
        "ts": _instants(ts),
        "queue__id": pa.array(first.recipient + row),
        "messages__id": ids.take(pa.array(row)),
        "retry_count": pa.array(number),
        "token": pa.array(np.arange(first.token, first.token + count)),
        "worker": _named(("queued-123", "queued-456"), domain % 2),
        "partid": _named(tuple("123456"), domain % 6),
        "transportid": _transport(people, row),
        "jobid": pa.nulls(count, pa.string()),
        "senderdomain": numbered("sender", people.sender[row], ".example"),
        "recipientdomain": _domain(domain),
        "size": pa.array(people.size[row]),
        "remote": pc.if_else(lost, nothing, hosts),
        "outcome": _named(OUTCOMES, outcome),
        "scope": _named(_SCOPE_NAMES, _SCOPES[outcome]),
        "uncertain": lost,
        "reply_code": pc.if_else(lost, pa.scalar(None, pa.int32()), code),
        "reply_enhanced": pc.if_else(lost, nothing, enhanced),
        "reply_text": pc.if_else(lost, nothing, text),
        "duration": pa.array(np.round(duration, 6)),
        "tls": _named(_TLS, tls),
        "source": numbered("198.51.100.", domain % 4 + 1, ""),
    }
    return pa.table(columns)


def _archive(
    people: _People,
    ids: pa.ChunkedArray,
    first: First,
    row: Numbers,
    number: Numbers,
    outcome: Numbers,
    ts: Numbers,
    attempts: pa.Table,
    done: Numbers,
) -> pa.Table:
    count = len(row)
    domain = people.domains[row]
    result = np.select([outcome == 0, outcome == 2], [0, 1], 2)  # noqa: PLR2004 - failed
    columns = {
        "id": pa.array(first.recipient + row),
        "messages__id": ids.take(pa.array(row)),
        "actionid": pa.array(np.ones(count, np.int32)),
        "finished": _instants(ts),
        "result": _named(("success", "failed", "expired"), result),
        "ts": _instants(people.received[row]),
        "senderip": numbered("203.0.113.", people.sender[row] % 254 + 1, ""),
        "serverid": _named(("smtpd",), np.zeros(count, np.int8)),
        "saslusername": numbered("user", people.sender[row], ""),
        "senderlocalpart": _named(("news", "billing", "no-reply"), people.sender[row] % 3),
        "senderdomain": numbered("sender", people.sender[row], ".example"),
        "recipientlocalpart": numbered("r", row * 7919 % 1_000_003, ""),
        "recipientdomain": _domain(domain),
        "size": pa.array(people.size[row]),
        # One in eighty was held and then released by a reviewer.
        "metadata": _named(
            (*(f'{{"_partid": "{n}"}}' for n in range(1, 7)), '{"_partid": "1", "_quarantineid": "review"}'),
            np.where(row % 80 == 7, 6, domain % 6),  # noqa: PLR2004 - any one of eighty
        ),
        "transportid": _transport(people, row),
        "jobid": pa.nulls(count, pa.string()),
        "priority": pa.array(np.where(people.sender[row] % 9 == 0, -1, 0).astype(np.int16)),
        "retry_count": pa.array(number),
        "last_error": pc.if_else(
            pa.array(outcome == 0), pa.scalar(None, pa.string()), attempts["reply_text"].take(done)
        ),
        "worker": _named(("queued-123", "queued-456"), domain % 2),
        "msgid": numbered("", first.recipient + row, ".generated@sender.example"),
        "subject": numbered("Order ", row * 7919 % 1_000_003, " is on its way"),
    }
    return pa.table(columns)


def _instants(seconds: Numbers) -> pa.Array:
    return pa.array((seconds * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))


def _named(names: tuple[str | None, ...], which: Numbers) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(which.astype(np.int32)))


def _domain(which: Numbers) -> pa.Array:
    return numbered("d", which, ".example")


def _transport(people: _People, row: Numbers) -> pa.Array:
    return _named(("default", "bulk"), people.sender[row] % 9 == 0)
