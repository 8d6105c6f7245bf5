"""A small batch is merged into a Delta table without a MERGE statement: the table is as after the statement."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as fn

from tailrace.schemas.connect import ConnectField
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.java_errors import SPARK_ERRORS
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.sink import delta_small
from tailrace.spark_consumer.sink.delta_files import MOST_FILES
from tailrace.spark_consumer.sink.delta_log import is_conflict
from tailrace.spark_consumer.sink.delta_small import MARKED, SMALL, WHOLE, Condition, SmallBatch, merge_small, unmet
from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.statements import SOURCE, RowChanges
from tailrace.spark_consumer.sink.table_names import Location
from tailrace.spark_consumer.sink.target_table import TargetTable
from tailrace.spark_consumer.small_data import with_settings
from tests.spark.records import connect, decimal, table_schema
from tests.spark.running import count_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.spark_consumer.sink.delta_files import DataFile

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

METADATA = '{"tailrace": {}}'
NAN = float("nan")
VALUES: dict[str, tuple[Any, ...]] = {
    "id": tuple(range(12)),
    "text": (None, "", "it's", 'a "b"', "back\\slash", "`x`", "ä €", "a", "A "),
    "number": (Decimal("-1.50"), Decimal("0.00"), Decimal("99999999.99")),
    "ratio": (None, 0.0, -0.0, 1.5, NAN, float("inf")),
    "data": (b"", b"\x00", b"\xff\xfe"),
    "day": (date(1, 1, 1), date(2026, 2, 28), date(9999, 12, 31)),
    "at": (datetime(1970, 1, 1), datetime(2026, 11, 22, 1, 2, 3, 456789)),
}
FIELDS = (
    ConnectField("text", connect("string")),
    ConnectField("number", decimal(10, 2)),
    ConnectField("ratio", connect("double")),
    ConnectField("data", connect("bytes", optional=False)),
    ConnectField("day", connect("int32", optional=False, name="io.debezium.time.Date")),
    ConnectField("at", connect("int64", optional=False, name="io.debezium.time.MicroTimestamp")),
)
SCHEMA = table_schema("p", "t", *FIELDS)


def created(spark: SparkSession, path: Path, schema: TableSchema) -> DeltaTable:
    """Return an empty table."""
    table = DeltaTable(spark, Location.at(str(path)))
    table.create(schema, {})
    return table


def changes(table: DeltaTable, schema: TableSchema, rows: Sequence[tuple[Any, ...]]) -> RowChanges:
    """Return changes: the values of the columns, the position, whether the row is deleted."""
    spark, own = table.rows().sparkSession, [column.name for column in schema.columns]
    columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in table.columns if f.name in own)
    given = spark.createDataFrame(list(rows), f"{columns}, pos BIGINT, {DELETED_COLUMN} BOOLEAN")
    fields = table.columns[SEQUENCE_COLUMN].dataType.names  # type: ignore[attr-defined]
    sequence = ", ".join(f"'{name}', {'pos' if name == 'pos' else '0L'}" for name in fields)
    named = f"named_struct({sequence}) AS {SEQUENCE_COLUMN}"
    # Of cached rows the bytes are known, as of the records of a batch.
    source = given.selectExpr(*(f"`{name}`" for name in own), named, DELETED_COLUMN).persist()
    source.count()
    return RowChanges(schema, own, (), METADATA, len(rows), "q", 1, spark, source, lambda: "")


def some_rows(chosen: random.Random, schema: TableSchema, count: int) -> list[tuple[Any, ...]]:
    """Return changes of different keys."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for _ in range(count):
        row = {"name": chosen.choice("abc"), **{name: chosen.choice(values) for name, values in VALUES.items()}}
        # Spark takes zero and -0.0 for one key, and so does the reduction to one change for each key.
        key = tuple(str(row[name]).removeprefix("-") if name == "ratio" else str(row[name]) for name in schema.key)
        values = tuple(row[column.name] for column in schema.columns)
        found[key] = (*values, chosen.randrange(40), chosen.random() < 0.25)
    return list(found.values())


def content(table: DeltaTable) -> list[str]:
    """Return all rows as texts."""
    return sorted(map(str, table.rows().collect()))


