"""test-source — Spark reads only the needed history from PostgreSQL, in short transactions"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pyspark.errors import PySparkException
from pyspark.sql import datasource

from scripts.analytics.source import copying, source
from scripts.analytics.source.columns import ATTEMPTS
from shared.errors import DatabaseUnavailable, PillarboxError
from shared.postgres.queries import query
from tests.fixtures.analytics.lake import ask, late, today

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.fixtures.servers.postgres import ServerUnderTest

pytestmark = pytest.mark.slow


def reader(uri: str, **options: Any) -> source.HistoryReader:
    """A reader of two columns, as Spark makes it."""
    named = {name: str(value) for name, value in options.items()}
    return source.HistoryReader({"database": uri, "table": "attempts"} | named, ["id", "outcome"])


def yesterday() -> datetime:
    return datetime.combine(today() - timedelta(days=1), datetime.min.time(), UTC)


def test_spark_sees_every_row_and_answers_as_postgresql_does(spark: SparkSession, history_database: str) -> None:
    frame = source.frame(spark, history_database, "attempts", ["outcome", "ts", "recipientdomain", "tls"])
    assert frame.count() == ask(history_database, "SELECT count(*) FROM pillarbox.attempts")
    noon = yesterday() + timedelta(hours=12)
    wanted = (frame.ts >= noon) & (frame.outcome == "delivered") & (frame.recipientdomain != "d1.example")
    condition = f"ts >= '{noon.isoformat()}' AND outcome = 'delivered' AND recipientdomain <> 'd1.example'"
    counted = f"SELECT count(*) FROM pillarbox.attempts WHERE {condition}"  # noqa: S608 - ours
    assert frame.where(wanted).count() == ask(history_database, counted)


def test_only_the_requested_columns_are_read(history_database: str) -> None:
    asked = reader(history_database)
    batches = list(asked.read(asked.partitions()[-3]))
    assert all(batch.schema.names == ["id", "outcome"] for batch in batches)


def test_a_filter_on_time_skips_whole_days(history_database: str) -> None:
    everything = len(reader(history_database).partitions())
    asked = reader(history_database)
    rest = list(asked.pushFilters([datasource.GreaterThanOrEqual(("ts",), yesterday())]))
    assert rest == []
    assert len(asked.partitions()) < everything
    assert all(portion.value.day >= yesterday().date() for portion in asked.partitions())


@pytest.mark.parametrize(
    "kept",
    [
        datasource.GreaterThan(("recipientdomain",), "m"),  # the order of text is the collation's
        datasource.EqualTo(("duration",), 1.0),
        datasource.EqualTo(("messages__id",), "no uuid"),
        datasource.StringContains(("reply_text",), "x"),
    ],
)
def test_filters_with_another_meaning_in_postgresql_are_left_to_spark(
    history_database: str, kept: datasource.Filter
) -> None:
    assert list(reader(history_database).pushFilters([kept])) == [kept]


def test_a_column_missing_in_the_database_is_null(history_database: str) -> None:
    with psycopg.connect(history_database, autocommit=True) as connection:
        for name in ("tls", "source"):
            connection.execute(f"ALTER TABLE pillarbox.attempts DROP COLUMN IF EXISTS {name}".encode())
    asked = source.HistoryReader({"database": history_database, "table": "attempts"}, ["tls", "id"])
    condition = datasource.IsNotNull(("tls",))
    assert list(asked.pushFilters([condition])) == [condition]
    [batch] = [batch for portion in asked.partitions() for batch in asked.read(portion)][:1]
    assert batch.column(0).null_count == batch.num_rows > 0


def test_a_day_dropped_during_a_read_is_an_error_or_reported(
    history_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    strict, lenient = reader(history_database), reader(history_database, dropped="skip")
    portion = next(portion for portion in strict.partitions() if portion.value.day == yesterday().date())
    with psycopg.connect(history_database, autocommit=True) as connection:
        connection.execute(f"DROP TABLE pillarbox.attempts_{yesterday():%Y%m%d}".encode())

    with pytest.raises(Exception, match="was dropped during the read"):
        list(strict.read(portion))
    assert list(lenient.read(portion)) == []
    assert "skipped" in capsys.readouterr().err


def test_no_transaction_is_open_while_spark_works_on_a_portion(history_database: str) -> None:
    asked = reader(history_database)
    reading = (batch for portion in asked.partitions() for batch in asked.read(portion))
    assert next(reading).num_rows > 0
    ours = "application_name = 'pillarbox analytics' AND xact_start IS NOT NULL"
    assert ask(history_database, f"SELECT count(*) FROM pg_stat_activity WHERE {ours}") == 0  # noqa: S608 - ours


def test_a_read_only_role_is_enough(spark: SparkSession, server: ServerUnderTest, history_database: str) -> None:
    if not ask(history_database, "SELECT count(*) FROM pg_roles WHERE rolname = 'pillarbox_analyst'"):
        pytest.skip("roles are left out here")
    administrator = server.administrator_of(str(conninfo_to_dict(history_database)["dbname"]))
    as_analyst = f"{administrator}&options=-c%20role%3Dpillarbox_analyst"
    late(history_database, 1)
    assert source.frame(spark, as_analyst, "attempts", ["id"], since=date(2020, 1, 1)).count() > 0


def test_an_unknown_column_is_reported_with_the_allowed_ones(spark: SparkSession, history_database: str) -> None:
    options = {"database": history_database, "table": "attempts"}
    with pytest.raises(PySparkException, match="attempts: column colour does not exist; allowed: id, ts"):
        spark.read.format("pillarbox").schema("colour string").options(**options).load().count()


def test_every_column_of_the_table_is_known(history_database: str) -> None:
    names = ask(
        history_database,
        "SELECT string_agg(attname, ',') FROM pg_attribute "
        "WHERE attrelid = 'pillarbox.attempts'::regclass AND attnum > 0 AND NOT attisdropped",
    )
    assert set(names.split(",")) <= set(ATTEMPTS.kinds)


@pytest.mark.parametrize(
    ("selected", "kind"),
    [
        ("pg_terminate_backend(pg_backend_pid())", DatabaseUnavailable),  # perhaps a replica that is in the way
        ("1 / (500000 - n) FROM generate_series(1, 1000000) n", PillarboxError),  # after half of the rows were sent
    ],
)
def test_an_aborted_copy_is_temporary_or_permanent(
    history_database: str, monkeypatch: pytest.MonkeyPatch, selected: str, kind: type[PillarboxError]
) -> None:
    broken = f"COPY (SELECT {selected}) TO STDOUT"
    monkeypatch.setattr(copying, "query", lambda name: broken if name == "broken" else query(name))
    with pytest.raises(PillarboxError) as raised, copying.session(history_database) as connection:
        copying.listing(connection, "broken")
    assert type(raised.value) is kind


def test_a_read_that_lasts_too_long_is_ended_and_says_when_to_repeat_it(
    history_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "COPY (SELECT pg_sleep(60)) TO STDOUT"
    monkeypatch.setattr(copying, "query", lambda name: slow if name == "slow" else query(name))
    ended = "PostgreSQL ended a statement: canceling statement due to statement timeout; repeat the command when"
    with (
        pytest.raises(DatabaseUnavailable, match=ended),
        copying.session(history_database, timeout=timedelta(milliseconds=100)) as connection,
    ):
        copying.listing(connection, "slow")
