"""Delta tables in a catalog, and tables that exist before Tailrace: taken over, or refused with the remedy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.names import schemas_topic
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.spark.records import EPOCH, Feed, Message, Row, connect, decimal, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

_SEQUENCE: Final = "_seq STRUCT<epoch: BIGINT, file: BIGINT, pos: BIGINT, event: BIGINT, row: BIGINT>"


class CatalogBackend(SinkBackend):
    """Tables of a schema in Spark's own catalog; the schema does not exist at first."""

    sink = "delta"
    table = "spark_catalog.{schema}.{{database}}_{{table}}"

    @property
    def schema_name(self) -> str:
        """The schema of the tables, one per test."""
        return f"s_{abs(hash(str(self.work)))}"

    def settings(self) -> dict[str, str]:
        """Return the name of the tables."""
        return {"sink.table": self.table.format(schema=self.schema_name)}

    def name(self, table: str = "shop_t") -> str:
        """Return the name of a table in SQL."""
        return f"spark_catalog.{self.schema_name}.{table}"

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Read the table of the captured table ``t``."""
        return self.read(self.name(f"shop_{schema.table}"))

    def read(self, name: str) -> dict[int, Row]:
        """Read a table; a duplicate key is an error."""
        rows = self.spark.read.table(name).drop("_seq").collect()
        found = {each["id"]: each.asDict() for each in rows}
        assert len(found) == len(rows), "duplicate key in the table"
        return found


def runner(spark: SparkSession, feed: Feed, work: Path, table: str = "t", *extra: ConnectField) -> BatchRunner:
    """Return a query over a new table."""
    schema = table_schema(feed.prefix, table, *(extra or (INTEGER,)))
    found = feed.table(replace(schema, topic=re.sub(r"[^\w.]", "_", schema.topic)))
    return BatchRunner(feed, found, CatalogBackend(spark, feed.broker, work), work)


def backend_of(run: BatchRunner) -> CatalogBackend:
    """Return the backend of a query."""
    assert isinstance(run.backend, CatalogBackend)
    return run.backend


def test_tables_of_a_catalog_follow_their_source(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A snapshot, changes, a filled column, a truncate event, a new process, and a name that is no identifier."""
    feed = Feed(kafka_broker, prefix)
    run = runner(spark, feed, tmp_path, "Order items.2024")
    name = backend_of(run).name("shop_Order_x20items_x2E2024")
    records = run.table.snapshot(prefix, 0, [row(1), row(2), row(3)], low=10, high=20)
    run.batch(records, [run.table.end(prefix, 0, high=20, rows=3)])
    run.batch(run.table.change("u", row(1), row(1, 1), pos=100), run.table.change("d", row(2), None, pos=110))
    run.repeat()
    assert backend_of(run).read(name) == {1: row(1, 1), 3: row(3)}

    old, added = run.table.schema, ConnectField("added", connect("int32"))
    run.table.schema = replace(table_schema(prefix, old.table, INTEGER, added), topic=old.topic)
    change = ColumnChange(AlterationKind.ADD, "added", schema=added.schema, value=5)
    statement = Alteration(old.topic, "shop", old.table, "ALTER", (change,), Sequence(EPOCH, 7, 200, 0, 0))
    published = Message(schemas_topic(prefix), statement.record_key(), statement.to_json())
    run.batch([run.table.published(prefix, version=200), published])
    run.batch(run.table.change("c", None, row(4, added=9), pos=210))
    filled = backend_of(run).read(name)
    run.batch(run.table.truncate(pos=300), run.table.change("c", None, row(6, added=1), pos=310))

    assert filled == {1: row(1, 1, added=5), 3: row(3, added=5), 4: row(4, added=9)}
    assert backend_of(run).read(name) == {6: row(6, added=1)}
    properties = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["properties"]
    assert properties["tailrace.topic"] == old.topic
    history = spark.sql(f"DESCRIBE HISTORY {name}").collect()
    assert all(
        each["userMetadata"]
        for each in history
        if each["operation"] == "MERGE" or each["operationParameters"].get("mode") == "Append"
    )


def test_names_that_become_one_do_not_share_a_table(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A catalog does not tell upper from lower case: the second table is refused, the first one stays as it is."""
    feed = Feed(kafka_broker, prefix)
    first, second = (runner(spark, feed, tmp_path / name, name) for name in ("t", "T"))
    second.backend.work = first.backend.work
    second = BatchRunner(feed, second.table, first.backend, tmp_path / "T")
    first.batch(first.table.change("c", None, row(1), pos=100))

    with pytest.raises(SinkError, match="belongs to another topic") as caught:
        second.batch(second.table.change("c", None, row(2), pos=110))

    assert caught.value.context["table_topic"] == first.table.schema.topic
    assert backend_of(first).read(backend_of(first).name()) == {1: row(1)}


def test_existing_table_is_taken_over(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Another order, another case, wider types, a partition, and columns of somebody else that stay as they are."""
    run = runner(spark, Feed(kafka_broker, prefix), tmp_path)
    name = create(
        backend_of(run),
        "t",
        "note STRING, N BIGINT, name VARCHAR(50), id DECIMAL(20,0) NOT NULL, part INT",
        "PARTITIONED BY (part)",
    )
    before = {"note": None, "part": None}
    records = run.table.snapshot(prefix, 0, [row(1), row(2)], low=10, high=20)
    run.batch(records, [run.table.end(prefix, 0, high=20, rows=2)])
    spark.sql(f"UPDATE {name} SET note = 'mine', part = 3 WHERE id = 1")
    run.batch(run.table.change("u", row(1), row(1, 1), pos=100), run.table.change("c", None, row(3), pos=110))

    found = {
        key: {column.lower(): value for column, value in each.items()}
        for key, each in run.backend.rows(run.table.schema).items()
    }
    assert found == {
        1: {**row(1, 1), "note": "mine", "part": 3},
        2: {**row(2), **before},
        3: {**row(3), **before},
    }
    detail = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]
    assert (detail["partitionColumns"], detail["properties"]["tailrace.topic"]) == (["part"], run.table.schema.topic)


