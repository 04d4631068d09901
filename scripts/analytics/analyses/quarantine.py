"""quarantine — how often the policy held mail rightly

Owns: reading the result of held mail from `archive`.
Guarantees: pure; each finished recipient that was held by policy is in one of the counts.
Bugs: released mail has lost `_quarantineid`; it is recognised by `_holdreason` and counted under its `_policyrule`.
    Mail held by hand and then released has neither mark, and waiting mail is not in history: both are missing here, as
    they are in `archive`. The audit of operators' commands, if enabled, has them.
See: sql/README.md, "Reserved metadata".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def quarantine(held: DataFrame) -> DataFrame:
    """Rows: rule, removed, released, sent_meanwhile, precision.

    rule: the policy rule that held it, else the quarantine, else the reason. removed: deleted or bounced while held;
    released: tried after its release, with any result; sent_meanwhile: held while a worker was sending it, and
    delivered. precision: removed / (removed + released), 0 to 1; NULL if both are 0.
    """
    marks = f.from_json("metadata", "_quarantineid string, _holdreason string, _policyrule string").alias("m")
    marked = held.select("result", "recipients", marks)
    still = f.col("m._quarantineid").isNotNull()
    kinds = marked.select(
        f.coalesce("m._policyrule", "m._quarantineid", "m._holdreason", f.lit("(unreadable)")).alias("rule"),
        (still & f.col("result").isin("deleted", "bounced", "lock_expired")).alias("removed"),
        (still & ~f.col("result").isin("deleted", "bounced", "lock_expired")).alias("sent_meanwhile"),
        (~still).alias("released"),
        "recipients",
    )
    counted = kinds.groupBy("rule").agg(
        *[
            f.sum(f.when(f.col(name), f.col("recipients")).otherwise(0)).alias(name)
            for name in ("removed", "released", "sent_meanwhile")
        ]
    )
    precision = f.try_divide(f.col("removed"), f.col("removed") + f.col("released"))
    return counted.withColumn("precision", precision).orderBy(f.desc(f.col("removed") + f.col("released")), "rule")
