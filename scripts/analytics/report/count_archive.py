"""count_archive — counts finished recipients by what the analyses need, with Spark

Owns: the small tables counted from the archive, and the refusals that count against an address.
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
_HELD: Final = r'"_quarantineid"|"_holdreason"'


def tables(archive: DataFrame, top: int) -> dict[str, DataFrame]:
    """The tables of these recipients; times by destination only for the `top` ones with the most deliveries."""
    return {
        "waits": _waits(archive),
        "delivered": _delivered(archive, top),
        "held": archive.where(f.col("metadata").rlike(_HELD))
        .groupBy("metadata", "result")
        .agg(f.count("*").alias("recipients")),
        "refusals": _refusals(archive),
    }


def two_digits(seconds: Column) -> Column:
    """Positive numbers to two significant digits: 0.12, 3.4, 170."""
    power = f.pow(f.lit(10.0), f.floor(f.log10(seconds)))
    return f.round(f.floor(seconds / power * 10 + 0.5) / 10 * power, 3)


def _took() -> Column:
    """Microseconds from receipt to result."""
    return f.unix_micros("finished") - f.unix_micros("ts")


def _seconds() -> Column:
    """The time to two digits; NULL where the clock jumped."""
    return f.when(_took() >= 0, two_digits(f.greatest(_took() / 1e6, f.lit(0.01))))


def _waits(archive: DataFrame) -> DataFrame:
    return archive.groupBy("transportid", "result", _seconds().alias("seconds")).agg(
        f.count("*").alias("recipients"), f.count_if(_took() < 0).alias("jumps")
    )


def _delivered(archive: DataFrame, top: int) -> DataFrame:
    done = archive.where((f.col("result") == "success") & (_took() >= 0))
    normal = domain("recipientdomain")
    each = (
        done.groupBy("recipientdomain")
        .agg(f.count("*").alias("recipients"))
        .groupBy(normal.alias("name"))
        .agg(f.sum("recipients").alias("all"), f.collect_list("recipientdomain").alias("spellings"))
    )
    # rank() gives equals the same place, so ties with the last one are included.
    place = f.rank().over(Window.orderBy(f.desc("all")))
    largest = each.withColumn("place", place).where(f.col("place") <= top)
    spellings = largest.select(f.explode("spellings").alias("recipientdomain"))
    # Times only of these: all domains by time would be as many rows as there are domains times a hundred.
    raw = (
        done.join(f.broadcast(spellings), "recipientdomain", "left_semi")
        .groupBy("recipientdomain", _seconds().alias("seconds"))
        .agg(f.count("*").alias("recipients"))
    )
    return raw.groupBy(normal.alias("recipientdomain"), "seconds").agg(f.sum("recipients").alias("recipients"))


def _refusals(archive: DataFrame) -> DataFrame:
    """Refusals, except for policy or reputation, by address, of those that accepted no mail after the last one."""
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
    # Only the addresses to report are looked up again.
    wanted = marked.where((f.col("no_such") > 0) | (f.col("refusals") >= ENOUGH) | f.col("absurd"))
    taken = (
        archive.where(f.col("result") == "success")
        .join(f.broadcast(wanted.select(*_ADDRESS)), list(_ADDRESS), "left_semi")
        .groupBy(*_ADDRESS)
        .agg(f.max("finished").alias("last_taken"))
    )
    both = wanted.join(taken, list(_ADDRESS), "left")
    later = f.coalesce(f.col("last_taken") >= f.col("last_refused"), f.lit(False))
    return both.where(~later).drop("last_taken")
