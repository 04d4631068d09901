"""test-wordings — one provider's wording is one row, with any ids, numbers and addresses"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.analytics.history import attempts, rolled, tuples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def _said(text: str | None, code: int | None = 550, outcome: str = "failed", **more: Any) -> dict[str, Any]:
    return {"outcome": outcome, "reply_code": code, "reply_enhanced": None, "reply_text": text, **more}


def _replies(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return rolled(spark, attempts(*rows))["replies"]


def test_ids_numbers_and_addresses_are_gaps_in_a_wording(spark: SparkSession) -> None:
    from scripts.analytics.analyses.wordings import wordings  # noqa: PLC0415

    replies = [
        (
            "550 5.1.1 <ann.lee+tag@example.com>: Recipient address rejected: User unknown in table 42",
            "Recipient address rejected: User unknown in table *",
        ),
        (
            "451 4.7.1 Try later, see https://help.example/a?b=c#d for 'this thing' (id 4f3c-99ab)",
            "Try later, see * for * (id *)",
        ),
        ('452 mailbox "bob smith" full on mx1.prov.example [2001:db8::1]', "mailbox * full on *"),
        ("don't do that, it isn't nice", "don't do that, it isn't nice"),
        (None, "(no reply)"),
    ]
    found = wordings(_replies(spark, *[_said(text, code) for code, (text, _) in enumerate(replies, 500)]))

    assert {row[0]: row[1] for row in tuples(found, "reply_code", "wording")} == {
        code: wording for code, (_, wording) in enumerate(replies, 500)
    }


def test_the_wording_of_a_rough_text_is_that_of_the_reply(spark: SparkSession) -> None:
    from pyspark.sql import functions as f  # noqa: PLC0415

    from scripts.analytics.report.texts import rough, wording  # noqa: PLC0415

    replies = [
        "451 4.7.500 Server busy. Try later from [198.51.100.1]. (S77714) [6077cdcbe20d.prod.example]",
        "550 <a1.b-2+c3@x9-y.example>: no q-1a2b_c3 in [2001:db8::1a] 'x1 y2' \"z3 z4\" https://h0.example/p1?q=2",
        "a-b-c4 and d5.e6/f7 or 8é g9é, -h1 i_2 3rd 4.5.6. :7: user2@",
        "no such user",
    ]
    found = spark.createDataFrame([(each,) for each in replies], "reply string").select(
        rough(f.col("reply")).alias("rough"),
        wording(f.col("reply")).alias("whole"),
        wording(rough(f.col("reply"))).alias("again"),
    )
    rows = found.collect()
    assert [row.again for row in rows] == [row.whole for row in rows]
    assert rows[0].rough == "0 0.0.0 Server busy. Try later from [0.0.0.0]. (0) [0.prod.example]"


@pytest.mark.parametrize("table", ["destinations", "senders", "campaigns", "days", "by_hour", "replies"])
def test_texts_are_made_normal_after_equal_ones_were_counted_together(spark: SparkSession, table: str) -> None:
    """Spark would make one step of two, and apply patterns to each of ten million rows."""
    from scripts.analytics.report.count_attempts import grouped, tables  # noqa: PLC0415
    from scripts.analytics.source.columns import HISTORIES  # noqa: PLC0415

    rows = spark.createDataFrame([], HISTORIES["attempts"].spark())
    plan = tables(grouped(rows))[table]._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("Aggregate [") == 2, plan


def test_variants_of_a_wording_are_one_row_that_keeps_every_attempt(spark: SparkSession) -> None:
    from scripts.analytics.analyses.wordings import wordings  # noqa: PLC0415

    full = "The email account that you tried to reach is over quota and cannot take mail {}"
    found = wordings(
        _replies(
            spark,
            *[_said(full.format(f"id{n} - gsmtp"), recipientdomain=f"d{n}.example") for n in range(3)],
            _said(full.format("q7 - gsmtp"), recipientdomain="d0.example", times=4),
            _said("The email account that you tried to reach is over quota and cannot take any mail x9", times=2),
            _said("Relay access denied", times=5),
            _said("Relay access denied", code=454, outcome="deferred"),
            {"outcome": "delivered", "times": 50},
        )
    )
    assert tuples(found, "outcome", "reply_code", "attempts", "destinations", "most_at") == [
        ("failed", 550, 9, 4, "d0.example"),
        ("failed", 550, 5, 1, "example.com"),
        ("deferred", 454, 1, 1, "example.com"),
    ]


def test_replies_with_invalid_octets_or_endless_text_are_counted(spark: SparkSession) -> None:
    from scripts.analytics.analyses.wordings import wordings  # noqa: PLC0415
    from scripts.analytics.source import portion  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.source.columns import ATTEMPTS  # noqa: PLC0415

    texts = [b"caf\xe9 is full", b"a-" * 20_000, b"9" * 20_000, b"<" * 20_000]
    rows = attempts(*[_said("") for _ in texts])
    rows = rows.set_column(rows.column_names.index("reply_text"), "reply_text", [texts])
    found = tuples(wordings(rolled(spark, portion.printable(rows, ATTEMPTS))["replies"]), "wording", "attempts")
    assert sum(row[1] for row in found) == 4
    assert ("caf\ufffd is full", 1) in found


def test_of_several_destinations_with_most_attempts_the_first_by_name_is_named(spark: SparkSession) -> None:
    """Which rows Spark reads first depends on its partitions, and a report must not."""
    from scripts.analytics.analyses.wordings import wordings  # noqa: PLC0415

    names = ("b.example", "a.example", "c.example")
    for given in (names, tuple(reversed(names))):
        found = wordings(_replies(spark, *[_said("Relay access denied", recipientdomain=name) for name in given]))
        assert tuples(found, "attempts", "most_at") == [(3, "a.example")]
