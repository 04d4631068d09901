"""wordings — bounces and deferrals by class: the replies of peers, each wording once

Owns: what in a reply is noise (addresses, numbers, ids, URLs, host names, quoted words), and when two wordings are
    one.
Called by: scripts.analytics.figures.
Guarantees: pure; every failed or deferred attempt is in exactly one row. Two wordings with the same outcome and code
    are one if at least 0.7 of their words are the same (Jaccard); the more frequent one gives its name. Beyond the
    LIMIT most frequent wordings each stays by itself.
See: RFC 3463 for the enhanced code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LIMIT: Final = 500  # wordings that are compared with one another
ALIKE: Final = 0.7
_LONGEST: Final = 300  # of a wording; a reply line has at most 512 octets (RFC 5321 section 4.5.3.1.5)

#: What differs between two replies that say the same, tried from left to right at each place; one pass over the text.
_NOISE: Final = (
    r"https?://[^\s<>\"]{1,300}"
    r"|<[^<>\s]{0,320}>"
    r"|\"[^\"]{1,200}\""
    r"|(?<!\w)'[^']{1,80}'(?!\w)"
    r"|[\w.+=/&%#~-]{1,64}+@[\w.\[\]:-]{1,255}"
    r"|(?<!\w)(?:[a-z-]{0,40}+[\d_][\w.:+/=-]{0,200}|[a-z-]{1,60}+(?:\.[\w-]{1,60})+)"
    r"|(?<!\w)(?=[a-z]{0,80}+\d)\w{1,120}+"
)


def wordings(attempts: DataFrame) -> DataFrame:
    """Rows: outcome, reply_code, reply_enhanced, wording, attempts, destinations, most_at, example.

    wording: the reply without what differs from mail to mail, each gap a `*`. destinations: domains that said so;
    most_at: the one that said so most; example: one reply as it was.
    """
    troubled = attempts.where(f.col("outcome").isin("failed", "deferred"))
    text = f.make_valid_utf8(f.coalesce(f.substring("reply_text", 1, 2 * _LONGEST), f.lit("(no reply)")))
    rough = troubled.groupBy(
        "outcome", "reply_code", "reply_enhanced", f.lower("recipientdomain").alias("at"),
        f.regexp_replace(text, f.lit(f"(?iU){_NOISE}"), f.lit("*")).alias("rough"),
    ).agg(f.count("*").alias("n"), f.min(text).alias("example"))  # fmt: skip
    exact = (
        rough.groupBy("outcome", "reply_code", "reply_enhanced", _tidy("rough").alias("wording"), "at")
        .agg(f.sum("n").alias("n"), f.min("example").alias("example"))
        .groupBy("outcome", "reply_code", "reply_enhanced", "wording")
        .agg(
            f.sum("n").alias("attempts"),
            f.collect_set("at").alias("domains"),
            f.max_by("at", "n").alias("most_at"),
            f.max("n").alias("most"),
            f.min("example").alias("example"),
        )
    )
    return _merged(exact)


def clustered(exact: DataFrame) -> DataFrame:
    """The frame with `leader`, the rank of the wording that this one is a variant of; itself, if of none.

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
            f.max_by("most_at", "most").alias("most_at"),
            f.min_by("example", "rank").alias("example"),
        )
    )
    return groups.drop("leader").orderBy(f.desc("attempts"), "wording")


def _tidy(name: str) -> Column:
    """Gaps that follow one another as one, none at the beginning, white space single, no longer than a line."""
    joined = f.regexp_replace(name, r"(?:\*[\s.,:;()\[\]/-]*){2,}", "* ")
    return f.substring(
        f.trim(f.regexp_replace(f.regexp_replace(joined, r"\s+", " "), r"^[*\s:-]+(?=\S)", "")), 1, _LONGEST
    )
