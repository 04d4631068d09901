"""rollup — what several analyses need of `attempts` and `archive`, each read once

Owns: the four small tables that the other analyses begin with, and what counts as an unusable value.
Called by: scripts.analytics.figures, which keeps them in memory; tests.
Guarantees: each row of history is counted in exactly one row of a rollup. A try that ended before it began, or mail
    that was finished before it came (a clock jumped), is counted in `jumps` and adds no time. A destination that
    cannot be one is counted under UNUSABLE. Columns that an older lake or database lacks read as NULL.
See: RFC 5321 section 4.5.3.1.2, a domain has at most 255 octets; RFC 3463, enhanced status codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNUSABLE: Final = "(unusable)"  # not a domain: too long, empty, or with characters that no name has
NULL_SENDER: Final = "(null sender)"
UNKNOWN: Final = "(unknown)"  # written by a worker that did not know the column yet

_LONGEST_DOMAIN: Final = 255
_ALIEN: Final = r"[\x00-\x20\x7f<>@,;\\\x{FFFD}]"
#: Words of a deferral that say "slower", and those of greylisting, which says "later" whatever the pace.
_SLOWER: Final = r"(?i)\brate\b|rate.?limit|too (many|much|fast)|throttl|deferred due to|exceeded|unusual (rate|volume)"
_LATER: Final = r"(?i)gr[ae]y.?list"


def tries(attempts: DataFrame) -> DataFrame:
    """Attempts by recipientdomain, transportid, source, tls, partid, step and outcome: attempts, seconds, jumps.

    step: which try it was, from 1. seconds: what these tries took together, jumps left out.
    """
    known = _with(attempts, "source", "tls")
    keys = ["recipientdomain", "transportid", "source", "tls", "partid", "retry_count", "outcome"]
    counted = known.groupBy(*keys).agg(
        f.count("*").alias("attempts"),
        f.sum(f.when(f.col("duration") >= 0, f.col("duration")).otherwise(0.0)).alias("seconds"),
        f.sum((f.col("duration") < 0).cast("bigint")).alias("jumps"),
    )
    named = counted.withColumnRenamed("retry_count", "step").withColumn("recipientdomain", domain("recipientdomain"))
    return named.withColumns({name: f.coalesce(name, f.lit(UNKNOWN)) for name in ("source", "partid")})


def senders(attempts: DataFrame) -> DataFrame:
    """Attempts by senderdomain, step and outcome: attempts."""
    counted = attempts.groupBy("senderdomain", f.col("retry_count").alias("step"), "outcome").agg(
        f.count("*").alias("attempts")
    )
    return counted.withColumn("senderdomain", f.coalesce(domain("senderdomain"), f.lit(NULL_SENDER)))


def hours(attempts: DataFrame) -> DataFrame:
    """Attempts by hour (UTC) and recipientdomain: attempts, delivered, and slowed, what was deferred for our pace.

    slowed: deferred with 421, with 4.7.x, or in words about a rate, and not greylisted.
    """
    deferred = f.col("outcome") == "deferred"
    text = f.coalesce(f.col("reply_text"), f.lit(""))
    coded = (f.col("reply_code") == 421) | f.col("reply_enhanced").startswith("4.7.")  # noqa: PLR2004 - RFC 5321 4.2.3
    slowed = deferred & (f.coalesce(coded, f.lit(False)) | text.rlike(_SLOWER)) & ~text.rlike(_LATER)
    counted = attempts.groupBy(f.date_trunc("hour", "ts").alias("hour"), "recipientdomain").agg(
        f.count("*").alias("attempts"),
        f.sum((f.col("outcome") == "delivered").cast("bigint")).alias("delivered"),
        f.sum(slowed.cast("bigint")).alias("slowed"),
    )
    return counted.withColumn("recipientdomain", domain("recipientdomain"))


def waits(archive: DataFrame) -> DataFrame:
    """Finished recipients by recipientdomain, transportid, result and seconds in the queue: recipients, jumps.

    seconds: from receipt to the result, to two significant digits, at least 0.01; NULL where the clock jumped.
    """
    took = f.unix_micros("finished") - f.unix_micros("ts")
    seconds = f.when(took >= 0, two_digits(f.greatest(took / 1e6, f.lit(0.01))))
    counted = archive.groupBy("recipientdomain", "transportid", "result", seconds.alias("seconds")).agg(
        f.count("*").alias("recipients")
    )
    return counted.withColumn("recipientdomain", domain("recipientdomain")).withColumn(
        "jumps", f.when(f.col("seconds").isNull(), f.col("recipients")).otherwise(0)
    )


def domain(name: str) -> Column:
    """This column as a domain in lower case, UNUSABLE for what cannot be one; NULL stays."""
    column = f.lower(f.make_valid_utf8(f.col(name)))
    absurd = (f.octet_length(name) > _LONGEST_DOMAIN) | (f.length(name) == 0) | column.rlike(_ALIEN)
    return f.when(absurd, f.lit(UNUSABLE)).otherwise(column)


def two_digits(seconds: Column) -> Column:
    """A positive number to two significant digits: 0.12, 3.4, 170."""
    power = f.pow(f.lit(10.0), f.floor(f.log10(seconds)))
    return f.round(f.round(seconds / power, 1) * power, 3)


def _with(frame: DataFrame, *names: str) -> DataFrame:
    """The frame, with these columns as NULL where it does not have them."""
    return frame.withColumns({name: f.lit(None).cast("string") for name in names if name not in frame.columns})
