"""suppression — addresses that should receive no more mail

Owns: the refusals that count against an address, and their threshold.
Guarantees: pure. An address that accepted mail after its last refusal is not listed. A refusal for policy or reputation
    (5.7.x) does not count against an address. An invalid address is listed as `absurd`, not dropped.
See: RFC 3463 section 3.2, address status; RFC 5321 section 4.5.3.1.1, a local part has at most 64 octets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from scripts.analytics.analyses.marks import ENOUGH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def suppression(refusals: DataFrame) -> DataFrame:
    """Rows: recipientlocalpart, recipientdomain, why, refusals, last_refused, last_reply.

    why: "no such address" (one refusal says so), "refused again and again" (ENOUGH other refusals), or "absurd" (not a
    valid address). The address refused most often comes first.
    """
    address = ["recipientlocalpart", "recipientdomain"]
    absurd = f.col("absurd")
    why = (
        f.when(absurd, "absurd")
        .when(f.col("no_such") > 0, "no such address")
        .when(f.col("refusals") >= ENOUGH, "refused again and again")
    )
    listed = refusals.withColumn("why", why).where(f.col("why").isNotNull())
    return listed.select(*address, "why", "refusals", "last_refused", "last_reply").orderBy(
        f.desc("refusals"), f.desc("last_refused"), *address
    )
