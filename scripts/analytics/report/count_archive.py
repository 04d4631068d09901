"""count_archive — counts finished recipients by what the analyses need, with Spark

Owns: the groups that the archive is counted in, the small tables that are made of these groups, and the refusals that
    count against an address.
Guarantees: pure, DataFrame in and DataFrames out. Each finished recipient is counted in exactly one row of `waits`, and
    in one of `delivered` if it was delivered to one of the largest destinations. Mail that finished before its receipt
    (a clock jumped) is counted in `jumps` and has no time. An address is in `refusals` only until it accepts mail
    again.
See: RFC 3463 section 3.2, address status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from scripts.analytics.analyses.marks import ENOUGH, LONGEST_LOCAL
from scripts.analytics.report.texts import domain, unusable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The columns that are read.
COLUMNS: Final = (
    "finished", "result", "ts", "recipientlocalpart", "recipientdomain", "metadata", "transportid", "last_error",
)  # fmt: skip
_ADDRESS: Final = ("recipientlocalpart", "recipientdomain")
_NO_SUCH: Final = (
    r"(?i)(?:^|[^\d.])5\.1\.(?:10|[1236])(?:[^\d.]|$)"
    r"|(?:no such|unknown|invalid|nonexistent) (?:user|recipient|mailbox|address)"
    r"|(?:user|recipient|mailbox|address|account) (?:is )?(?:unknown|not found|disabled|does(?: not|n't) exist)"
)
_POLICY: Final = r"(?:^|[^\d.])5\.7\.\d"
#: Times are rounded to these, in microseconds: each is for times shorter than a hundred of it.
_UNITS: Final = tuple(10**exponent for exponent in range(3, 16))
_SHORTEST: Final = 10_000  # microseconds
_HELD: Final = r'"_quarantineid"|"_holdreason"'


def grouped(archive: DataFrame) -> dict[str, DataFrame]:
    """The groups of these recipients, by name; each reads the rows once."""
    return {"finished": _finished(archive), "refused": _refused(archive)}


def tables(groups: dict[str, DataFrame], archive: DataFrame, top: int) -> dict[str, DataFrame]:
    """The tables of these groups, by name; times by destination only for the `top` ones with the most deliveries."""
    finished, held = groups["finished"], archive.where(f.col("metadata").rlike(_HELD))
    return {
        "waits": finished.groupBy("transportid", "result", _seconds()).agg(
            f.sum("recipients").alias("recipients"), f.sum("jumps").alias("jumps")
        ),
        "delivered": _delivered(finished, top),
        "held": held.groupBy("metadata", "result").agg(f.count("*").alias("recipients")),
        "refusals": _refusals(groups["refused"], archive),
    }


def _refusals(refused: DataFrame, archive: DataFrame) -> DataFrame:
    """Those of the refused addresses that accepted no mail after the last refusal."""
    taken = (
        archive.where(f.col("result") == "success")
        .join(f.broadcast(refused.select(*_ADDRESS)), list(_ADDRESS), "left_semi")
        .groupBy(*_ADDRESS)
        .agg(f.max("finished").alias("last_taken"))
    )
    both = refused.join(f.broadcast(taken), list(_ADDRESS), "left")
    later = f.coalesce(f.col("last_taken") >= f.col("last_refused"), f.lit(False))
    return both.where(~later).drop("last_taken")


def _finished(archive: DataFrame) -> DataFrame:
    """Recipients by transport, result, destination, and the time from receipt to result, to two digits."""
    took = f.unix_micros("finished") - f.unix_micros("ts")
    return archive.groupBy("transportid", "result", "recipientdomain", _two_digits(took).alias("micros")).agg(
        f.count("*").alias("recipients"), f.count_if(took < 0).alias("jumps")
    )


def _two_digits(took: Column) -> Column:
    """Microseconds, rounded to two digits, at least 10 ms; NULL where the clock jumped."""
    least = f.greatest(took, f.lit(_SHORTEST))

    def rounded(unit: int) -> Column:
        half_up = least + unit // 2
        return half_up - half_up % unit

    *units, largest = _UNITS
    found = rounded(largest)
    for unit in reversed(units):
        found = f.when(took < 100 * unit, rounded(unit)).otherwise(found)
    return f.when(took >= 0, found)


def _seconds() -> Column:
    """The time, such as 0.12, 3.4 or 170; NULL where the clock jumped."""
    return (f.col("micros") / 1_000_000).alias("seconds")


def _delivered(finished: DataFrame, top: int) -> DataFrame:
    done = finished.where((f.col("result") == "success") & f.col("micros").isNotNull())
    timed = done.groupBy(domain("recipientdomain").alias("recipientdomain"), _seconds()).agg(
        f.sum("recipients").alias("recipients")
    )
    all_ = timed.groupBy("recipientdomain").agg(f.sum("recipients").alias("all"))
    # rank() gives equals the same place, so ties with the last one are included.
    largest = all_.withColumn("place", f.rank().over(Window.orderBy(f.desc("all")))).where(f.col("place") <= top)
    return timed.join(f.broadcast(largest), "recipientdomain", "left_semi")


def _refused(archive: DataFrame) -> DataFrame:
    """Refusals, except for policy or reputation, by address, of those addresses that a report can name."""
    reply = f.coalesce("last_error", f.lit(""))
    failed = archive.where((f.col("result") == "failed") & ~reply.rlike(_POLICY))
    found = failed.groupBy(*_ADDRESS).agg(
        f.count("*").alias("refusals"),
        f.count_if(reply.rlike(_NO_SUCH)).alias("no_such"),
        f.max("finished").alias("last_refused"),
        f.max_by(reply, f.struct("finished", reply)).alias("last_reply"),
    )
    long = f.octet_length("recipientlocalpart") > LONGEST_LOCAL
    marked = found.withColumn("absurd", long | unusable("recipientdomain"))
    return marked.where((f.col("no_such") > 0) | (f.col("refusals") >= ENOUGH) | f.col("absurd"))
