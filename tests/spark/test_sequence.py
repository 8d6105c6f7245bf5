"""The sequence as a Spark expression and in plain Python: both order binlog files by their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as fn

from tailrace.schemas.sequence import Sequence, file_number
from tailrace.spark_consumer.source.types import sequence_column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_orders_binlog_files_like_the_contract(spark: SparkSession) -> None:
    files = ["binlog.000001", "binlog.999999", "binlog.1000000", "a.b.c.000012"]
    columns = "event string, source struct<file string, pos bigint, row bigint>"
    records = spark.createDataFrame([("2.7", (file, 4, 3)) for file in files], columns)

    rows = records.select(sequence_column(fn.col("event"), fn.col("source")).alias("seq")).collect()

    assert [tuple(row.seq) for row in rows] == [Sequence(2, file_number(file), 4, 7, 3) for file in files]


@pytest.mark.parametrize(
    ("header", "epoch", "event"),
    [
        ("1.0", 1, 0),
        ("12.345", 12, 345),
        ("1.2.3", 1, 2),
        ("1", 1, None),
        ("1.", 1, None),
        (".2", None, 2),
        ("", None, None),
        ("x.y", None, None),
        ("é.2", None, 2),
        (None, None, None),
    ],
)
def test_header_that_is_not_complete_gives_null(
    spark: SparkSession, header: str | None, epoch: int | None, event: int | None
) -> None:
    columns = "event string, source struct<file string, pos bigint, row bigint>"
    records = spark.createDataFrame([(header, ("binlog.000001", 4, 3))], columns)

    [row] = records.select(sequence_column(fn.col("event"), fn.col("source")).alias("seq")).collect()

    assert (row.seq.epoch, row.seq.event) == (epoch, event)
