"""The Delta sink passes the conformance suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import INTEGER, SinkConformance, row
from tests.sinks.harness import BatchRunner
from tests.spark.records import Feed, Row, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DeltaBackend(SinkBackend):
    """Tables in a temporary directory."""

    sink = "delta"
    cuts = (("after", "prepare_table"), ("after", "_append"), ("after", "_merge"))
    kills = ("after-append:1", "before-merge:2", "after-merge:1", "after-write_batch:2")

    def settings(self) -> dict[str, str]:
        """Return the directory of the tables."""
        return {"sink.path": str(self.work / "tables")}

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Read the table; a duplicate key is an error."""
        path = self.work / "tables" / schema.database / schema.table
        rows = self.spark.read.format("delta").load(str(path)).drop("_seq").collect()
        found = {each["id"]: each.asDict() for each in rows}
        assert len(found) == len(rows), "duplicate key in the table"
        return found


class TestDeltaSink(SinkConformance):
    """Conformance of the Delta sink."""

    backend_type = DeltaBackend
    not_claimed: ClassVar = {"test_type_change": "a Delta column keeps its type; only numbers are converted"}

    def test_type_change(self, run: BatchRunner) -> None:
        """The change stops the query with both types; rows that were written stay."""
        with pytest.raises(SinkError, match=r"type of column n .* has changed") as caught:
            self.change_type(run)

        assert (caught.value.context["stored"], caught.value.context["now"]) == ("int", "string")
        assert run.backend.rows(run.table.schema) == {1: row(1)}


@pytest.mark.parametrize(
    "change", ["ADD COLUMNS (note STRING)", "SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"]
)
def test_a_table_that_somebody_alters_between_two_batches(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, change: str
) -> None:
    """A table of a few kilobytes is written whole, unless it has a column of somebody else or a change feed."""
    feed = Feed(kafka_broker, prefix)
    backend = DeltaBackend(spark, kafka_broker, tmp_path)
    run = BatchRunner(feed, feed.table(table_schema(prefix, "t", INTEGER)), backend, tmp_path)
    run.batch(run.table.change("c", None, row(1), pos=100))
    run.batch(run.table.change("c", None, row(2), pos=110))
    path = tmp_path / "tables" / run.table.schema.database / "t"
    spark.sql(f"ALTER TABLE delta.`{path}` {change}")
    if "note" in change:
        spark.sql(f"UPDATE delta.`{path}` SET note = 'mine' WHERE id = 1")

    run.batch(run.table.change("c", None, row(3), pos=120))

    found = backend.rows(run.table.schema)
    if "note" in change:
        assert found == {1: {**row(1), "note": "mine"}, 2: {**row(2), "note": None}, 3: {**row(3), "note": None}}
        return
    assert found == {1: row(1), 2: row(2), 3: row(3)}
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]["version"]
    changes = spark.sql(f"SELECT id, _change_type FROM table_changes_by_path('{path}', {newest})")
    assert [tuple(each) for each in changes.collect()] == [(3, "insert")]
