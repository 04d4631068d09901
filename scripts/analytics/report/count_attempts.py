"""count_attempts — counts attempts by what the analyses need, with Spark

Owns: the small tables counted from attempts, and the test whether a deferral is because of our rate.
Guarantees: pure, DataFrame in and DataFrames out. Each attempt is counted in exactly one row of each table, except that
    `replies` has only failed and deferred attempts. A try that ended before it began (a clock jumped) is counted in
    `jumps` and adds no time. Sums are of whole numbers, so no division of the rows among workers changes a figure.
See: scripts/analytics/report/count_archive.py, its counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from scripts.analytics.analyses.marks import FEWEST, NO_CAMPAIGN, NULL_SENDER, UNKNOWN
from scripts.analytics.report.texts import domain, provider, rough, text, wording

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The columns that are read.
COLUMNS: Final = (
    "ts", "retry_count", "partid", "transportid", "senderdomain", "recipientdomain", "outcome", "reply_code",
    "reply_enhanced", "reply_text", "duration", "tls", "source", "jobid", "remote",
)  # fmt: skip
#: Words of a deferral that ask for a lower rate, and those of greylisting, which does not depend on the rate.
_SLOWER: Final = r"(?i)\brate\b|rate.?limit|too (many|much|fast)|throttl|deferred due to|exceeded|unusual (rate|volume)"
_LATER: Final = r"(?i)gr[ae]y.?list"
_SHUTTING: Final = 421  # RFC 5321 section 4.2.3


def tables(attempts: DataFrame) -> dict[str, DataFrame]:
    """The tables of these attempts, by name."""
    hours = _hours(attempts)
    return {
        "tries": _tries(attempts),
        "destinations": _by(attempts, "recipientdomain", domain("recipientdomain"), "tls"),
        "senders": _by(attempts, "senderdomain", f.coalesce(domain("senderdomain"), f.lit(NULL_SENDER))),
        "campaigns": _by(attempts, "jobid", f.coalesce("jobid", f.lit(NO_CAMPAIGN))),
        "days": _days(attempts),
        "by_hour": hours,
        "replies": _replies(attempts),
    }


def hourly(hours: DataFrame) -> DataFrame:
    """Attempts by hour, to all destinations."""
    return hours.groupBy("hour").agg(f.sum("attempts").alias("attempts"))


def paces(hours: DataFrame) -> DataFrame:
    """All hours of the destinations that deferred mail because of our rate at least FEWEST times in some hour."""
    slow = hours.where(f.col("slowed") >= FEWEST).select("recipientdomain").distinct()
    return hours.join(slow, "recipientdomain", "left_semi")


def _tries(attempts: DataFrame) -> DataFrame:
    origin = [f.coalesce(name, f.lit(UNKNOWN)).alias(name) for name in ("source", "partid")]
    micros = f.round(f.greatest(f.coalesce("duration", f.lit(0.0)), f.lit(0.0)) * 1_000_000).cast("bigint")
    return attempts.groupBy("transportid", *origin, f.col("retry_count").alias("step"), "outcome").agg(
        f.count("*").alias("attempts"),
        f.sum(micros).alias("micros"),
        f.count_if(f.col("duration") < 0).alias("jumps"),
    )


def _by(attempts: DataFrame, name: str, normal: Column, *more: str) -> DataFrame:
    """Attempts by a domain, step and outcome; the domain is made normal once for each different one."""
    keys = [*more, "step", "outcome"]
    raw = attempts.groupBy(name, *more, f.col("retry_count").alias("step"), "outcome").agg(
        f.count("*").alias("attempts")
    )
    return raw.groupBy(normal.alias(name), *keys).agg(f.sum("attempts").alias("attempts"))


def _days(attempts: DataFrame) -> DataFrame:
    """Attempts by day, provider, source address, step and outcome; of these, those that a peer blames on us."""
    keys = ["day", "source", "step", "outcome"]
    raw = attempts.groupBy(
        f.date_trunc("day", "ts").alias("day"), "remote", "source", f.col("retry_count").alias("step"), "outcome"
    ).agg(f.count("*").alias("attempts"), f.count_if(_blamed()).alias("blamed"))
    named = raw.withColumn("source", f.coalesce("source", f.lit(UNKNOWN)))
    return named.groupBy(*keys, provider("remote").alias("provider")).agg(
        f.sum("attempts").alias("attempts"), f.sum("blamed").alias("blamed")
    )


def _blamed() -> Column:
    """Whether the reply names our reputation, a policy or our rate: x.7.x (RFC 3463 section 3.8), or 421."""
    code = f.coalesce(f.col("reply_code") == _SHUTTING, f.lit(False))
    return code | f.coalesce(f.substring("reply_enhanced", 2, 3) == ".7.", f.lit(False))


def _hours(attempts: DataFrame) -> DataFrame:
    flags = {"delivered": f.col("outcome") == "delivered", "slowed": _slowed()}
    raw = attempts.groupBy(f.date_trunc("hour", "ts").alias("hour"), "recipientdomain").agg(
        f.count("*").alias("attempts"), *[f.count_if(flag).alias(name) for name, flag in flags.items()]
    )
    return raw.groupBy("hour", domain("recipientdomain").alias("recipientdomain")).agg(
        *[f.sum(name).alias(name) for name in ("attempts", *flags)]
    )


def _slowed() -> Column:
    """Whether an attempt was deferred with 421, 4.7.x or words about a rate, and not greylisted."""
    reply = f.coalesce("reply_text", f.lit(""))
    coded = f.coalesce(f.col("reply_code") == _SHUTTING, f.lit(False))
    coded |= f.coalesce(f.col("reply_enhanced").startswith("4.7."), f.lit(False))
    return f.when(f.col("outcome") == "deferred", (coded | reply.rlike(_SLOWER)) & ~reply.rlike(_LATER)).otherwise(
        f.lit(False)
    )


def _replies(attempts: DataFrame) -> DataFrame:
    """Failed and deferred attempts, by the reply without the parts that differ between messages."""
    troubled = attempts.where(f.col("outcome").isin("failed", "deferred"))
    codes = ("outcome", "reply_code", "reply_enhanced")
    said = text("reply_text")
    return (
        troubled.groupBy(*codes, rough(said).alias("rough"), f.lower("recipientdomain").alias("recipientdomain"))
        .agg(f.count("*").alias("attempts"), f.min(said).alias("example"))
        .groupBy(*codes, wording(f.col("rough")).alias("wording"), "recipientdomain")
        .agg(f.sum("attempts").alias("attempts"), f.min("example").alias("example"))
    )
