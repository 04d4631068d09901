"""encryption — the share of mail over TLS, its versions, and the destinations without TLS

Owns: the classes of `attempts.tls`.
Guarantees: pure; delivered mail only, because a session that ended in a refusal may never have reached STARTTLS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from scripts.analytics.analyses.marks import UNKNOWN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PLAIN: Final = "none"


def encryption(destinations: DataFrame) -> DataFrame:
    """Rows: tls, delivered, share. tls: "TLSv1.3 verified", "TLSv1.3", "none", "(unknown)"; share of all delivered."""
    counted = _delivered(destinations).groupBy(_class().alias("tls")).agg(f.sum("attempts").alias("delivered"))
    whole = f.sum("delivered").over(Window.partitionBy())
    return counted.withColumn("share", f.col("delivered") / whole).orderBy(f.desc("delivered"), "tls")


def in_the_clear(destinations: DataFrame) -> DataFrame:
    """Rows: recipientdomain, plain, delivered, share: destinations with mail delivered without TLS, most first."""
    counted = (
        _delivered(destinations)
        .groupBy("recipientdomain")
        .agg(
            f.sum(f.when(f.col("tls") == PLAIN, f.col("attempts")).otherwise(0)).alias("plain"),
            f.sum("attempts").alias("delivered"),
        )
    )
    some = counted.where(f.col("plain") > 0).withColumn("share", f.col("plain") / f.col("delivered"))
    return some.orderBy(f.desc("plain"), "recipientdomain")


def _delivered(destinations: DataFrame) -> DataFrame:
    return destinations.where(f.col("outcome") == "delivered")


def _class() -> Column:
    """The protocol's version, and whether the certificate was verified; the cipher is left out."""
    version = f.substring_index("tls", " ", 1)
    verified = f.when(f.col("tls").endswith(" verified"), f.concat(version, f.lit(" verified"))).otherwise(version)
    return f.coalesce(verified, f.lit(UNKNOWN))
