"""The Hudi sink passes the conformance suite on the Spark line that has its jars: ./run test --profile hudi."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from pyspark.sql import types as tp

from tailrace.schemas.connect import ConnectField
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.hudi_table import HudiTable
from tailrace.spark_consumer.sink.target import Add, MarkExisting
from tests.embedded.kafka import KafkaBroker
from tests.sinks import test_restored_targets, test_two_drivers
from tests.sinks.backend import SinkBackend, WithSettings
from tests.sinks.conformance import INTEGER, SinkConformance, row
from tests.sinks.harness import BatchRunner
from tests.sinks.shapes import ShapeConformance, SoftDeletes
from tests.sinks.test_restored_targets import add_extra
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

    def execute(self, statement: str) -> None:
        """Run a statement of a message, as a user does in PySpark."""
        exec(statement, self.names)  # noqa: S102 - our own statements

    @cached_property
    def names(self) -> dict[str, object]:
        """The names that a user's session of PySpark has."""
        return {"spark": self.spark}

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
    not_claimed: ClassVar = {"test_type_change": "a column keeps its type; some numbers become wider"}

    def test_type_change(self, run: BatchRunner) -> None:
        """The change stops the query with both types; rows that were written stay."""
        with pytest.raises(SinkError, match=r"type of column n .* has changed, and Hudi cannot") as caught:
            self.change_type(run)

        assert (caught.value.context["stored"], caught.value.context["now"]) == ("int", "string")
        assert run.backend.rows(run.table.schema) == {1: row(1)}


class HudiSoftDelete(SoftDeletes, HudiBackend):
    """Tables whose deleted rows stay, with metadata columns."""


class TestHudiSoftDelete(ShapeConformance):
    """Conformance of tables with soft deletes."""

    backend_type = HudiSoftDelete
    variant = "soft-delete"
    long = SinkConformance.cases() - {"test_truncate", "test_out_of_order"}


class OftenClustered(WithSettings, HudiBackend):
    """Tables that are clustered after each fourth batch."""

    added: Mapping[str, str] = {"sink.optimize.batches": "4", "sink.properties.hoodie.metadata.enable": "true"}


