"""Upkeep of Delta tables: short runs, tables of one file, old files; and rows that survive a lost executor."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as fn
from structlog.testing import capture_logs

from tailrace.spark_consumer.sink.versions import kept_rows
from tests.spark.test_delta_scale import SCHEMA, batch_of, files_of, opened, table_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def operations(spark: SparkSession, path: Path) -> list[str]:
    """Return the operations in the history of a table."""
    return [row["operation"] for row in spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_short_runs_tend_their_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Each run writes one batch, as with the trigger availableNow."""
    spark, path = spark.newSession(), tmp_path / "tables" / "shop" / "t"
    for number in range(8):
        sink = opened(spark, tmp_path, **{"sink.optimize.batches": "3"})
        sink.applied(SCHEMA)
        sink.prepare_table(SCHEMA)
        # Too many rows for a table that is written again in each batch.
        keys = spark.range(9000 * number, 9000 * number + 9000)
        sink.write_batch(table_batch(batch_of(keys, 1 + number), number), number)
        while sink.tend(spark):
            pass

    assert operations(spark, path).count("OPTIMIZE") >= 2
    assert len(files_of(spark, str(path))) < 4


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("vacuum", ["true", "false"])
def test_table_of_one_file_only_loses_its_old_files(spark: SparkSession, tmp_path: Path, vacuum: str) -> None:
    spark, path = spark.newSession(), tmp_path / "tables" / "shop" / "t"
    changes = {
        "sink.optimize.batches": "4",
        "sink.vacuum": vacuum,
        "sink.properties.delta.deletedFileRetentionDuration": "interval 0 hours",
    }
    sink = opened(spark, tmp_path, **changes)
    sink.prepare_table(SCHEMA)
    for number in range(4):
        sink.write_batch(table_batch(batch_of(spark.range(3), 1 + number), number), number)
    assert len(list(path.glob("*.parquet"))) >= 3

    assert sink.tend(spark)
    assert not sink.tend(spark)
    assert "OPTIMIZE" not in operations(spark, path)
    assert (len(list(path.glob("*.parquet"))) == 1) == (vacuum == "true")
    assert spark.read.format("delta").load(str(path)).count() == 3


def test_rows_survive_a_lost_cache(spark: SparkSession) -> None:
    """As when an executor is lost."""
    with kept_rows(spark.range(100).select((fn.col("id") * 2).alias("n"))) as rows:
        assert not rows.isEmpty()
        context: Any = spark.sparkContext
        for number in context._jsc.getPersistentRDDs():
            context._jsc.sc().env().blockManager().master().removeRdd(number, True)
        assert rows.agg(fn.sum("n")).collect()[0][0] == 9900


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_upkeep_waits_for_the_batch_of_its_table(spark: SparkSession, tmp_path: Path) -> None:
    """A table is tended on another thread while the next batches are written."""
    path, ended = tmp_path / "tables" / "shop" / "t", threading.Event()
    sink = opened(spark, tmp_path, **{"sink.optimize.batches": "1", "sink.vacuum": "false"})
    sink.prepare_table(SCHEMA)

    def tend(session: SparkSession) -> int:
        tended = 0
        while not ended.is_set():
            tended += sink.tend(session)
        return tended

    with capture_logs() as logs, ThreadPoolExecutor(1) as pool:
        tended = pool.submit(tend, spark.newSession())
        try:
            for number in range(4):
                keys = spark.range(9000 * number, 9000 * number + 9000).repartition(2)
                sink.write_batch(table_batch(batch_of(keys, 1 + number), number), number)
        finally:
            ended.set()
        assert tended.result() >= 1

    assert [entry for entry in logs if entry["log_level"] == "warning"] == []
    assert spark.read.format("delta").load(str(path)).count() == 36_000
    assert set(operations(spark, path)) >= {"OPTIMIZE", "WRITE"}
