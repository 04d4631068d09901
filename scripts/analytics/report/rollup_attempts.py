"""rollup_attempts — counts rows of `attempts` for the analyses while they are read

Owns: the small tables counted from attempts, and the test whether a deferral is because of our rate.
Guarantees: pure. Each attempt is counted in exactly one row of each table, except that `replies` has only failed and
    deferred attempts. A try that ended before it began (a clock jumped) is counted in `jumps` and adds no time. Columns
    missing in an older lake or database are NULL.
See: scripts/analytics/report/rollup_archive.py, its counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scripts.analytics.analyses.marks import FEWEST, NULL_SENDER, UNKNOWN
from scripts.analytics.report.counting import counted, decoded, equals, filled, mapped, together, whole
from scripts.analytics.report.rollup_texts import domain, wording

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The columns that are read.
COLUMNS: Final = (
    "ts", "retry_count", "partid", "transportid", "senderdomain", "recipientdomain", "outcome", "reply_code",
    "reply_enhanced", "reply_text", "duration", "tls", "source",
)  # fmt: skip
#: Each table's keys, and how its values are added up.
TABLES: Final[dict[str, tuple[tuple[str, ...], dict[str, str]]]] = {
    "tries": (
        ("transportid", "source", "partid", "step", "outcome"),
        {"attempts": "sum", "seconds": "sum", "jumps": "sum"},
    ),
    "destinations": (("recipientdomain", "tls", "step", "outcome"), {"attempts": "sum"}),
    "senders": (("senderdomain", "step", "outcome"), {"attempts": "sum"}),
    "hours": (("hour", "recipientdomain"), {"attempts": "sum", "delivered": "sum", "slowed": "sum"}),
    "replies": (
        ("outcome", "reply_code", "reply_enhanced", "wording", "recipientdomain"),
        {"attempts": "sum", "example": "min"},
    ),
}
#: Words of a deferral that ask for a lower rate, and those of greylisting, which does not depend on the rate.
_SLOWER: Final = r"\brate\b|rate.?limit|too (many|much|fast)|throttl|deferred due to|exceeded|unusual (rate|volume)"
_LATER: Final = r"gr[ae]y.?list"
_HOUR: Final = 3_600_000_000  # microseconds
_SHUTTING: Final = 421  # RFC 5321 section 4.2.3


def rollup(attempts: pa.Table) -> dict[str, pa.Table]:
    """The tables of these attempts."""
    at, outcome, step = mapped(attempts["recipientdomain"], domain), attempts["outcome"], attempts["retry_count"]
    duration = pc.fill_null(whole(attempts["duration"]), 0.0).to_numpy(zero_copy_only=False)
    seconds, jumps = np.maximum(duration, 0.0), (duration < 0).astype(np.int64)
    origin = {name: filled(attempts[name], UNKNOWN) for name in ("source", "partid")}
    sender = filled(mapped(attempts["senderdomain"], domain), NULL_SENDER)
    instants = whole(attempts["ts"]).cast(pa.int64()).to_numpy(zero_copy_only=False)
    hour = pa.array(instants // _HOUR * _HOUR, pa.int64()).cast(pa.timestamp("us", "UTC"))
    flags = {"delivered": equals(outcome, "delivered").astype(np.int64), "slowed": _slowed(attempts).astype(np.int64)}
    tried = {"transportid": attempts["transportid"], **origin, "step": step, "outcome": outcome}
    rows = "attempts"
    return {
        "tries": counted(tried, {"seconds": (seconds, "sum"), "jumps": (jumps, "sum")}, rows),
        "destinations": counted(
            {"recipientdomain": at, "tls": attempts["tls"], "step": step, "outcome": outcome}, {}, rows
        ),
        "senders": counted({"senderdomain": sender, "step": step, "outcome": outcome}, {}, rows),
        "hours": counted(
            {"hour": hour, "recipientdomain": at}, {name: (flag, "sum") for name, flag in flags.items()}, rows
        ),
        "replies": _replies(attempts),
    }


def merged(parts: Sequence[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    """The tables of all parts."""
    return {name: together([part[name] for part in parts], *TABLES[name]) for name in TABLES}


def hourly(hours: pa.Table) -> pa.Table:
    """Attempts by hour, to all destinations."""
    return counted({"hour": hours["hour"]}, {"attempts": (hours["attempts"], "sum")})


def paces(hours: pa.Table) -> pa.Table:
    """All hours of the destinations that deferred mail because of our rate at least FEWEST times in some hour."""
    slow = pc.unique(hours.filter(pc.greater_equal(hours["slowed"], FEWEST))["recipientdomain"])
    return hours.filter(pc.is_in(hours["recipientdomain"], value_set=slow))


def _slowed(attempts: pa.Table) -> Any:
    """True for attempts deferred with 421, 4.7.x or words about a rate, and not greylisted."""
    slowed = equals(attempts["outcome"], "deferred")
    places = pa.array(np.flatnonzero(slowed))
    some = attempts.select(["reply_code", "reply_enhanced", "reply_text"]).take(places)
    text = pc.fill_null(decoded(whole(some["reply_text"])), "")
    enhanced = pc.fill_null(decoded(whole(some["reply_enhanced"])), "")
    coded = pc.or_(
        pc.fill_null(pc.equal(some["reply_code"], _SHUTTING), fill_value=False), pc.starts_with(enhanced, "4.7.")
    )
    said = pc.match_substring_regex(text, _SLOWER, ignore_case=True)
    later = pc.match_substring_regex(text, _LATER, ignore_case=True)
    slowed[places.to_numpy()] = whole(pc.and_not(pc.or_(coded, said), later)).to_numpy(zero_copy_only=False)
    return slowed


def _replies(attempts: pa.Table) -> pa.Table:
    """Failed and deferred attempts, by the reply without the parts that differ between messages."""
    outcome = attempts["outcome"]
    troubled = pa.array(np.flatnonzero(equals(outcome, "failed") | equals(outcome, "deferred")))
    some = attempts.select(["outcome", "reply_code", "reply_enhanced", "recipientdomain", "reply_text"]).take(troubled)
    text, said = wording(decoded(whole(some["reply_text"])))
    keys = {name: some[name] for name in ("outcome", "reply_code", "reply_enhanced")}
    keys |= {"wording": said, "recipientdomain": mapped(some["recipientdomain"], str.lower)}
    return counted(keys, {"example": (text, "min")}, "attempts")
