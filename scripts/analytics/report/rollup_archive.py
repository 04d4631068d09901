"""rollup_archive — counts rows of `archive` for the analyses while they are read

Owns: the small tables counted from finished recipients, and the refusals that count against an address.
Guarantees: pure. Each finished recipient is counted in exactly one row of `waits`, and in one of `delivered` if it was
    delivered. Mail that finished before its receipt (a clock jumped) is counted in `jumps` and has no time. An address
    is in `refusals` only until it accepts mail again.
See: RFC 3463 section 3.2, address status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scripts.analytics.analyses.marks import ENOUGH, LONGEST_LOCAL, UNUSABLE
from scripts.analytics.report.counting import counted, decoded, equals, mapped, stacked, together, whole
from scripts.analytics.report.rollup_texts import domain

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The columns that are read.
COLUMNS: Final = (
    "finished", "result", "ts", "recipientlocalpart", "recipientdomain", "metadata", "transportid", "last_error",
)  # fmt: skip
#: The columns that show whether an address accepted mail.
TAKEN_COLUMNS: Final = ("finished", "result", "recipientlocalpart", "recipientdomain")
_ADDRESS: Final = ("recipientlocalpart", "recipientdomain")
#: Each table's keys, and how its values are added up.
TABLES: Final[dict[str, tuple[tuple[str, ...], dict[str, str]]]] = {
    "waits": (("transportid", "result", "seconds"), {"recipients": "sum", "jumps": "sum"}),
    "delivered": (("recipientdomain", "seconds"), {"recipients": "sum"}),
    "held": (("metadata", "result"), {"recipients": "sum"}),
    "refusals": (_ADDRESS, {"refusals": "sum", "no_such": "sum", "last_refused": "max", "last_reply": "last"}),
}
_NO_SUCH: Final = (
    r"(?:^|[^\d.])5\.1\.(?:10|[1236])(?:[^\d.]|$)"
    r"|(?:no such|unknown|invalid|nonexistent) (?:user|recipient|mailbox|address)"
    r"|(?:user|recipient|mailbox|address|account) (?:is )?(?:unknown|not found|disabled|does(?: not|n't) exist)"
)
_POLICY: Final = r"(?:^|[^\d.])5\.7\.\d"
_HELD: Final = r'"_quarantineid"|"_holdreason"'


def rollup(archive: pa.Table) -> dict[str, pa.Table]:
    """The tables of these finished recipients."""
    begun, ended = (whole(archive[name]).cast(pa.int64()).to_numpy(zero_copy_only=False) for name in ("ts", "finished"))
    took = ended - begun
    jumps = (took < 0).astype(np.int64)
    seconds = pa.array(two_digits(np.maximum(took / 1e6, 0.01)), mask=took < 0)
    good = pa.array(np.flatnonzero(equals(archive["result"], "success") & (took >= 0)))
    at = mapped(archive["recipientdomain"], domain)
    rows = "recipients"
    return {
        "waits": counted(
            {"transportid": archive["transportid"], "result": archive["result"], "seconds": seconds},
            {"jumps": (jumps, "sum")},
            rows,
        ),
        "delivered": counted({"recipientdomain": at.take(good), "seconds": seconds.take(good)}, {}, rows),
        "held": _held(archive),
        "refusals": _refusals(archive),
    }


def merged(parts: Sequence[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    """The tables of all parts."""
    tables = {name: [part[name] for part in parts] for name in TABLES}
    # The last reply is that of the latest refusal, so the rows must be in that order.
    tables["refusals"] = [stacked(tables["refusals"], *TABLES["refusals"]).sort_by("last_refused")]
    return {name: together(found, *TABLES[name]) for name, found in tables.items()}


def candidates(refusals: pa.Table) -> pa.Table:
    """The addresses to report: no such address, refused often enough, or `absurd`."""
    long = pc.greater(pc.binary_length(refusals["recipientlocalpart"]), LONGEST_LOCAL)
    odd = equals(mapped(refusals["recipientdomain"], domain), UNUSABLE)
    spoken = pc.or_(pc.greater(refusals["no_such"], 0), pc.greater_equal(refusals["refusals"], ENOUGH))
    absurd = pc.or_(long, pa.array(odd))
    return refusals.append_column("absurd", absurd).filter(pc.or_(spoken, absurd))


def taken(archive: pa.Table, refusals: pa.Table) -> pa.Table:
    """When the addresses of `refusals` last accepted mail: recipientlocalpart, recipientdomain, last_taken."""
    which = pc.is_in(whole(archive["recipientlocalpart"]), value_set=whole(refusals["recipientlocalpart"]))
    which = pc.and_(which, pa.array(equals(archive["result"], "success")))
    some = archive.filter(which)
    known = refusals.select(_ADDRESS)
    some = pa.table({name: decoded(whole(some[name])) for name in (*_ADDRESS, "finished")})
    some = some.join(known, _ADDRESS, join_type="left semi", use_threads=False)
    keys = {name: some[name] for name in _ADDRESS}
    return counted(keys, {"last_taken": (some["finished"], "max")})


def refused_since(refusals: pa.Table, took: Sequence[pa.Table]) -> pa.Table:
    """The refusals of addresses that accepted no mail after the last refusal."""
    last = together(took, _ADDRESS, {"last_taken": "max"})
    both = refusals.join(last, _ADDRESS, join_type="left outer", use_threads=False)
    later = pc.fill_null(pc.greater_equal(both["last_taken"], both["last_refused"]), fill_value=False)
    return both.filter(pc.invert(later)).drop_columns("last_taken")


def most(delivered: pa.Table, top: int) -> pa.Table:
    """The rows of the `top` destinations with the most deliveries, ties with the last one included."""
    keys = {"recipientdomain": delivered["recipientdomain"]}
    each = counted(keys, {"recipients": (delivered["recipients"], "sum")}).sort_by([("recipients", "descending")])
    if each.num_rows <= top:
        return delivered
    kept = each.filter(pc.greater_equal(each["recipients"], each["recipients"][top - 1]))
    return delivered.filter(pc.is_in(delivered["recipientdomain"], value_set=kept["recipientdomain"]))


def two_digits(seconds: Any) -> Any:
    """Positive numbers to two significant digits: 0.12, 3.4, 170."""
    power = 10.0 ** np.floor(np.log10(seconds))
    return np.round(np.floor(seconds / power * 10 + 0.5) / 10 * power, 3)


def _held(archive: pa.Table) -> pa.Table:
    """Mail that a policy held at some time, by its marks and its result."""
    metadata = whole(archive["metadata"])
    marked = pc.fill_null(pc.match_substring_regex(decoded(metadata), _HELD), fill_value=False)
    some = archive.select(["metadata", "result"]).filter(marked)
    return counted({"metadata": some["metadata"], "result": some["result"]}, {}, "recipients")


def _refusals(archive: pa.Table) -> pa.Table:
    """Refusals, except for policy or reputation, by address."""
    failed = pa.array(np.flatnonzero(equals(archive["result"], "failed")))
    some = archive.select([*_ADDRESS, "finished", "last_error"]).take(failed)
    reply = pc.fill_null(decoded(whole(some["last_error"])), "")
    spoken = pc.invert(pc.match_substring_regex(reply, _POLICY))
    some = some.set_column(3, "last_error", reply).filter(spoken).sort_by("finished")
    no_such = pc.match_substring_regex(whole(some["last_error"]), _NO_SUCH, ignore_case=True).cast(pa.int64())
    keys = {name: some[name] for name in _ADDRESS}
    values = {
        "no_such": (no_such, "sum"),
        "last_refused": (some["finished"], "max"),
        "last_reply": (some["last_error"], "last"),
    }
    return counted(keys, values, "refusals")
