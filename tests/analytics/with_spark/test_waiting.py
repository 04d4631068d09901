"""test-waiting — waiting times, suppression and quarantine of synthetic archives, counted by hand"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.analytics.history import MONDAY, archive, rolled, tuples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

_NO_SUCH = "550 5.1.1 <bob@example.com>: user unknown"


def test_percentiles_are_times_that_occurred(spark: SparkSession) -> None:
    from scripts.analytics.analyses.waiting import waiting  # noqa: PLC0415

    rows: list[dict[str, object]] = [{"took": seconds} for seconds in range(1, 11)]  # example.com: 1 to 10 seconds
    rows += [{"took": 0.001, "recipientdomain": "fast.example"}, {"took": 123.4, "recipientdomain": "fast.example"}]
    rows += [{"took": 9000, "result": "failed"}, {"took": -5}]  # a refusal, and a clock that jumped
    given = rolled(spark, archive=archive(*rows))
    columns = ("recipients", "p50", "p90", "p99", "longest")

    assert tuples(waiting(given["delivered"], "recipientdomain"), "recipientdomain", *columns) == [
        ("example.com", 10, 5.0, 9.0, 10.0, 10.0),
        ("fast.example", 2, 0.01, 120.0, 120.0, 120.0),
    ]
    assert tuples(waiting(given["waits"]), "all", *columns) == [("all", 13, 6.0, 120.0, 9000.0, 9000.0)]
    assert [tuple(row) for row in given["waits"].groupBy().sum("recipients", "jumps").collect()] == [(14, 1)]


def test_suppressed_addresses_are_listed_until_they_accept_mail_again(spark: SparkSession) -> None:
    from scripts.analytics.analyses.suppression import suppression  # noqa: PLC0415

    def refused(who: str, reply: str = "554 mailbox trouble", **more: object) -> dict[str, object]:
        return {"recipientlocalpart": who, "result": "failed", "last_error": reply, **more}

    later = MONDAY + timedelta(days=1)
    found = tuples(
        suppression(
            rolled(spark, archive=archive(
                refused("gone", _NO_SUCH),
                refused("gone-then-back", _NO_SUCH),
                {"recipientlocalpart": "gone-then-back", "finished": later},
                {"recipientlocalpart": "there-then-gone"},
                refused("there-then-gone", _NO_SUCH, finished=later),
                refused("twice", times=2),
                refused("thrice", times=3),
                refused("blocked", "550 5.7.1 blocked for reputation", times=9),
                refused("l" * 300),
                {"recipientlocalpart": "fine"},
            ))["refusals"]
        ),
        "recipientlocalpart", "why", "refusals", "last_reply",
    )  # fmt: skip
    assert found == [
        ("thrice", "refused again and again", 3, "554 mailbox trouble"),
        ("there-then-gone", "no such address", 1, _NO_SUCH),
        ("gone", "no such address", 1, _NO_SUCH),
        ("l" * 300, "absurd", 1, "554 mailbox trouble"),
    ]


def test_the_precision_of_a_quarantine_is_deleted_mail_over_decided_mail(spark: SparkSession) -> None:
    from scripts.analytics.analyses.quarantine import quarantine  # noqa: PLC0415

    held = {"_quarantineid": "spam", "_holdreason": "looks bad", "_policyrule": "score"}
    released = {"_holdreason": "looks bad", "_policyrule": "score"}
    rows: list[tuple[str, object, int]] = [
        ("deleted", held, 6),
        ("bounced", held, 1),
        ("success", released, 2),
        ("failed", released, 1),  # released, then refused by its destination: the release counts
        ("success", {"_quarantineid": "hand"}, 1),  # put on hold while it was being sent
        ("success", {"_partid": "1"}, 5),
        ("deleted", None, 5),
    ]
    done = archive(
        *[{"result": result, "metadata": marks and json.dumps(marks), "times": n} for result, marks, n in rows],
        {"result": "deleted", "metadata": '{"_quarantineid": broken'},
    )
    found = quarantine(rolled(spark, archive=done)["held"])
    assert tuples(found, "rule", "removed", "released", "sent_meanwhile", "precision") == [
        ("score", 7, 3, 0, 0.7),
        ("(unreadable)", 0, 1, 0, 0.0),
        ("hand", 0, 0, 1, None),
    ]


def test_only_the_largest_destinations_are_timed_one_by_one(spark: SparkSession) -> None:
    from scripts.analytics.analyses.waiting import waiting  # noqa: PLC0415

    rows = [{"recipientdomain": f"d{n}.example", "times": n, "took": n} for n in (1, 2, 2, 3)]
    given = rolled(spark, archive=archive(*rows), top=2)

    assert tuples(waiting(given["delivered"], "recipientdomain"), "recipientdomain", "recipients", "p50") == [
        ("d2.example", 4, 2.0),
        ("d3.example", 3, 3.0),
    ]
