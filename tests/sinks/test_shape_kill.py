"""SIGKILL while tables of each shape are written, at each step: after restarts they are exact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import INTEGER
from tests.sinks.jdbc_backend import JdbcBackend
from tests.sinks.shapes import present
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_history import changelog_of
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_table_versions import current, versions_of
from tests.spark.model import Run, reference_changelog
from tests.spark.records import Feed, Row, table_schema
from tests.spark.running import settings
from tests.spark.test_kill import run_killed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHAPES: Final = {"history": "history", "versions": "scd2", "deleted": "soft-delete"}
"""Table to its shape."""
OF_TABLES: Final[tuple[str, ...]] = (
    # One changelog is written, the other one not; then both are, and their batch is not committed.
    "after-write_changelog:1",
    "after-append:1",
    "after-write_changelog:4",
    "after-merge:1",
)
OF_DATABASES: Final[tuple[str, ...]] = ("after-fill:2", "after-note:3", "after-unstage:2")


class DeltaShapes(DeltaBackend):
    """Delta tables at a path."""

    moments = OF_TABLES

    def stored(self, name: str) -> DataFrame:
        """Return a table that another process has written."""
        return self.spark.read.format("delta").load(str(self.work / "tables" / "shop" / name))


class IcebergShapes(IcebergBackend):
    """Iceberg tables in the catalog of the processes that are killed; the steps are those of Delta."""

    moments = ("after-write_changelog:1", "after-append:1", "after-merge:1")

    def stored(self, name: str) -> DataFrame:
        """Return a table that another process has written."""
        folder = self.work / "iceberg" / self.schema_name.partition(".")[2]
        return self.spark.read.format("iceberg").load(str(folder / f"shop_{name}"))


class JdbcShapes(JdbcBackend):
    """Tables of a database."""

    moments = OF_DATABASES

    def stored(self, name: str) -> DataFrame:
        """Return a table that another process has written."""
        return self.frame(name)


class PostgresShapes(JdbcShapes):
    """Tables of PostgreSQL."""

    database = "postgresql"


class MySqlShapes(JdbcShapes):
    """Tables of MySQL, where creating a staging table is no part of the transaction."""

    database = "mysql"
    moments = ("after-fill:2", "after-note:3")


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("backend", [DeltaShapes, IcebergShapes, PostgresShapes, MySqlShapes], indirect=True)
def test_tables_of_each_shape_are_exact_after_kills_at_every_step(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    target = backend(spark, kafka_broker, tmp_path)
    assert isinstance(target, DeltaShapes | IcebergShapes | JdbcShapes)
    feed = Feed(kafka_broker, prefix)
    runs = {}
    for number, name in enumerate(SHAPES):
        table = feed.table(table_schema(prefix, name, INTEGER), partitions=2)
        runs[name] = Run(table, prefix, seed=40 + number, keys=40, events=120)
        for transaction in runs[name].transactions:
            feed.write(transaction)
    given = settings(kafka_broker, prefix, tmp_path, sink=target.sink, maxOffsetsPerTrigger=100)
    given |= target.settings()
    given["sink.shape.overrides"] = ";".join(rf"shop\.{name}:{shape}" for name, shape in SHAPES.items())

    run_killed(tmp_path, given, target.moments)

    history = target.stored("history")
    records = [tuple(each) for each in history.select("__partition", "__offset", "__part").collect()]
    assert len(set(records)) == len(records)
    assert changelog_of(history) == changelog(runs["history"])
    versions = versions_of(target.stored("versions"))
    assert current(versions) == runs["versions"].rows
    assert {
        key: [({name: each[name] for name in ("id", "name", "n")}, each["__current"]) for each in found]
        for key, found in versions.items()
    } == versions_in(changelog(runs["versions"]))
    deleted = [each.asDict() for each in target.stored("deleted").drop("_seq").collect()]
    by_key = {each["id"]: each for each in deleted}
    assert len(by_key) == len(deleted), "duplicate key in the table"
    assert present(by_key) == runs["deleted"].rows


def changelog(run: Run) -> dict[int, list[tuple[str, Row]]]:
    """Return the changelog of a run by key."""
    messages = [message for transaction in run.transactions for message in transaction]
    found = reference_changelog(messages, run.table.schema.topic)
    return {entries[0][1]["id"]: entries for entries in found.values()}


def versions_in(entries: Mapping[int, list[tuple[str, Row]]]) -> dict[int, list[tuple[Row, bool]]]:
    """Return the versions of each key: its rows one after the other, and whether they are current."""
    found: dict[int, list[tuple[Row, bool]]] = {}
    for key, of_key in entries.items():
        versions = found.setdefault(key, [])
        for kind, row in of_key:
            if kind == "-U" or (kind == "+U" and versions[-1] == (row, True)):
                continue
            if versions and versions[-1][1]:
                versions[-1] = (versions[-1][0], False)
            if kind != "-D":
                versions.append((row, True))
    return found