@pytest.mark.parametrize(
    "key",
    [
        ("id", "text", "ratio"),
        *(pytest.param(key, marks=pytest.mark.long) for key in (("id",), ("day", "number"), ("data", "at"), ("text",))),
    ],
    ids="-".join,
)
def test_as_merge(spark: SparkSession, tmp_path: Path, key: tuple[str, ...]) -> None:
    """Updates, deletes, inserts and late changes of random keys, each batch both ways."""
    schema = replace(SCHEMA, key=key)
    merged, small = (created(spark, tmp_path / name, schema) for name in ("merged table", "small%table"))
    for seed in range(2 if len(key) == 3 else 6):
        rows = some_rows(random.Random(seed), schema, 30)
        batch = changes(merged, schema, rows)
        batch.rows.createOrReplaceTempView(SOURCE)
        with with_settings(spark, merged.commit_settings(METADATA)):
            TargetTable.merge(merged, batch)
        assert merge_small(small.transaction(spark), changes(small, schema, rows))
        assert content(small) == content(merged)
    spark.catalog.dropTempView(SOURCE)

    history = spark.sql(f"DESCRIBE HISTORY {small.sql_name}").collect()
    assert {(row["operation"], row["userMetadata"]) for row in history} == {
        ("CREATE TABLE", None),
        ("STREAMING UPDATE", METADATA),
    }


def test_files_without_the_keys_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """A file whose rows are all replaced leaves the table, one with other rows gets a deletion vector."""
    schema = table_schema("p", "t")
    table = created(spark, tmp_path / "t", schema)
    for low in (0, 10, 20):
        merge(table, changes(table, schema, [(key, "old", 1, False) for key in range(low, low + 4)]))
    files = {row[1]: Path(row[0]) for row in table.rows().selectExpr("_metadata.file_path", "id").collect()}
    Path(str(files[10]).removeprefix("file:")).rename(tmp_path / "hidden")

    merge(table, changes(table, schema, [(1, "new", 2, False), (2, "late", 0, False), (3, None, 2, True)]))
    merge(table, changes(table, schema, [(key, None, 2, True) for key in range(20, 24)]))

    (tmp_path / "hidden").rename(str(files[10]).removeprefix("file:"))
    rows = {row["id"]: row["name"] for row in table.rows().collect()}
    assert rows == {0: "old", 1: "new", 2: "old", **dict.fromkeys(range(10, 14), "old")}
    assert len(table.rows().inputFiles()) == 3


def merge(table: DeltaTable, batch: RowChanges) -> None:
    """Merge a batch, not by the statement."""
    assert merge_small(table.transaction(batch.rows.sparkSession), batch)


def test_each_condition(spark: SparkSession, tmp_path: Path) -> None:
    """A table and a batch that do not meet one condition, and meet those before it."""
    schema = table_schema("p", "t")
    tables = iter(range(1000))

    def table_of(
        columns: str = "name STRING", more: str = "", properties: str = "", *, marks: bool = True
    ) -> DeltaTable:
        path = tmp_path / f"t{next(tables)}"
        sequence = given.columns[SEQUENCE_COLUMN].dataType.simpleString()
        named = f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(marks).lower()}'{properties})"
        text = f"id BIGINT, {SEQUENCE_COLUMN} {sequence}, {columns}"
        spark.sql(f"CREATE TABLE delta.`{path}` ({text}) USING delta {more} {named}")
        return DeltaTable(spark, Location.at(str(path)))

    given = created(spark, tmp_path / "given", schema)
    batch = changes(given, schema, [(1, "a", 1, False)])
    large = changes(given, schema, [(key, random.Random(key).randbytes(4000).hex(), 1, False) for key in range(20)])
    filled, by_number = table_of(), replace(schema, key=("r",))
    filled.append(large.rows.drop(DELETED_COLUMN).coalesce(1), METADATA)
    ours = replace(batch, own=[*batch.own, "_tailrace_row"])
    spark.sql(f"CREATE TABLE small_conditions USING delta AS SELECT * FROM {given.sql_name}")
    in_catalog = DeltaTable(spark, Location("small_conditions"))
    cases: dict[tuple[Condition, ...], list[tuple[DeltaTable, RowChanges]]] = {
        SMALL: [
            (in_catalog, batch),
            (given, replace(batch, most=delta_small.MOST_CHANGES + 1)),
            (table_of(properties=", 'delta.enableChangeDataFeed' = 'true'"), batch),
            (table_of("name STRING, of_others STRING"), batch),
            (table_of("name VARCHAR(20)"), batch),
            (table_of("name BIGINT"), batch),
        ],
        MARKED: [
            (table_of(marks=False), batch),
            (given, ours),
        ],
        WHOLE: [
            (given, replace(batch, most=delta_small.FEW_CHANGES + 1)),
            (filled, batch),
            (table_of(more="PARTITIONED BY (name)"), batch),
            (table_of(properties=", 'delta.autoOptimize.optimizeWrite' = 'true'"), batch),
            (table_of("name STRING, r DOUBLE"), replace(batch, schema=by_number, others=["r"])),
        ],
    }
    try:
        for conditions, pairs in cases.items():
            before = () if conditions is SMALL else SMALL
            found = [unmet(SmallBatch(table.transaction(spark), each), (*before, *conditions)) for table, each in pairs]
            assert found == list(conditions[: len(found)])
            assert unmet(SmallBatch(given.transaction(spark), batch), (*before, *conditions)) is None
    finally:
        spark.sql("DROP TABLE small_conditions")
    with with_settings(spark, {"spark.sql.files.maxRecordsPerFile": "7"}):
        assert unmet(SmallBatch(given.transaction(spark), batch), WHOLE) is WHOLE[-1]
    assert [len(each) for each in (*cases, *cases.values())] == [6, 2, 6, 6, 2, 5]


