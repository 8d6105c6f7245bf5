"""The cost of a batch follows its changes and not the size of its Delta table; no servers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pytest
from pyspark.sql import functions as fn
from structlog.testing import capture_logs

from tailrace.spark_consumer import config
from tailrace.spark_consumer.normalize.key_ranges import KeyRange, joined, key_ranges, predicate
from tailrace.spark_consumer.normalize.split_progress import summarize
from tailrace.spark_consumer.sink import delta_sink
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.plugin import load_sink
from tailrace.spark_consumer.sink.table_names import location, quote
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange
from tailrace.spark_consumer.source.watermarks import SnapshotRuns
from tests.spark.records import table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES, CHANGES = 20, 10_000
SCHEMA = table_schema("p", "t")


class NoRecords:
    """A control topic without records."""

    def poll_fields(self, *_arguments: Any) -> list[Any]:
        """Return no records."""
        return []


def sequence(pos: int) -> Any:
    """Return the sequence of a position."""
    names = {"epoch": 1, "file": 1, "pos": pos, "event": 0, "row": 0}
    return fn.struct(*(fn.lit(value).cast("bigint").alias(name) for name, value in names.items()))


def opened(spark: SparkSession, work: Path, **changes: str) -> Any:
    """Return the Delta sink of a query."""
    given = {
        "bootstrap.servers": "unused:1",
        "topic.prefix": "p",
        "checkpointLocation": str(work / "checkpoint"),
        "sink": "delta",
        "sink.path": str(work / "tables"),
        **changes,
    }
    runs = SnapshotRuns(NoRecords())  # type: ignore[arg-type]
    context = SinkContext(query_id="q", prefix="p", client={}, runs=runs)
    return load_sink("delta").open(spark, config.parse(given).sink_options, context)


def batch_of(keys: DataFrame, pos: int) -> DataFrame:
    """Return decoded updates and inserts of the keys ``id``."""
    row = fn.struct("id", fn.concat(fn.lit("new "), fn.col("id").cast("string")).alias("name"))
    return keys.select(
        fn.lit(0).alias("partition"),
        fn.col("id").alias("offset"),
        fn.col("id").cast("string").cast("binary").alias("key"),
        fn.lit(None).cast("string").alias("split"),
        fn.lit(False).alias("incremental"),
        sequence(pos).alias("seq"),
        fn.lit("u").alias("op"),
        fn.lit(1).cast("bigint").alias("ts_ms"),
        fn.lit(None).cast("bigint").alias("checksum"),
        fn.struct("id").alias("before"),
        row.alias("after"),
    )


def table_batch(records: DataFrame, number: int) -> TableBatch:
    """Return a batch of records."""
    offsets = {0: OffsetRange(number * 10**9, (number + 1) * 10**9)}
    return TableBatch(SCHEMA, records, summarize(records), TopicRange(SCHEMA.topic, offsets))


@contextmanager
def hidden(files: list[Path]) -> Iterator[None]:
    """Take files away: reading one of them fails."""
    for file in files:
        file.rename(file.with_suffix(".hidden"))
    try:
        yield
    finally:
        for file in files:
            file.with_suffix(".hidden").rename(file)


def files_of(spark: SparkSession, path: str) -> dict[Path, tuple[int, int]]:
    """Return the data files of a table with their least and greatest ids."""
    table = spark.read.format("delta").load(path).groupBy(fn.input_file_name().alias("file"))
    rows = table.agg(fn.min("id").alias("low"), fn.max("id").alias("high")).collect()
    return {Path(unquote(urlparse(row["file"]).path)): (row["low"], row["high"]) for row in rows}


@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.long), pytest.param(10_000_000, marks=pytest.mark.long)]
)
def test_a_batch_reads_the_files_of_its_keys_only(
    spark: SparkSession, tmp_path: Path, rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Changes at both ends of the table, and new rows: the files between them are not there."""
    spark = spark.newSession()
    path = str(tmp_path / "tables" / "shop" / "t")
    sink = opened(spark, tmp_path)
    sink.prepare_table(SCHEMA)
    sink.write_batch(table_batch(batch_of(spark.range(0), 1), 0), 0)
    old = spark.range(rows).select("id", fn.lit("old").alias("name"), sequence(1).alias("_seq"))
    old.repartitionByRange(FILES, "id").write.format("delta").mode("append").save(path)
    half, third = CHANGES // 2, CHANGES // 4
    keys = spark.range(half).union(spark.range(rows - third, rows + third)).repartition(1)
    records = batch_of(keys, 2).persist()
    low, high = (0, half - 1), (rows - third, rows + third - 1)

    ranges = key_ranges(records, SCHEMA)
    before = files_of(spark, path)
    touched = [file for file, (a, b) in before.items() if any(a <= y and b >= x for x, y in (low, high))]
    untouched = sorted(set(before) - set(touched))
    with hidden(untouched):
        started = time.monotonic()
        sink.write_batch(table_batch(records, 1), 1)
        seconds = time.monotonic() - started
    with capsys.disabled():
        sys.stdout.write(f" {CHANGES} changes to {rows} rows: {seconds:.1f} s ")

    assert len(untouched) >= FILES - 3
    assert all(b - a <= 2 * half for a, b in ranges[0].intervals)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").where("operation = 'MERGE'").collect()
    metrics = history[0]["operationMetrics"]
    assert int(metrics["numSourceRows"]) == CHANGES
    assert int(metrics["numTargetFilesRemoved"]) <= len(touched)
    table = spark.read.format("delta").load(path)
    assert table.count() == rows + third
    assert table.where("name LIKE 'new %'").count() == CHANGES


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_query_compacts_small_files_by_key(spark: SparkSession, tmp_path: Path) -> None:
    spark = spark.newSession()
    path = str(tmp_path / "tables" / "shop" / "t")
    sink = opened(spark, tmp_path, **{"sink.optimize.batches": "2"})
    sink.prepare_table(SCHEMA)

    for batch_id in range(4):
        keys = spark.range(600 * batch_id, 600 * batch_id + 600).repartition(8)
        sink.write_batch(table_batch(batch_of(keys, 1 + batch_id), batch_id), batch_id)
        sink.tend(spark)

    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").where("operation = 'OPTIMIZE'").collect()
    assert len(history) >= 2  # the versions that it makes itself count
    assert "id" in history[0]["operationParameters"]["clusterBy"]
    assert len(files_of(spark, path)) == 1
    assert spark.read.format("delta").load(path).count() == 2400


