"""The Parquet sink passes the conformance suite, with a reader that only orders what it finds."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import Changelog, ChangelogBackend
from tests.sinks.conformance import INTEGER, SinkConformance, row
from tests.sinks.conformance_schema import CHANGELOG, DEFAULT, NO_MODES, Difference, Outcome
from tests.sinks.harness import BatchRunner
from tests.spark.records import Feed, connect, table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK = {"test_batch_cut_off", "test_new_column", "test_truncate"}
"""Cases whose paths are not those of the Kafka sink."""


class ParquetBackend(ChangelogBackend):
    """Files in a temporary directory."""

    sink = "parquet"
    kills = ("before-write:1", "after-write:1", "before-write_batch:2", "after-write_batch:2")

    def settings(self) -> dict[str, str]:
        """Return the directory of the changelogs."""
        return {"sink.path": str(self.work / "changelogs")}

    def path(self, table: str) -> Path:
        """Return the directory of a table."""
        return self.work / "changelogs" / "shop" / table

    def frame(self, table: str) -> DataFrame:
        """Return the changelog of a table."""
        return self.spark.read.option("mergeSchema", "true").parquet(str(self.path(table)))

    def changelog(self, schema: TableSchema) -> Changelog:
        """Read the files; rows are ordered by their sequence and their place in the topic."""
        found: Changelog = defaultdict(list)
        if not self.path(schema.table).exists():
            return found
        rows = self.frame(schema.table).orderBy("_seq", "_partition", "_offset", "_part")
        for each in rows.collect():
            values = {
                name: value for name, value in each.asDict().items() if name[:1] != "_" and "tailrace" not in name
            }
            found[values["id"]].append((each["_kind"], values))
        return found


class TestParquetSink(SinkConformance):
    """Conformance of the Parquet sink."""

    backend_type = ParquetBackend
    not_claimed: ClassVar = {"test_type_change": "a column keeps its type in all files"}
    not_applicable: ClassVar = NO_MODES
    schema_differences: ClassVar = {
        **CHANGELOG,
        **dict.fromkeys(
            ("wider type", "other type"),
            Difference({DEFAULT: Outcome.CONVERTED}, "a column keeps its type in all files"),
        ),
    }
    long = SinkConformance.cases() - QUICK

    def test_type_change(self, run: BatchRunner) -> None:
        """A value that the type of the column does not represent stops the table, until its directory is moved."""
        with pytest.raises(Exception, match=r"column n, does not fit the files\n"):
            self.change_type(run)

        assert run.backend.rows(run.table.schema) == {1: row(1)}
        path = run.backend.work / "changelogs" / "shop" / run.table.schema.table
        path.rename(path.with_name("former"))
        run.repeat()
        assert run.backend.rows(run.table.schema) == {2: row(2, "text")}


class ByColumn(ParquetBackend):
    """Files that are partitioned by a column."""

    def settings(self) -> dict[str, str]:
        """Return the directory, and what the files are partitioned by."""
        return {**super().settings(), "sink.partition.by": "name"}


def test_files_of_an_attempt_that_failed_are_replaced(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """An attempt that has written one of two folders; files of the batch before stay as they are."""
    feed = Feed(kafka_broker, prefix)
    backend = ByColumn(spark, kafka_broker, tmp_path)
    run = BatchRunner(feed, feed.table(table_schema(prefix, "t", INTEGER)), backend, tmp_path)
    run.batch(run.table.change("c", None, row(1), pos=100), run.table.change("c", None, row(2), pos=110))
    before = set(backend.path("t").rglob("*.parquet"))
    run.batch(run.table.change("d", row(1), None, pos=200), run.table.change("d", row(2), None, pos=210))
    first, second = sorted(set(backend.path("t").rglob("*.parquet")) - before)
    second.unlink()
    assert backend.frame("t").count() == 3

    run.repeat()

    after = set(backend.path("t").rglob("*.parquet"))
    assert backend.frame("t").count() == 4
    assert before < after
    assert first not in after
    folders = {each.parent.parent.name for each in after}
    assert folders == {"tailrace_part=name 1", "tailrace_part=name 2"}


def test_files_are_partitioned_by_the_day_of_the_change(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A column of the source that has a name of the changelog is refused, and so is a directory of somebody else."""
    feed = Feed(kafka_broker, prefix)
    backend = ParquetBackend(spark, kafka_broker, tmp_path)
    run = BatchRunner(feed, feed.table(table_schema(prefix, "t", INTEGER)), backend, tmp_path)
    run.batch(run.table.change("c", None, row(1), pos=100))
    assert {(each["tailrace_part"], each["_ts"].year) for each in backend.frame("t").collect()} == {
        (date(2023, 11, 14), 2023)
    }

    named = feed.table(table_schema(prefix, "u", ConnectField("_kind", connect("string"))))
    with pytest.raises(SchemaError, match=r"column '_kind' of shop.u cannot be stored"):
        BatchRunner(feed, named, backend, tmp_path / "u").batch(
            named.change("c", None, {"id": 1, "name": "x", "_kind": "y"}, pos=100)
        )
    backend.path("v").mkdir()
    foreign = feed.table(table_schema(prefix, "v", INTEGER))
    with pytest.raises(SinkError, match=r"exists and is no changelog of Tailrace"):
        BatchRunner(feed, foreign, backend, tmp_path / "v").batch(foreign.change("c", None, row(1), pos=100))


def test_table_that_leaves_the_query_and_comes_back_goes_on_where_it_was(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """It was excluded, or not to be seen: Spark begins at the beginning of its topic."""
    feed, backend = Feed(kafka_broker, prefix), ParquetBackend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, backend, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    run.batch(table.change("c", None, row(2), pos=110))
    run.leave()
    run.restart()
    run.batch(table.change("c", None, row(3), pos=120))
    run.batch(table.change("c", None, row(4), pos=130))

    kinds = {key: [kind for kind, _ in found] for key, found in backend.changelog(table.schema).items()}
    assert kinds == {key: ["+I"] for key in (1, 2, 3, 4)}
    assert not list((tmp_path / "checkpoint" / "tailrace" / "parked").glob("*.json"))