def test_what_is_found_only_when_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = table_schema("p", "t")
    table = created(spark, tmp_path / "t", schema)
    batch = changes(table, schema, [(1, "a", 1, False)])
    rows: DataFrame = batch.rows.drop(DELETED_COLUMN)
    for name, value in (("MOST_BYTES", 0), ("MOST_FILES", -1)):
        with monkeypatch.context() as patched:
            patched.setattr(delta_small, name, value)
            assert not merge_small(table.transaction(spark), batch)
    # A key that two rows have: the MERGE statement decides.
    table.append(rows.unionAll(rows), METADATA)
    assert not merge_small(table.transaction(spark), batch)
    assert table.rows().count() == 2


def test_a_concurrent_change_is_a_conflict(spark: SparkSession, tmp_path: Path) -> None:
    """The batch is then written again, on the new version."""
    schema = table_schema("p", "t")
    table = created(spark, tmp_path / "t", schema)
    merge(table, changes(table, schema, [(1, "a", 1, False), (2, "a", 1, False)]))
    transaction = table.transaction(spark)
    spark.sql(f"DELETE FROM {table.sql_name} WHERE id = 2")
    batch = changes(table, schema, [(1, "b", 2, False)])

    with pytest.raises(SPARK_ERRORS) as caught:
        merge_small(transaction, batch)

    assert is_conflict(caught.value)
    merge(table, batch)
    assert [row["name"] for row in table.rows().collect()] == ["b"]


def test_columns_that_somebody_has_changed_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is left out, and no file has values of another type than the table: the statement casts or fails."""
    schema = table_schema("p", "t")
    table = created(spark, tmp_path / "t", schema)
    batch = changes(table, schema, [(1, "7", 1, False)])
    table.set({"delta.columnMapping.mode": "name"})

    table.alter("DROP COLUMN name")
    assert not merge_small(table.transaction(spark), batch)

    table.alter("ADD COLUMNS (name BIGINT)")
    assert not merge_small(table.transaction(spark), batch)
    assert table.has_no_files


def test_a_table_of_many_files_needs_no_more_jobs(spark: SparkSession, tmp_path: Path) -> None:
    """Delta has the list of some dozen files only; the query knows the files that it has written."""
    schema = table_schema("p", "t")
    with with_settings(spark, {"spark.databricks.delta.allFilesInCrc.thresholdNumFiles": "3"}):
        table = created(spark, tmp_path / "t", schema)
        jobs = []
        for number in range(6):
            rows = [(number - 1, None, number, True), *((10 * number + n, "new", number, False) for n in range(3))]
            batch = changes(table, schema, [*rows, (10 * number - 9, "later", number, False)])
            before = count_jobs(spark)
            merge(table, batch)
            jobs.append(count_jobs(spark) - before)

        known = table.transaction(spark).files(MOST_FILES)
        listed = DeltaTable(spark, Location.at(str(tmp_path / "t"))).transaction(spark).files(100)
        # Somebody else's commit is seen.
        table.append(batch.rows.drop(DELETED_COLUMN).withColumn("id", fn.lit(-1).cast("bigint")).limit(1), METADATA)
        merge(table, changes(table, schema, [(-1, "b", 100, False)]))

    assert known is not None
    assert listed is not None
    assert sorted(map(described, known)) == sorted(map(described, listed))
    assert any("deletionVector" in each for each in map(described, known))
    assert len(listed) == 6
    assert max(jobs[4:]) <= max(jobs[1:3])
    assert [row["name"] for row in table.rows().where("id = -1").collect()] == ["b"]


def described(file: DataFile) -> str:
    """Return what tells the content of a file; two lists of the same files can say differently who changed them."""
    found = json.loads(file.action.json())["add"]
    return json.dumps({name: found.get(name) for name in ("path", "size", "stats", "deletionVector")})
