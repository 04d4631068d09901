"""test-deliverability — outcomes, steps, TLS and weights of synthetic attempts, counted by hand"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.analytics.history import attempts, rolled, tuples

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

_OUTCOMES = ("attempts", "delivered", "deferred", "failed", "lost")


@pytest.fixture(scope="module")
def tried() -> pa.Table:
    """Ten tries at four destinations, one of them not a domain."""
    return attempts(
        {"times": 3},
        {"outcome": "deferred", "recipientdomain": "Example.COM", "tls": None, "source": None, "duration": 4.0},
        {"outcome": "delivered", "retry_count": 2, "tls": "TLSv1.2 ECDHE-RSA-AES128-GCM-SHA256"},
        {"outcome": "failed", "recipientdomain": "example.net", "transportid": "bulk", "partid": "2", "duration": 9.0},
        {"outcome": "delivered", "recipientdomain": "example.net", "tls": "none", "source": "198.51.100.2"},
        {"outcome": "lease_expired", "recipientdomain": "example.org", "partid": None, "duration": -60.0},
        {"outcome": "failed", "recipientdomain": "x" * 400, "senderdomain": None},
        {"outcome": "deferred", "recipientdomain": "a<b>.example", "retry_count": 2},
    )


@pytest.fixture(scope="module")
def given(spark: SparkSession, tried: pa.Table) -> dict[str, DataFrame]:
    return rolled(spark, tried)


def _by(frame: DataFrame, by: str, *names: str) -> dict[Any, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in tuples(frame, by, *names)}


def test_outcomes_are_counted_by_destination_in_any_case(given: dict[str, DataFrame]) -> None:
    from scripts.analytics.analyses.deliverability import deliverability  # noqa: PLC0415

    found = _by(
        deliverability(given["destinations"], "recipientdomain"),
        "recipientdomain", *_OUTCOMES, "delivered_share", "first_share",
    )  # fmt: skip
    assert list(found) == ["example.com", "(unusable)", "example.net", "example.org"]  # most first, then by name
    assert found["example.com"] == (5, 4, 1, 0, 0, 0.8, 0.75)
    assert found["(unusable)"] == (2, 0, 1, 1, 0, 0.0, 0.0)
    assert found["example.net"] == (2, 1, 0, 1, 0, 0.5, 0.5)
    assert found["example.org"] == (1, 0, 0, 0, 1, 0.0, 0.0)


def test_outcomes_are_counted_by_transport_source_and_sender(given: dict[str, DataFrame]) -> None:
    from scripts.analytics.analyses.deliverability import deliverability  # noqa: PLC0415

    assert _by(deliverability(given["tries"], "transportid"), "transportid", *_OUTCOMES) == {
        "default": (9, 5, 2, 1, 1),
        "bulk": (1, 0, 0, 1, 0),
    }
    assert _by(deliverability(given["tries"], "source"), "source", "attempts") == {
        "198.51.100.1": (8,),
        "198.51.100.2": (1,),
        "(unknown)": (1,),
    }
    assert _by(deliverability(given["senders"], "senderdomain"), "senderdomain", *_OUTCOMES) == {
        "sender.example": (9, 5, 2, 1, 1),
        "(null sender)": (1, 0, 0, 1, 0),
    }


def test_outcomes_are_counted_by_campaign_and_by_the_provider_of_the_host(spark: SparkSession) -> None:
    from scripts.analytics.analyses.deliverability import deliverability  # noqa: PLC0415

    given = rolled(
        spark,
        attempts(
            {"jobid": "spring", "remote": "aspmx.l.Google.com[192.0.2.1]:25", "times": 2},
            {"jobid": "spring", "remote": "alt1.google.com[2001:db8::1]:25", "outcome": "failed"},
            {"remote": "mx.mail.example.co.uk[192.0.2.2]:25", "outcome": "deferred"},
            {"remote": "mx.abc.de:25"},
            {"remote": "localhost:2525"},
            {"remote": "192.0.2.1:25"},
            {"remote": "[2001:db8::1]:25"},
            {"remote": None, "outcome": "deferred"},
        ),
    )
    assert _by(deliverability(given["campaigns"], "jobid"), "jobid", *_OUTCOMES) == {
        "(none)": (6, 4, 2, 0, 0),
        "spring": (3, 2, 0, 1, 0),
    }
    assert _by(deliverability(given["days"], "provider"), "provider", *_OUTCOMES) == {
        "google.com": (3, 2, 0, 1, 0),
        "(no host name)": (3, 2, 1, 0, 0),
        "abc.de": (1, 1, 0, 0, 0),
        "example.co.uk": (1, 0, 1, 0, 0),
        "localhost": (1, 1, 0, 0, 0),
    }


def test_each_step_has_its_delivered_share_and_the_total_reached(given: dict[str, DataFrame]) -> None:
    from scripts.analytics.analyses.steps import steps  # noqa: PLC0415

    found = tuples(steps(given["tries"]), "step", "attempts", "delivered", "delivered_share", "reached")
    assert found == [(1, 8, 4, 0.5, 0.8), (2, 2, 1, 0.5, 1.0)]


def test_tls_shares_are_those_of_delivered_mail_by_version_and_verification(given: dict[str, DataFrame]) -> None:
    from scripts.analytics.analyses.encryption import encryption, in_the_clear  # noqa: PLC0415

    assert tuples(encryption(given["destinations"]), "tls", "delivered", "share") == [
        ("TLSv1.3 verified", 3, 0.6),
        ("TLSv1.2", 1, 0.2),
        ("none", 1, 0.2),
    ]
    clear = tuples(in_the_clear(given["destinations"]), "recipientdomain", "plain", "delivered", "share")
    assert clear == [("example.net", 1, 1, 1.0)]


def test_a_partition_weighs_the_seconds_of_its_tries_without_jumped_clocks(given: dict[str, DataFrame]) -> None:
    from scripts.analytics.analyses.weights import weights  # noqa: PLC0415

    found = tuples(weights(given["tries"]), "partid", "attempts", "seconds", "share")
    assert found == [("1", 8, 11.0, 0.55), ("2", 1, 9.0, 0.45), ("(unknown)", 1, 0.0, 0.0)]


def test_a_lake_without_newer_columns_is_read(spark: SparkSession, tried: pa.Table) -> None:
    from scripts.analytics.analyses.encryption import encryption  # noqa: PLC0415

    older = rolled(spark, tried.drop_columns(["tls", "source"]))
    assert tuples(encryption(older["destinations"]), "tls", "share") == [("(unknown)", 1.0)]
