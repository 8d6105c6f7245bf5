"""The Hudi sink passes the conformance suite on the Spark line that has its jars: ./run test --profile hudi."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tailrace.schemas.connect import ConnectField
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend, WithSettings
from tests.sinks.conformance import INTEGER, SinkConformance, row
from tests.sinks.harness import BatchRunner
from tests.spark.records import Feed, Row, connect, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_LINE = "3.5"
"""In the environment of another line these tests are left out."""


class HudiBackend(SinkBackend):
    """Tables in a temporary directory."""

    sink = "hudi"
    cuts = (("after", "prepare_table"), ("after", "_append"), ("after", "_merge"))
    kills = ("after-append:1", "before-merge:2", "after-merge:1", "after-write_batch:2")

    def settings(self) -> dict[str, str]:
        """Return the directory of the tables."""
        return {"sink.path": str(self.work / "tables")}

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Read the table as a reader of Hudi does; a duplicate key is an error."""
        frame = self.spark.read.format("hudi").load(str(self.work / "tables" / schema.database / schema.table))
        assert not frame.where("_hoodie_is_deleted").collect()
        rows = frame.drop("_seq", *(name for name in frame.columns if name.startswith("_hoodie_"))).collect()
        found = {each["id"]: each.asDict() for each in rows}
        assert len(found) == len(rows), "duplicate key in the table"
        return found


class TestHudiSink(SinkConformance):
    """Conformance of the Hudi sink."""

    backend_type = HudiBackend
    not_claimed: ClassVar = {"test_type_change": "a Hudi column keeps its type; some numbers become wider"}

    def test_type_change(self, run: BatchRunner) -> None:
        """The change stops the query with both types; rows that were written stay."""
        with pytest.raises(SinkError, match=r"type of column n .* has changed, and Hudi cannot") as caught:
            self.change_type(run)

        assert (caught.value.context["stored"], caught.value.context["now"]) == ("int", "string")
        assert run.backend.rows(run.table.schema) == {1: row(1)}


class SoftDeletes(WithSettings, HudiBackend):
    """Tables whose deleted rows stay, with metadata columns."""

    added: Mapping[str, str] = {"sink.shape": "soft-delete", "add.fields": "op,source.pos:position"}


class OftenClustered(WithSettings, HudiBackend):
    """Tables that are clustered after each fourth batch."""

    added: Mapping[str, str] = {"sink.optimize.batches": "4", "sink.properties.hoodie.metadata.enable": "true"}


def test_deleted_rows_stay_with_soft_deletes(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    run = BatchRunner(
        feed, feed.table(table_schema(prefix, "t", INTEGER)), SoftDeletes(spark, kafka_broker, tmp_path), tmp_path
    )
    change = run.table.change

    run.batch(*(change("c", None, row(key), pos=100 + key) for key in (1, 2, 3)))
    run.batch(change("d", row(1, 8), None, pos=120), change("u", row(2), row(2, 2), pos=130))
    run.batch(run.table.truncate(pos=125))

    assert run.backend.rows(run.table.schema) == {
        1: {**row(1, 8), "__deleted": True, "__op": "d", "__position": 120},
        2: {**row(2, 2), "__deleted": False, "__op": "u", "__position": 130},
        3: {**row(3), "__deleted": True, "__op": "c", "__position": 103},
    }


@pytest.mark.parametrize("key", [("a,t:b", "c"), ("__null__", "c"), ("a", "")])
def test_keys_that_hudi_does_not_tell_apart_are_refused(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, key: tuple[str, str]
) -> None:
    """The table is parked, and nothing of the batch is written."""
    text = connect("string", optional=False)
    schema = table_schema(prefix, "t", ConnectField("s", text), ConnectField("t", text), key=("s", "t"))
    feed = Feed(kafka_broker, prefix)
    run = BatchRunner(feed, feed.table(schema), HudiBackend(spark, kafka_broker, tmp_path), tmp_path)
    run.batch(run.table.change("c", None, {"id": 1, "name": "a", "s": "x", "t": "y"}, pos=100))

    with pytest.raises(SinkError, match="cannot have the key"):
        run.batch(
            run.table.change("c", None, {"id": 2, "name": "b", "s": "z", "t": "z"}, pos=110),
            run.table.change("c", None, {"id": 3, "name": "c", "s": key[0], "t": key[1]}, pos=120),
        )

    assert sorted(run.backend.rows(run.table.schema)) == [1]


@pytest.mark.long
def test_ledger_outlives_archived_commits_and_clusterings(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Hudi archives all but the newest commits of its timeline; a clustering has no ledger."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, OftenClustered(spark, kafka_broker, tmp_path), tmp_path)
    run.batch(table.change("c", None, row(0), pos=100))
    saved = run.save()
    for number in range(1, 36):
        run.batch(table.change("c", None, row(number), pos=100 + number), table.change("d", row(0), None, pos=150))

    timeline = tmp_path / "tables" / "shop" / "t" / ".hoodie" / "timeline"
    assert list(timeline.glob("*.replacecommit*"))
    assert list((timeline / "history").glob("*.parquet"))
    run.restore(saved)
    run.batch(table.change("u", row(1), row(1, 1), pos=200))
    assert run.backend.rows(table.schema) == {1: row(1, 1), **{number: row(number) for number in range(2, 36)}}
