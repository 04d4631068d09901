"""test-spark-runs — the Java and the PySpark that `make test` provides work together

Guarantees: when an analytics test fails beside a green one here, the analytics are at fault, not the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_spark_counts_rows(spark: SparkSession) -> None:
    assert spark.range(1000).count() == 1000


def test_spark_aggregates_values_computed_by_a_python_worker(spark: SparkSession) -> None:
    from pyspark.sql import functions  # noqa: PLC0415 - loaded only when Spark is up

    domain_of = functions.udf(lambda address: address.rpartition("@")[2])
    addresses = [("ann@example.com",), ("bob@example.com",), ("carol@example.net",)]
    recipients = spark.createDataFrame(addresses, "recipient string")

    counts = recipients.groupBy(domain_of("recipient").alias("domain")).count().orderBy("domain").collect()

    assert [tuple(row) for row in counts] == [("example.com", 2), ("example.net", 1)]


def test_spark_writes_and_reads_parquet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = str(tmp_path_factory.mktemp("parquet") / "attempts")
    spark.range(10).write.parquet(folder)
    assert spark.read.parquet(folder).count() == 10
