"""test-wordings — one provider's wording is one row, with any ids, numbers and addresses"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.database.history import attempts, rolled, tuples

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