class Existing(NamedTuple):
    """A table that does not fit, and what is wrong with it."""

    columns: str
    problems: tuple[str, ...]
    more: str = ""
    """Clauses of CREATE TABLE."""
    rows: str = ""
    """A SELECT of rows."""


_EXISTING: Final[dict[str, Existing]] = {
    "narrow": Existing(
        "id INT, name STRING NOT NULL, n SMALLINT, x INT NOT NULL",
        (
            "it lacks the column d",
            "its column id is int, which does not represent all values of bigint",
            "its column n is smallint, which does not represent all values of int",
            "its column name is NOT NULL",
            "its column x, which the source does not have, is NOT NULL without a default",
            "rows cannot be changed",
        ),
        "TBLPROPERTIES (delta.appendOnly = true)",
    ),
    "kind": Existing(
        f"id BIGINT, name CHAR(9), n STRING, d DOUBLE, {_SEQUENCE.replace('file: ', 'f: ')}",
        (
            "its column name is char(9), which does not represent all values of string",
            "its column d is double, which does not represent all values of decimal(9,2)",
            "its column _seq is struct<",
        ),
    ),
    "rows": Existing(
        "id BIGINT, name STRING, n INT, d DECIMAL(9,2)",
        ("it has rows that Tailrace did not write",),
        rows="SELECT 5L id, 'x' name, 1 n, 1.50BD d",
    ),
}
_D: Final = ConnectField("d", decimal(9, 2))


def create(backend: CatalogBackend, table: str, columns: str, more: str = "", rows: str = "") -> str:
    """Create a table in the schema of the backend; return its name."""
    backend.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {backend.schema_name}")
    name = backend.name(f"shop_{table}")
    backend.spark.sql(f"CREATE TABLE {name} ({columns}) USING DELTA {more}")
    if rows:
        backend.spark.sql(f"INSERT INTO {name} BY NAME {rows}")
    return name


def test_table_that_does_not_fit_is_refused_with_the_statement_that_fixes_it(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Nothing is changed before; after the statement the same batch is written."""
    feed = Feed(kafka_broker, prefix)
    for case, existing in _EXISTING.items():
        run = runner(spark, feed, tmp_path / case, case, INTEGER, _D)
        name = create(backend_of(run), case, existing.columns, existing.more, existing.rows)
        before = spark.sql(f"DESCRIBE HISTORY {name}").count()

        with pytest.raises(SinkError, match="exists and cannot take the rows of shop") as caught:
            run.batch(run.table.change("c", None, row(1, d="AJY="), pos=100))

        assert [problem for problem in existing.problems if problem not in str(caught.value)] == []
        assert spark.sql(f"DESCRIBE HISTORY {name}").count() == before, case
        for statement in str(caught.value.context["statement"]).split("; "):
            spark.sql(statement)
        run.repeat()
        [found] = run.backend.rows(run.table.schema).values()
        assert {column: str(found[column]) for column in ("id", "name", "n", "d")} == {
            "id": "1",
            "name": "name 1",
            "n": "0",
            "d": "1.50",
        }, case


def test_rows_of_another_tailrace_table_are_kept(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A copy without properties: its rows have a sequence, so that older records do not change them."""
    run = runner(spark, Feed(kafka_broker, prefix), tmp_path)
    sequence = f"named_struct('epoch', {EPOCH}L, 'file', 7L, 'pos', 150L, 'event', 0L, 'row', 0L)"
    create(
        backend_of(run),
        "t",
        f"id BIGINT, name STRING, n INT, {_SEQUENCE}",
        "",
        f"SELECT 1L id, 'name 1' name, 7 n, {sequence} _seq",
    )
    records = run.table.snapshot(prefix, 0, [row(1), row(2)], low=10, high=20)

    run.batch(records, [run.table.end(prefix, 0, high=20, rows=2)])

    assert run.backend.rows(run.table.schema) == {1: row(1, 7), 2: row(2)}


def test_table_of_another_format_is_refused(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    run = runner(spark, Feed(kafka_broker, prefix), tmp_path)
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {backend_of(run).schema_name}")
    spark.sql(f"CREATE TABLE {backend_of(run).name()} (id BIGINT) USING PARQUET")

    with pytest.raises(SinkError, match="is a table of the format parquet, not a Delta table"):
        run.batch(run.table.change("c", None, row(1), pos=100))
