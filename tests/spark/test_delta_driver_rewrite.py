"""A table of a few kilobytes is written again in the driver: it is as after the MERGE statement."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.java_errors import SPARK_ERRORS
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.sink import delta_driver_rewrite
from tailrace.spark_consumer.sink.delta_driver_rewrite import KnownRows, rewrite_in_driver
from tailrace.spark_consumer.sink.delta_log import is_conflict
from tailrace.spark_consumer.sink.statements import SOURCE
from tailrace.spark_consumer.sink.target_table import TargetTable
from tailrace.spark_consumer.small_data import with_settings
from tests.spark.records import connect, table_schema
from tests.spark.running import count_jobs
from tests.spark.test_delta_small_merge import FIELDS, METADATA, SCHEMA, changes, content, created, some_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.sink.delta_table import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "key",
    [
        ("id", "text"),
        *(pytest.param(key, marks=pytest.mark.long) for key in (("id",), ("day", "number"), ("data", "at"))),
    ],
    ids="-".join,
)
def test_as_merge(spark: SparkSession, tmp_path: Path, key: tuple[str, ...]) -> None:
    """Updates, deletes, inserts and late changes of random keys, each batch both ways."""
    schema = replace(SCHEMA, key=key)
    merged, rewritten = (created(spark, tmp_path / name, schema) for name in ("merged table", "small%table"))
    known = KnownRows()
    for seed in range(3):
        rows = some_rows(random.Random(seed), schema, 30)
        batch = changes(merged, schema, rows)
        batch.rows.createOrReplaceTempView(SOURCE)
        with with_settings(spark, merged.commit_settings(METADATA)):
            TargetTable.merge(merged, batch)
        given = changes(rewritten, schema, rows)
        before = count_jobs(spark)
        assert rewrite_in_driver(rewritten.transaction(spark), given, known)
        assert count_jobs(spark) - before == 1  # it reads the batch
        assert content(rewritten) == content(merged)
    spark.catalog.dropTempView(SOURCE)

    history = spark.sql(f"DESCRIBE HISTORY {rewritten.sql_name}").collect()
    assert {(row["operation"], row["userMetadata"]) for row in history[:-1]} == {("STREAMING UPDATE", METADATA)}
    assert int(history[0]["operationMetrics"]["numOutputRows"]) == len(content(rewritten))


def test_the_file_is_as_one_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Names and types of its columns, its statistics; a column whose name needs a mapping is stored under another."""
    schema = table_schema("p", "t", *FIELDS, ConnectField("a b", connect("string")))
    whole, rewritten = (created(spark, tmp_path / name, schema) for name in ("whole", "rewritten"))
    rows = [(*row[:-2], f"{number}", *row[-2:]) for number, row in enumerate(some_rows(random.Random(1), SCHEMA, 30))]
    given = changes(rewritten, schema, rows)
    stays = given.rows.where(f"NOT {DELETED_COLUMN}").drop(DELETED_COLUMN)
    whole.append(stays.coalesce(1), METADATA)
    assert rewrite_in_driver(rewritten.transaction(spark), given, KnownRows())

    assert only_file(spark, rewritten) == only_file(spark, whole)
    # Delta reads what is left after a row is marked as deleted.
    for table in (rewritten, whole):
        spark.sql(f"DELETE FROM {table.sql_name} WHERE id = {rows[0][0]}")
        later = changes(table, schema, [(*rows[0][:-2], 100, False)])
        assert rewrite_in_driver(table.transaction(spark), later, KnownRows())
    assert content(rewritten) == content(whole)


