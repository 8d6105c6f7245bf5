"""From the real server through the real producer into each sink: the target equals the source."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from pyspark.sql import functions as fn

from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS
from tests.spark.running import consume, settings
from tests.support.captured_source import KEYS, SPARK_TYPES, CapturedSource, Rows
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)


def given(source: CapturedSource, work: Path, sink: str = "delta", **changes: object) -> dict[str, str]:
    """Return a configuration that reads everything in at least two batches."""
    offsets = sum(len(rows) for rows in source.tables.values())  # each row is written once or more
    return settings(source.broker, source.prefix, work, sink=sink, **{"maxOffsetsPerTrigger": offsets, **changes})


def rows_of(frame: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield rows with the values that the driver of MySQL gives; times without a zone are in UTC."""
    columns = [fn.col(n).cast("timestamp_ntz") if kind == "timestamp" else fn.col(n) for n, kind in frame.dtypes]
    for row in frame.select(*columns).collect():
        values = {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.asDict().items()}
        yield values


def table_rows(frame: DataFrame, table: str, declared: str) -> Rows:
    """Return the rows of a table by key; a duplicate key and other types than those declared are errors."""
    frame = frame.drop("_seq")
    types = frame.sparkSession.createDataFrame([], declared).schema
    assert {each.name: each.dataType for each in frame.schema} == {each.name: each.dataType for each in types}
    rows = list(rows_of(frame))
    found = {tuple(row[name] for name in KEYS[table]): row for row in rows}
    assert len(found) == len(rows), f"{table} has a key twice"
    return found


def delta_rows(spark: SparkSession, source: CapturedSource, work: Path, table: str) -> Rows:
    """Return the rows of a Delta table by key."""
    frame = spark.read.format("delta").load(str(work / "tables" / source.database / table))
    return table_rows(frame, table, SPARK_TYPES[table])


def applied(entries: Iterable[tuple[str, dict[str, Any]]], table: str) -> Rows:
    """Apply a changelog; every entry must fit the row that its key has."""
    found: Rows = {}
    for kind, row in entries:
        key = tuple(row[name] for name in KEYS[table])
        if kind == "+I":
            assert key not in found, f"{table} {key} is inserted twice"
        elif kind in {"-U", "-D"}:
            before = {name: value for name, value in row.items() if name in found[key]}
            assert before == found[key], f"{table} {key}: {kind} of another row"
        if kind in {"+I", "+U"}:
            found[key] = row
        elif kind in {"-D", "-U"}:
            del found[key]
    return found


def parsed(spark: SparkSession, entries: Iterable[tuple[str, str]], table: str) -> list[tuple[str, dict[str, Any]]]:
    """Parse the JSON rows of a changelog."""
    texts = list(entries)
    if not texts:
        return []
    frame = spark.createDataFrame([(text,) for _, text in texts], "text STRING")
    row = fn.from_json("text", SPARK_TYPES[table], {**JSON_OPTIONS, "mode": "FAILFAST"})
    rows = rows_of(frame.select(row.alias("row")).select("row.*"))
    return [(kind, each) for (kind, _), each in zip(texts, rows, strict=True)]


def test_delta_tables_equal_the_source(spark: SparkSession, source: CapturedSource, tmp_path: Path) -> None:
    status = consume(spark, given(source, tmp_path))

    for table, expected in source.tables.items():
        assert delta_rows(spark, source, tmp_path, table) == expected, table
    assert status.as_dict()["batch"] >= 1


def test_iceberg_tables_equal_the_source(spark: SparkSession, source: CapturedSource, tmp_path: Path) -> None:
    names = f"iceberg.{tmp_path.name}_{abs(hash(str(tmp_path)))}.{{table}}"
    consume(spark, given(source, tmp_path, sink="iceberg", **{"sink.table": names}))

    for table, expected in source.tables.items():
        frame = spark.read.table(names.format(table=table))
        # Iceberg has no SMALLINT.
        assert table_rows(frame, table, SPARK_TYPES[table].replace("SMALLINT", "INT")) == expected, table


def test_changelog_files_describe_the_source(spark: SparkSession, source: CapturedSource, tmp_path: Path) -> None:
    consume(spark, given(source, tmp_path, sink="parquet"))

    for table, expected in source.tables.items():
        path = tmp_path / "tables" / source.database / table
        entries = []
        if expected:
            found = spark.read.option("mergeSchema", "true").parquet(str(path))
            ordered = found.orderBy("_seq", "_partition", "_offset", "_part")
            kinds = [each["_kind"] for each in ordered.select("_kind").collect()]
            columns = [name for name in found.columns if name[:1] != "_" and not name.startswith("tailrace_")]
            entries = list(zip(kinds, rows_of(ordered.select(*columns)), strict=True))
        assert applied(entries, table) == expected, table


def test_changelog_topics_describe_the_source(spark: SparkSession, source: CapturedSource, tmp_path: Path) -> None:
    topics = f"{tmp_path.name}.{{table}}"
    consume(spark, given(source, tmp_path, sink="kafka", **{"sink.topic": topics}))

    for table, expected in source.tables.items():
        records = read_topic(source.broker.bootstrap, topics.format(table=table)) if expected else []
        bodies = [orjson.loads(record.value or b"") for record in records]
        entries = [(body["op"], orjson.dumps(body["data"]).decode()) for body in bodies]
        assert applied(parsed(spark, entries, table), table) == expected, table


def test_console_prints_the_changelog(spark: SparkSession, source: CapturedSource, tmp_path: Path) -> None:
    output = io.StringIO()
    with redirect_stdout(output):
        consume(spark, given(source, tmp_path, sink="console", **{"sink.numRows": 100_000}))

    printed = [line.split(" ", 2) for line in output.getvalue().splitlines()]
    for table, expected in source.tables.items():
        entries = [(line[1], line[2]) for line in printed if line[0] == source.topic(table)]
        assert applied(parsed(spark, entries, table), table) == expected, table