def live_files(path: Path) -> dict[str, dict[str, Any]]:
    """Return the ``add`` actions of the files of a table."""
    files: dict[str, dict[str, Any]] = {}
    for log in sorted((path / "_delta_log").glob("*.json")):
        for line in log.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
        for line in log.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
    return files


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_query_purges_deletion_vectors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a fifth of the rows was changed, also those in files that OPTIMIZE leaves alone."""
    # Each clustered set of files is a large one.
    name = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize."
    monkeypatch.setitem(delta_sink._OPTIONS, f"{name}threshold", "1")
    monkeypatch.setitem(delta_sink._OPTIONS, f"{name}targetCubeSize", "1")
    spark = spark.newSession()
    path = tmp_path / "tables" / "shop" / "t"
    sink = opened(spark, tmp_path, **{"sink.optimize.batches": "1", "sink.purge.percent": "20"})
    sink.prepare_table(SCHEMA)
    for number in range(2):
        keys = spark.range(500 * number, 500 * number + 500)
        sink.write_batch(table_batch(batch_of(keys, 1 + number), number), number)
    assert sink.tend(spark)
    with_vectors = []
    for number, rows in enumerate((100, 90, 20), 2):
        sink.write_batch(table_batch(batch_of(spark.range(rows), 1 + number), number), number)
        assert sink.tend(spark)
        with_vectors.append([each["path"] for each in live_files(path).values() if each.get("deletionVector")])

    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").where("operation = 'REORG'").collect()
    assert (len(history), [bool(found) for found in with_vectors]) == (1, [True, True, False])
    table = spark.read.format("delta").load(str(path))
    assert (table.count(), table.where("name = 'new 5'").count()) == (1000, 1)


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_table_that_cannot_be_optimized_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """A task of OPTIMIZE fails, as each task of REORG does on a cluster; the batch is written before."""
    spark = spark.newSession()
    path = str(tmp_path / "tables" / "shop" / "t")
    sink = opened(spark, tmp_path)
    sink.prepare_table(SCHEMA)
    for number in range(2):
        keys = spark.range(9000 * number, 9000 * number + 600)
        sink.write_batch(table_batch(batch_of(keys, 1 + number), number), number)
    table = DeltaTable(spark, location("shop", "t", path=str(tmp_path / "tables"), template=None))

    with capture_logs() as logs, hidden(sorted(files_of(spark, path))):
        upkeep = delta_sink.DeltaUpkeep(1, 0, vacuum=False)
        upkeep.after_batch(table)
        assert upkeep.tend(spark, lambda _: nullcontext())

    assert [entry["log_level"] for entry in logs] == ["warning"]


def test_intervals_are_joined_over_the_smallest_gaps() -> None:
    parts = [(50, 60), (1, 2), (4, 5), (100, 100)]

    assert joined(parts, 3) == [(1, 5), (50, 60), (100, 100)]
    assert joined(parts, 9) == sorted(parts)
    assert joined(parts, 1) == [(1, 100)]
    condition = predicate([KeyRange("id", ((1, 5), (9, 9)))], "t", quote)
    assert condition == (
        "(t.`id` BETWEEN CAST('1' AS BIGINT) AND CAST('5' AS BIGINT)"
        " OR t.`id` BETWEEN CAST('9' AS BIGINT) AND CAST('9' AS BIGINT))"
    )