def only_file(spark: SparkSession, table: DeltaTable) -> Any:
    """Return the statistics and the columns of the only file of a table, under the names that the table has."""
    (file,) = table.transaction(spark).files(1) or ()
    found = json.loads(file.action.json())["add"]
    schema = spark.read.parquet(str(Path(table.name) / found["path"])).schema
    text = json.dumps([json.loads(found["stats"]), schema.jsonValue()])
    fields: list[dict[str, Any]] = []

    def keep(found: dict[str, Any]) -> dict[str, Any]:
        fields.append(found)
        return found

    json.loads(table.transaction(spark).metadata["schemaString"], object_hook=keep)
    for field in fields:
        if "metadata" in field:
            text = text.replace(field["metadata"]["delta.columnMapping.physicalName"], field["name"])
    return json.loads(text)


def test_what_others_commit_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    """The rows that are known are those of one version of one table."""
    schema = table_schema("p", "t")
    table = created(spark, tmp_path / "t", schema)
    known = KnownRows()

    def write(*rows: tuple[Any, ...], before: Callable[[], object] = lambda: None) -> None:
        transaction = table.transaction(spark)
        before()
        assert rewrite_in_driver(transaction, changes(table, schema, rows), known)

    def names() -> dict[int, str]:
        return {row["id"]: row["name"] for row in table.rows().collect()}

    write((1, "a", 1, False), (2, "b", 1, False))
    spark.sql(f"UPDATE {table.sql_name} SET name = 'theirs' WHERE id = 2")
    write((1, "c", 2, False))
    assert names() == {1: "c", 2: "theirs"}

    other = changes(table, schema, [(3, "appended", 1, False)]).rows.drop(DELETED_COLUMN)
    with pytest.raises(SPARK_ERRORS) as caught:
        write((1, "d", 3, False), before=lambda: table.append(other, METADATA))
    assert is_conflict(caught.value)
    write((1, "e", 4, False))
    assert names() == {1: "e", 2: "theirs", 3: "appended"}
    write((1, "f", 5, False), (2, None, 5, True), (3, None, 5, True))
    assert names() == {1: "f"}

    write((1, None, 6, True))
    assert table.has_no_files
    write((1, "late", 5, False), (2, "x", 7, False))
    assert names() == {1: "late", 2: "x"}


def test_tables_and_batches_that_are_left_to_queries(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = table_schema("p", "t")
    table = created(spark, tmp_path / "t", schema)

    def fits(*rows: tuple[Any, ...]) -> bool:
        return rewrite_in_driver(table.transaction(spark), changes(table, schema, rows), KnownRows())

    def fits_after(change: str, undo: str) -> bool:
        table.alter(change)
        try:
            return fits((1, "a", 2, False))
        finally:
            table.alter(undo)

    assert fits((1, "a", 1, False))
    # The statement decides which change of a key counts, and about rows without a sequence.
    assert not fits((1, "a", 2, False), (1, "b", 3, False))
    spark.sql(f"INSERT INTO {table.sql_name} (id, name) VALUES (7, 'theirs')")
    assert not fits((7, "a", 2, False))
    assert fits((1, "a", 2, False))
    for name in ("delta.enableChangeDataFeed", "delta.autoOptimize.optimizeWrite"):
        assert not fits_after(f"SET TBLPROPERTIES ('{name}' = 'true')", f"UNSET TBLPROPERTIES ('{name}')")
    assert not fits_after("ADD CONSTRAINT few CHECK (id < 100)", "DROP CONSTRAINT few")
    monkeypatch.setattr(delta_driver_rewrite, "MOST_ROWS", 1)
    assert not fits((1, "a", 3, False))


def test_rows_of_few_tables_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """A table whose rows had to make room is read again."""
    schema, known = table_schema("p", "t"), KnownRows(most_bytes=1)
    table = created(spark, tmp_path / "t", schema)
    jobs = []
    for position, name in enumerate("abc", 1):
        batch, before = changes(table, schema, [(1, name, position, False)]), count_jobs(spark)
        assert rewrite_in_driver(table.transaction(spark), batch, known)
        jobs.append(count_jobs(spark) - before)
        assert known.of(table.transaction(spark).table_id) is None
    assert jobs == [1, 2, 2]
    assert [row["name"] for row in table.rows().collect()] == ["c"]