def test_deleted_rows_stay_with_soft_deletes(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    run = runner(spark, kafka_broker, prefix, tmp_path, HudiSoftDelete)
    change = run.table.change

    run.batch(*(change("c", None, row(key), pos=100 + key) for key in (1, 2, 3)))
    run.batch(change("d", row(1, 8), None, pos=120), change("u", row(2), row(2, 2), pos=130))
    run.batch(run.table.truncate(pos=125))

    assert isinstance(run.backend, HudiSoftDelete)
    assert run.backend.all_rows(run.table.schema) == {
        1: {**row(1, 8), "__deleted": True, "__op": "d", "__position": 120},
        2: {**row(2, 2), "__deleted": False, "__op": "u", "__position": 130},
        3: {**row(3), "__deleted": True, "__op": "c", "__position": 103},
    }


def test_rows_of_a_table_that_becomes_soft_delete_are_marked(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Spark has no UPDATE for a table at a path: they are written again, and the ledger is carried on."""
    run = runner(spark, kafka_broker, prefix, tmp_path)
    run.batch(*(run.table.change("c", None, row(key), pos=100 + key) for key in (1, 2)))
    schema = run.table.schema

    def opened() -> HudiTable:
        path = str(tmp_path / "tables" / schema.database / schema.table)
        return HudiTable(spark, path, f"{schema.database}_{schema.table}", {})

    table = opened()
    ledger = table.newest_ledger(schema.topic)
    table.change([Add((tp.StructField("__deleted", tp.BooleanType()),)), MarkExisting()])

    assert {each["id"]: each["__deleted"] for each in opened().rows().collect()} == {1: False, 2: False}
    assert opened().newest_ledger(schema.topic) == ledger


def runner(
    spark: SparkSession, broker: KafkaBroker, prefix: str, work: Path, backend: type[SinkBackend] = HudiBackend
) -> BatchRunner:
    """Return a query over a new table."""
    feed = Feed(broker, prefix)
    return BatchRunner(feed, feed.table(table_schema(prefix, "t", INTEGER)), backend(spark, broker, work), work)


@pytest.mark.long
def test_older_copy_gets_what_it_lacks(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    test_restored_targets.test_older_copy_of_a_target_gets_what_it_lacks(
        HudiBackend, spark, kafka_broker, prefix, tmp_path
    )


@pytest.mark.long
def test_older_copy_loses_the_rows_of_a_former_table(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    test_restored_targets.test_older_copy_loses_the_rows_of_a_former_table(
        HudiBackend, spark, kafka_broker, prefix, tmp_path
    )


@pytest.mark.long
def test_older_driver_writes_nothing_that_the_newer_one_has_written(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    test_two_drivers.test_older_driver_writes_nothing_that_the_newer_one_has_written(
        HudiBackend, spark, kafka_broker, prefix, tmp_path
    )


@pytest.mark.long
def test_rollback_behind_an_alter_parks_the_table(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Hudi keeps the properties, which say that the column has its values; a table with all commits goes on."""
    run = runner(spark, kafka_broker, prefix, tmp_path)
    run.batch(run.table.change("c", None, row(1), pos=100))
    path = tmp_path / "tables" / "shop" / "t"
    commit = max(each.name.partition("_")[0] for each in (path / ".hoodie" / "timeline").glob("*.commit"))
    spark.sql(f"CALL create_savepoint(path => '{path}', commit_time => '{commit}')").collect()
    run.batch(add_extra(run.table, prefix), run.table.change("c", None, {**row(3), "extra": 9}, pos=210))
    run.restart()
    run.batch(run.table.change("c", None, {**row(4), "extra": 10}, pos=220))
    assert {key: each["extra"] for key, each in run.backend.rows(run.table.schema).items()} == {1: 7, 3: 9, 4: 10}
    spark.sql(f"CALL rollback_to_savepoint(path => '{path}', instant_time => '{commit}')").collect()
    run.restart()

    run.batch(run.table.change("c", None, {**row(5), "extra": 11}, pos=230))
    with pytest.raises(SinkError, match=test_restored_targets.ROLLED_BACK):
        run.retry()
    assert set(run.parked()) == {run.table.schema.topic}


LEFT = {
    "folders": ("timeline/*", "hoodie.properties"),
    "an empty file of properties": ("timeline/*",),
    "properties": ("timeline/*",),
    "a commit that was requested": ("timeline/*.inflight", "timeline/*.commit"),
    "a commit that has begun": ("timeline/*.commit",),
}
"""What a process that was killed within the creation of a table leaves; what it had not written yet."""


@pytest.mark.parametrize(
    "left", [pytest.param(each, marks=() if each == "folders" else pytest.mark.long) for each in LEFT]
)
def test_creation_that_was_killed_is_repeated(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, left: str
) -> None:
    run = runner(spark, kafka_broker, prefix, tmp_path, HudiSoftDelete)
    HudiTable(spark, str(tmp_path / "tables" / "shop" / "t"), "shop_t", {}).create(run.table.schema, {})
    meta = tmp_path / "tables" / "shop" / "t" / ".hoodie"
    for pattern in LEFT[left]:
        files = {*meta.glob(pattern), *meta.glob(f"{Path(pattern).parent}/.{Path(pattern).name}.crc")}
        assert files, pattern
        for file in files:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    if left == "an empty file of properties":
        (meta / ".hoodie.properties.crc").unlink()
        (meta / "hoodie.properties").write_text("", encoding="utf-8")

    run.batch(run.table.change("c", None, row(1), pos=100))
    run.batch(run.table.change("u", row(1), row(1, 1), pos=110))

    assert run.parked() == {}
    assert isinstance(run.backend, HudiSoftDelete)
    written = {**row(1, 1), "__deleted": False, "__op": "u", "__position": 110}
    assert run.backend.all_rows(run.table.schema) == {1: written}


def test_files_without_a_commit_are_no_begin_of_a_creation(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Somebody else may be writing them."""
    run = runner(spark, kafka_broker, prefix, tmp_path)
    run.batch(run.table.change("c", None, row(1), pos=100))
    folder = tmp_path / "tables" / "shop" / "t"
    for commit in (folder / ".hoodie" / "timeline").glob("*.commit"):
        commit.unlink()

    with pytest.raises(SinkError, match="has files and no completed commit"):
        run.repeat()

    assert list(folder.glob("*.parquet"))


def test_existing_table_is_taken_over_after_the_statements_of_the_message(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Rows of others, a column that is missing, and one with another type."""
    path = str(tmp_path / "tables" / "shop" / "t")
    options = {"hoodie.table.name": "theirs", "hoodie.datasource.write.recordkey.field": "id"}
    rows = spark.sql("SELECT 5L id, 'x' name, true n, 1 other")
    rows.write.format("hudi").options(**options).mode("append").save(path)
    run = runner(spark, kafka_broker, prefix, tmp_path)

    with pytest.raises(SinkError, match="exists and cannot take the rows") as caught:
        run.batch(run.table.change("c", None, row(1), pos=100))
    for statement in str(caught.value.context["statement"]).split("; "):
        run.backend.execute(statement)
    run.repeat()

    assert run.backend.rows(run.table.schema) == {1: {**row(1), "other": None}}


@pytest.mark.long
def test_existing_table_of_another_kind_is_refused(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """With another key, Hudi would take other rows for the same."""
    options = {
        "hoodie.table.name": "shop_t",
        "hoodie.datasource.write.recordkey.field": "name",
        "hoodie.datasource.write.partitionpath.field": "n",
    }
    rows = spark.sql("SELECT 5L id, 'x' name, 1 n")
    rows.write.format("hudi").options(**options).save(str(tmp_path / "tables" / "shop" / "t"))
    run = runner(spark, kafka_broker, prefix, tmp_path)

    with pytest.raises(
        SinkError, match=r"partition.fields is 'n' and not ''; .*recordkey.fields is 'name' and not 'id'"
    ):
        run.batch(run.table.change("c", None, row(1), pos=100))


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

    with pytest.raises(SinkError, match="a key does not fit the Hudi table"):
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
    run = runner(spark, kafka_broker, prefix, tmp_path, OftenClustered)
    table = run.table
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
