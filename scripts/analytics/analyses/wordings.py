"""wordings — bounces and deferrals by the wording of the peers' replies

Owns: the test whether two wordings are variants of one.
Guarantees: pure; every failed or deferred attempt is in exactly one row. Two wordings with the same outcome and code
    are merged if at least 0.7 of their words are the same (Jaccard), under the more frequent wording. Only the LIMIT
    most frequent wordings are compared; the others stay separate.
See: RFC 3463 for the enhanced code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIMIT: Final = 500  # wordings that are compared with one another
ALIKE: Final = 0.7


def wordings(replies: DataFrame) -> DataFrame:
    """Rows: outcome, reply_code, reply_enhanced, wording, attempts, destinations, most_at, example.

    replies: failed and deferred attempts by wording and destination. wording: the reply with a `*` for each part that
    differs between messages. destinations: the number of domains with this reply; most_at: the domain with most of
    them, of several the first by name; example: one original reply.
    """
    exact = replies.groupBy("outcome", "reply_code", "reply_enhanced", "wording").agg(
        f.sum("attempts").alias("attempts"),
        f.collect_set("recipientdomain").alias("domains"),
        f.min_by("recipientdomain", f.struct(-f.col("attempts"), "recipientdomain")).alias("most_at"),
        f.max("attempts").alias("most"),
        f.min("example").alias("example"),
    )
    return _merged(exact)


def clustered(exact: DataFrame) -> DataFrame:
    """The frame with `leader`, the rank of the wording that this one is a variant of, or its own rank.

    exact: rows with outcome, reply_code, wording, attempts. Rank is by attempts, 1 the most frequent.
    """
    by_count = Window.orderBy(f.desc("attempts"), "outcome", "reply_code", "reply_enhanced", "wording")
    words = f.array_distinct(f.split(f.trim(f.lower(f.regexp_replace("wording", r"[^\p{L}]+", " "))), " "))
    ranked = exact.withColumn("rank", f.row_number().over(by_count)).withColumn("words", words)
    few = ranked.where(f.col("rank") <= LIMIT).select("rank", "words", "outcome", "reply_code")
    one, two = few.alias("one"), few.alias("two")
    same = (
        (f.col("one.outcome") == f.col("two.outcome"))
        & f.col("one.reply_code").eqNullSafe(f.col("two.reply_code"))
        & (f.col("one.rank") > f.col("two.rank"))
    )
    common = f.size(f.array_intersect("one.words", "two.words"))
    alike = common >= f.lit(ALIKE) * f.size(f.array_union("one.words", "two.words"))
    links = one.join(two, same & alike).groupBy("one.rank").agg(f.min("two.rank").alias("up"))
    higher = links.select(f.col("rank").alias("up"), f.col("up").alias("top"))  # the leader's own leader
    found = links.join(higher, "up", "left").select("rank", f.coalesce("top", "up").alias("leader"))
    return ranked.join(found, "rank", "left").withColumn("leader", f.coalesce("leader", "rank")).drop("words")


def _merged(exact: DataFrame) -> DataFrame:
    """One row for each leader."""
    groups = (
        clustered(exact)
        .groupBy("leader")
        .agg(
            *[f.min_by(name, "rank").alias(name) for name in ("outcome", "reply_code", "reply_enhanced", "wording")],
            f.sum("attempts").alias("attempts"),
            f.size(f.array_distinct(f.flatten(f.collect_list("domains")))).alias("destinations"),
            f.min_by("most_at", f.struct(-f.col("most"), "most_at")).alias("most_at"),
            f.min_by("example", "rank").alias("example"),
        )
    )
    return groups.drop("leader").orderBy(f.desc("attempts"), "wording")
