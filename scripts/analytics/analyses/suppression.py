"""suppression — addresses that should not be sent to any more

Owns: which refusals speak against an address, and how many it takes.
Called by: scripts.analytics.figures.
Guarantees: pure. No address that took mail after its last refusal. A refusal for policy or reputation (5.7.x) says
    nothing about the address. An address that is absurd is quarantined: it is in the list as `absurd`, not lost.
See: RFC 3463 section 3.2, address status; RFC 5321 section 4.5.3.1.1, a local part has at most 64 octets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from scripts.analytics.analyses.rollup import UNUSABLE, domain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Refusals without a word about the address that it takes to list it all the same.
ENOUGH: Final = 3

_LONGEST_LOCAL: Final = 64
_NO_SUCH: Final = (
    r"(?i)(?<![\d.])5\.1\.(?:1|2|3|6|10)(?![\d.])"
    r"|(?:no such|unknown|invalid|nonexistent) (?:user|recipient|mailbox|address)"
    r"|(?:user|recipient|mailbox|address|account) (?:is )?(?:unknown|not found|disabled|does(?: not|n't) exist)"
)
_POLICY: Final = r"(?<![\d.])5\.7\.\d"


def suppression(archive: DataFrame) -> DataFrame:
    """Rows: recipientlocalpart, recipientdomain, why, refusals, last_refused, last_reply.

    why: "no such address" (one refusal that says so), "refused again and again" (ENOUGH others), or "absurd" (not an
    address that mail can be sent to). The address refused most often first.
    """
    refused = archive.where(f.col("result") == "failed").select(
        "recipientlocalpart", "recipientdomain", "finished",
        f.make_valid_utf8(f.coalesce("last_error", f.lit(""))).alias("reply"),
    ).where(~f.col("reply").rlike(_POLICY))  # fmt: skip
    address = ["recipientlocalpart", "recipientdomain"]
    counted = refused.groupBy(*address).agg(
        f.count("*").alias("refusals"),
        f.sum(f.col("reply").rlike(_NO_SUCH).cast("bigint")).alias("no_such"),
        f.max("finished").alias("last_refused"),
        f.max_by("reply", "finished").alias("last_reply"),
    )
    absurd = (f.octet_length("recipientlocalpart") > _LONGEST_LOCAL) | (domain("recipientdomain") == UNUSABLE)
    listed = counted.withColumn(
        "why",
        f.when(absurd, "absurd")
        .when(f.col("no_such") > 0, "no such address")
        .when(f.col("refusals") >= ENOUGH, "refused again and again"),
    ).where(f.col("why").isNotNull())
    took = archive.where(f.col("result") == "success").select(*address, "finished")
    took = took.join(f.broadcast(listed.select(*address)), address, "left_semi")
    last = took.groupBy(*address).agg(f.max("finished").alias("last_taken"))
    left = listed.join(last, address, "left")
    still = left.where(f.col("last_taken").isNull() | (f.col("last_taken") < f.col("last_refused")))
    return still.select(*address, "why", "refusals", "last_refused", "last_reply").orderBy(
        f.desc("refusals"), f.desc("last_refused"), *address
    )
