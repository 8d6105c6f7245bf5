"""What happens to a small Delta table between two batches that the driver writes: no row is lost, none comes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.java_errors import SPARK_ERRORS
from tailrace.spark_consumer.jvm import java_class
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.sink.delta_driver_rewrite import KnownRows, rewrite_in_driver
from tailrace.spark_consumer.sink.delta_log import is_conflict
from tailrace.spark_consumer.sink.delta_small import REWRITTEN_BYTES, REWRITTEN_FILES, merge_small
from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.table_names import Location
from tailrace.spark_consumer.small_data import with_settings
from tests.spark.records import connect, decimal, table_schema
from tests.spark.running import count_jobs
from tests.spark.test_delta_small_merge import METADATA, changes, created

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SCHEMA = table_schema("p", "t")


class Written:
    """A table, and what one query knows of it."""

    def __init__(self, table: DeltaTable, schema: TableSchema = SCHEMA) -> None:
        self.table, self.schema, self.known = table, schema, KnownRows()
        self.spark = table.rows().sparkSession

    def write(self, *rows: tuple[Any, ...]) -> int:
        """Write changes in the driver; return the number of jobs: one reads the changes, one the table."""
        self.table.refresh()
        batch = changes(self.table, self.schema, rows)
        before = count_jobs(self.spark)
        assert rewrite_in_driver(self.table.transaction(self.spark), batch, self.known)
        return count_jobs(self.spark) - before

    def write_after_command(self, *rows: tuple[Any, ...]) -> None:
        """Write changes in either way: after RESTORE and some ALTER commands Delta has no list of files in memory."""
        self.table.refresh()
        batch, transaction = changes(self.table, self.schema, rows), self.table.transaction(self.spark)
        listed = transaction.is_within(REWRITTEN_FILES, REWRITTEN_BYTES)
        assert rewrite_in_driver(transaction, batch, self.known) == listed
        assert listed or merge_small(self.table.transaction(self.spark), batch)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows without the sequence, as somebody reads them who knows nothing of the table."""
        java_class(self.spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()
        own = [column.name for column in self.schema.columns]
        return sorted((tuple(row) for row in self.table.rows().select(*own).collect()), key=str)

    def sql(self, statement: str) -> None:
        """Run a statement of somebody else, with ``{t}`` for the table."""
        self.spark.sql(statement.format(t=self.table.sql_name))


def test_columns_change(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that are known in the former columns are read again."""
    given = Written(created(spark, tmp_path / "t", SCHEMA))
    given.write((1, "a", 1, False), (2, "b", 1, False))
    given.table.set({"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"})

    def with_columns(*fields: ConnectField) -> TableSchema:
        return replace(SCHEMA, columns=(SCHEMA.columns[0], *fields))

    name, number = ConnectField("name", connect("string")), ConnectField("n", connect("int32"))
    given.table.alter("ADD COLUMNS (n INT)")
    given.schema = with_columns(name, number)
    given.write_after_command((3, "x", None, 1, False))
    given.write((1, "c", 7, 2, False), (3, None, None, 2, True))
    assert given.rows() == [(1, "c", 7), (2, "b", None)]

    given.table.alter("ALTER COLUMN n TYPE BIGINT")
    given.schema = with_columns(name, ConnectField("n", connect("int64")))
    given.write_after_command((3, "x", None, 3, False))
    given.write((2, "d", 1 << 40, 3, False), (3, None, None, 4, True))
    assert given.rows() == [(1, "c", 7), (2, "d", 1 << 40)]

    given.table.alter("RENAME COLUMN name TO title")
    given.schema = with_columns(ConnectField("title", connect("string")), ConnectField("n", connect("int64")))
    given.write_after_command((4, "x", None, 3, False))
    given.write((3, "e", 3, 5, False), (4, None, None, 4, True))
    assert given.rows() == [(1, "c", 7), (2, "d", 1 << 40), (3, "e", 3)]

    # A column with the name of one that was dropped is another one.
    given.table.alter("DROP COLUMN title")
    given.table.alter("ADD COLUMNS (title STRING)")
    given.write_after_command((3, None, "x", 6, False))
    given.write((3, 3, "f", 7, False))
    assert given.rows() == [(1, None, 7), (2, None, 1 << 40), (3, "f", 3)]
    assert given.write((1, None, None, 8, True)) == 1
    assert given.rows() == [(2, None, 1 << 40), (3, "f", 3)]


def test_decimals_are_widened(spark: SparkSession, tmp_path: Path) -> None:
    """A number of up to 18 digits has another form in memory than a longer one; one in the key, one not."""
    schema = table_schema("p", "t", ConnectField("k", decimal(10, 2)), ConnectField("v", decimal(18, 4)), key=("k",))
    given = Written(created(spark, tmp_path / "t", schema), schema)
    low, high = Decimal("-1.50"), Decimal("99999999.99")
    given.write((1, "a", low, None, 1, False), (2, "b", high, Decimal("0.0001"), 1, False))
    given.table.set({"delta.enableTypeWidening": "true"})
    for name, kind in (("k", "DECIMAL(30, 2)"), ("v", "DECIMAL(38, 4)")):
        given.table.alter(f"ALTER COLUMN {name} TYPE {kind}")
    fields = (ConnectField("k", decimal(30, 2)), ConnectField("v", decimal(38, 4)))
    given.schema = table_schema("p", "t", *fields, key=("k",))
    big = Decimal("-1234567890123456789012345678.91")
    given.write_after_command((3, "d", big, None, 2, False))
    given.write((1, "c", low, Decimal("-1.5000"), 2, False))
    given.write((2, "e", high, None, 1, False), (3, "f", big, Decimal("7.0000"), 3, False))
    assert given.rows() == [
        (1, "c", low, Decimal("-1.5000")),
        (2, "b", high, Decimal("0.0001")),
        (3, "f", big, Decimal("7.0000")),
    ]


@pytest.mark.long
def test_commands_of_others(spark: SparkSession, tmp_path: Path) -> None:
    given = Written(created(spark, tmp_path / "t", SCHEMA))
    given.write((1, "a", 1, False), (2, "b", 1, False))
    version = given.table.transaction(spark).version
    given.write((1, "c", 2, False))

    given.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
    given.write_after_command((6, "x", 3, False))
    assert given.write((3, "d", 3, False), (6, None, 4, True)) == 2
    assert given.rows() == [(1, "a"), (2, "b"), (3, "d")]

    given.sql("DELETE FROM {t} WHERE id = 2")
    given.sql("INSERT INTO {t} SELECT 4, 'theirs', _seq FROM {t} WHERE id = 1")
    given.write((1, "e", 4, False))
    assert given.rows() == [(1, "e"), (3, "d"), (4, "theirs")]

    given.sql("DELETE FROM {t} WHERE id = 3")
    given.sql("OPTIMIZE {t}")
    given.sql("REORG TABLE {t} APPLY (PURGE)")
    with with_settings(spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        given.sql("VACUUM {t} RETAIN 0 HOURS")
    given.write((5, "f", 5, False))
    # A commit without files changes no rows.
    given.table.set({"of": "others"})
    given.write((5, "g", 6, False), (4, None, 6, True))
    assert given.rows() == [(1, "e"), (5, "g")]


def test_a_table_that_is_replaced_or_put_back(spark: SparkSession, tmp_path: Path) -> None:
    """The version alone does not tell the rows."""
    path, backup, later = (tmp_path / name for name in ("t", "backup", "later"))
    given = Written(created(spark, path, SCHEMA))
    given.write((1, "a", 1, False))
    shutil.copytree(path, backup)
    given.write((1, "b", 2, False), (2, "b", 2, False))
    shutil.move(path, later)
    # The table has the same id, and another commit of somebody else the same version.
    shutil.move(backup, path)
    java_class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()
    given.sql("UPDATE {t} SET name = 'theirs'")
    given.write((3, "c", 3, False))
    assert given.rows() == [(1, "theirs"), (3, "c")]

    shutil.rmtree(path)
    java_class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()
    given.table.create(SCHEMA, {})
    batch = changes(given.table, SCHEMA, [(4, "d", 4, False)])
    # It is another table.
    assert rewrite_in_driver(given.table.transaction(spark), batch, given.known)
    given.write((5, "e", 5, False))
    assert given.rows() == [(4, "d"), (5, "e")]


def test_two_queries_write_one_table(spark: SparkSession, tmp_path: Path) -> None:
    """In turns, and at once: also a table without rows has a conflict, as a MERGE would have."""
    table = created(spark, tmp_path / "t", SCHEMA)
    ours, theirs = Written(table), Written(table)
    ours.write((1, "a", 1, False))
    theirs.write((1, "b", 2, False), (2, "b", 2, False))
    ours.write((1, "late", 1, False), (3, "c", 3, False))
    assert ours.rows() == theirs.rows() == [(1, "b"), (2, "b"), (3, "c")]

    ours.write(*((key, None, 4, True) for key in (1, 2, 3)))
    assert table.has_no_files
    batch = changes(table, SCHEMA, [(1, "ours", 6, False)])
    writes: Sequence[Callable[..., bool]] = (
        lambda transaction: rewrite_in_driver(transaction, batch, ours.known),
        lambda transaction: merge_small(transaction, batch),
    )
    for write in writes:
        transaction = table.transaction(spark)
        table.append(changes(table, SCHEMA, [(1, "theirs", 5, False)]).rows.drop(DELETED_COLUMN), METADATA)
        with pytest.raises(SPARK_ERRORS) as caught:
            write(transaction)
        assert is_conflict(caught.value)
        ours.write((1, None, 6, True))
    ours.write((1, "ours", 7, False))
    assert ours.rows() == [(1, "ours")]


def test_topics_that_share_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """Each has its columns; a column that a topic has no longer becomes NULL in the rows that it changes."""
    schema = table_schema("p", "t", ConnectField("more", connect("string")))
    table, known = created(spark, tmp_path / "t", schema), KnownRows()
    other = table_schema("p", "other")

    def write(of: TableSchema, others: Sequence[str], *rows: tuple[Any, ...]) -> None:
        batch = replace(changes(table, of, rows), others=others)
        assert rewrite_in_driver(table.transaction(spark), batch, known)

    write(schema, (), (1, "a", "x", 1, False), (2, "b", "y", 1, False))
    write(other, ("more",), (2, "c", 2, False), (3, "d", 2, False))
    write(schema, (), (1, "e", "z", 3, False))
    rows = sorted(tuple(row) for row in table.rows().select("id", "name", "more").collect())
    assert rows == [(1, "e", "z"), (2, "c", None), (3, "d", None)]
    # It would lose the values of a column that no topic has.
    assert not rewrite_in_driver(table.transaction(spark), changes(table, other, [(1, "f", 4, False)]), known)


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_checkpoints_of_the_log(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """Who begins with a checkpoint sees the same files; and columns have the ids that the table gives them."""
    table = created(spark, tmp_path / "before", SCHEMA)
    path = tmp_path / "t"
    properties = f"'delta.checkpointInterval' = '2', 'delta.columnMapping.mode' = '{mode}'"
    columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in table.columns)
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta TBLPROPERTIES ({properties})")
    given = Written(DeltaTable(spark, Location.at(str(path))))
    jobs = [given.write((1, "a", number, False), (number, "b", number, False)) for number in range(2, 7)]
    assert list(path.glob("_delta_log/*.checkpoint*.parquet"))
    assert given.rows() == [(1, "a"), *((number, "b") for number in range(2, 7))]
    # A checkpoint has jobs of its own.
    assert jobs.count(1) >= 2


@pytest.mark.parametrize(
    "column",
    [
        "name STRING) USING delta PARTITIONED BY (name",
        "name VARCHAR(20)",
        "name CHAR(3)",
        "name STRING NOT NULL",
        "name STRING DEFAULT 'x'",
        "name STRING GENERATED ALWAYS AS (CAST(id AS STRING))",
    ],
)
def test_columns_that_need_a_query(spark: SparkSession, tmp_path: Path, column: str) -> None:
    """Only a query does that, or stores a value in the path of a file. It is known without reading the table."""
    made = created(spark, tmp_path / "made", SCHEMA)
    sequence = made.columns["_seq"].dataType.simpleString()
    path = tmp_path / "t"
    properties = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')" if "DEFAULT" in column else ""
    using = "" if "USING" in column else "USING delta"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, _seq {sequence}, {column}) {using} {properties}")
    table = DeltaTable(spark, Location.at(str(path)))
    batch = changes(made, SCHEMA, [(1, "1", 1, False)])
    known, before = KnownRows(), count_jobs(spark)
    assert not rewrite_in_driver(table.transaction(spark), batch, known)
    assert count_jobs(spark) == before
