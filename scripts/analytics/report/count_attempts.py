"""count_attempts — counts attempts by what the analyses need, with Spark

Owns: the groups that attempts are counted in, the small tables that are made of these groups, and the test whether a
    deferral is because of our rate.
Guarantees: pure, DataFrame in and DataFrames out. Each attempt is counted in exactly one row of each group and table,
    except that `answers` and `replies` have only failed and deferred attempts. A try that ended before it began (a
    clock jumped) is counted in `jumps` and adds no time. Sums are of whole numbers, so no division of the rows among
    workers changes a figure.
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
_HOUR: Final = 3_600_000_000  # microseconds
_DAY: Final = 24 * _HOUR
_STEP: Final = ("step", "outcome")
_CODES: Final = ("outcome", "reply_code", "reply_enhanced")
_SHUTTING: Final = 421  # RFC 5321 section 4.2.3


def grouped(attempts: DataFrame) -> dict[str, DataFrame]:
    """The groups of these attempts, by name; each reads the rows once."""
    return {
        "paths": _paths(attempts),
        "traffic": _traffic(attempts),
        "origins": _origins(attempts),
        "answers": _answers(attempts),
    }


def tables(groups: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """The tables of these groups, by name."""
    paths, traffic, origins = groups["paths"], groups["traffic"], groups["origins"]
    sender = f.coalesce(domain("senderdomain"), f.lit(NULL_SENDER)).alias("senderdomain")
    return {
        "tries": _added(paths, "transportid", "source", "partid", *_STEP, sums=("attempts", "micros", "jumps")),
        "days": _added(
            paths, "day", "source", provider("remote").alias("provider"), *_STEP, sums=("attempts", "blamed")
        ),
        "destinations": _added(traffic, domain("recipientdomain").alias("recipientdomain"), "tls", *_STEP),
        "by_hour": _by_hour(traffic),
        "senders": _added(origins, sender, *_STEP),
        "campaigns": _added(origins, f.coalesce("jobid", f.lit(NO_CAMPAIGN)).alias("jobid"), *_STEP),
        "replies": _replies(groups["answers"]),
    }


def hourly(hours: DataFrame) -> DataFrame:
    """Attempts by hour, to all destinations."""
    return hours.groupBy("hour").agg(f.sum("attempts").alias("attempts"))


def paces(hours: DataFrame) -> DataFrame:
    """All hours of the destinations that deferred mail because of our rate at least FEWEST times in some hour."""
    slow = hours.where(f.col("slowed") >= FEWEST).select("recipientdomain").distinct()
    return hours.join(slow, "recipientdomain", "left_semi")


def _paths(attempts: DataFrame) -> DataFrame:
    """Attempts by day, host, source address, transport, partition, step and outcome.

    blamed: those that a peer blames on us.
    """
    named = [f.coalesce(name, f.lit(UNKNOWN)).alias(name) for name in ("source", "partid")]
    micros = f.floor(f.greatest(f.coalesce("duration", f.lit(0.0)), f.lit(0.0)) * 1_000_000 + 0.5)
    raw = attempts.groupBy(_floored(_DAY).alias("day"), "remote", "transportid", *named, *_step()).agg(
        f.count("*").alias("attempts"),
        f.sum(micros).alias("micros"),
        f.count_if(f.col("duration") < 0).alias("jumps"),
        f.count_if(_blamed()).alias("blamed"),
    )
    return raw.withColumn("day", f.timestamp_micros("day"))


def _traffic(attempts: DataFrame) -> DataFrame:
    """Attempts by hour, destination, TLS, step and outcome. slowed: those deferred because of our rate."""
    raw = attempts.groupBy(_floored(_HOUR).alias("hour"), "recipientdomain", "tls", *_step()).agg(
        f.count("*").alias("attempts"), f.count_if(_slowed()).alias("slowed")
    )
    return raw.withColumn("hour", f.timestamp_micros("hour"))


def _origins(attempts: DataFrame) -> DataFrame:
    """Attempts by sender, campaign, step and outcome."""
    return attempts.groupBy("senderdomain", "jobid", *_step()).agg(f.count("*").alias("attempts"))


def _step() -> tuple[Column, str]:
    return f.col("retry_count").alias("step"), "outcome"


def _added(groups: DataFrame, *keys: Column | str, sums: tuple[str, ...] = ("attempts",)) -> DataFrame:
    """The sums by these keys. A text is made normal here, once for each group and not for each attempt."""
    return groups.groupBy(*keys).agg(*[f.sum(name).alias(name) for name in sums])


def _by_hour(traffic: DataFrame) -> DataFrame:
    delivered = f.when(f.col("outcome") == "delivered", f.col("attempts")).otherwise(f.lit(0))
    return _added(
        traffic.withColumn("delivered", delivered),
        "hour",
        domain("recipientdomain").alias("recipientdomain"),
        sums=("attempts", "delivered", "slowed"),
    )


def _blamed() -> Column:
    """Whether the reply names our reputation, a policy or our rate: x.7.x (RFC 3463 section 3.8), or 421."""
    code = f.coalesce(f.col("reply_code") == _SHUTTING, f.lit(False))
    return code | f.coalesce(f.substring("reply_enhanced", 2, 3) == ".7.", f.lit(False))


def _floored(micros: int) -> Column:
    """Microseconds from 1970 to the beginning of an hour or day; date_trunc() looks at the time zone for each row."""
    instant = f.unix_micros("ts")
    return instant - f.pmod(instant, f.lit(micros))


def _slowed() -> Column:
    """Whether an attempt was deferred with 421, 4.7.x or words about a rate, and not greylisted."""
    reply = f.coalesce("reply_text", f.lit(""))
    coded = f.coalesce(f.col("reply_code") == _SHUTTING, f.lit(False))
    coded |= f.coalesce(f.col("reply_enhanced").startswith("4.7."), f.lit(False))
    return f.when(f.col("outcome") == "deferred", (coded | reply.rlike(_SLOWER)) & ~reply.rlike(_LATER)).otherwise(
        f.lit(False)
    )


def _answers(attempts: DataFrame) -> DataFrame:
    """Failed and deferred attempts by codes, destination, and the reply without its numbers and ids."""
    said = text("reply_text")
    return (
        attempts.where(f.col("outcome").isin("failed", "deferred"))
        .groupBy(*_CODES, rough(said).alias("rough"), f.lower("recipientdomain").alias("recipientdomain"))
        .agg(f.count("*").alias("attempts"), f.min(said).alias("example"))
    )


def _replies(answers: DataFrame) -> DataFrame:
    """Failed and deferred attempts, by the reply without the parts that differ between messages."""
    return answers.groupBy(*_CODES, wording(f.col("rough")).alias("wording"), "recipientdomain").agg(
        f.sum("attempts").alias("attempts"), f.min("example").alias("example")
    )
