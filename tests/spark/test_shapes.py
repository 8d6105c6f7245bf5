"""Tables of each shape in one query, from an empty target to a checkpoint that is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.sql import functions as fn

from tests.embedded.kafka import KafkaBroker
from tests.sinks.jdbc_backend import JdbcBackend, serve
from tests.sinks.test_history import changelog_of
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_table_versions import current, versions_of
from tests.spark.records import Feed, table_schema
from tests.spark.running import consume, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHAPES = r"shop\.history:history;shop\.versions:scd2;SHOP\.deleted:soft-delete"


class Target(NamedTuple):
    """Where the tables of a sink are."""

    sink: str
    settings: dict[str, str]
    read: Callable[[str], DataFrame]
    """Returns a table; nested values are no texts."""


@pytest.fixture(
    params=[
        "delta",
        "iceberg",
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("mysql", marks=pytest.mark.mysql),
    ]
)
def target(spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Target:
    """Each sink with shapes."""
    if request.param == "delta":
        path = tmp_path / "tables"
        return Target("delta", {}, lambda name: read_delta(spark, path / "shop" / name))
    if request.param == "iceberg":
        lake = IcebergBackend(spark, kafka_broker, tmp_path)
        return Target("iceberg", lake.settings(), lambda name: spark.read.table(lake.name(name)))

    class Database(JdbcBackend):
        database = request.param

    serve(Database, request)
    backend = Database(spark, kafka_broker, tmp_path)

    def read(name: str) -> DataFrame:
        found = backend.frame(name)
        nested = {"more": fn.from_json("more", "map<string, string>")} if "more" in found.columns else {}
        return found.withColumns(nested)

    return Target("jdbc", backend.settings(), read)


def read_delta(spark: SparkSession, path: Path) -> DataFrame:
    """Return a Delta table."""
    return spark.read.format("delta").load(str(path))


@pytest.mark.long
def test_older_and_lost_checkpoints_change_nothing(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, target: Target
) -> None:
    """A snapshot whose second split waits for its end, changes, and the same records once more."""
    feed = Feed(kafka_broker, prefix)
    tables = {name: feed.table(table_schema(prefix, name)) for name in ("history", "versions", "deleted", "plain")}
    given = settings(kafka_broker, prefix, tmp_path, sink=target.sink) | target.settings
    given |= {"sink.shape.overrides": SHAPES, "add.fields": "source.pos:pos"}
    # A deleted row has the values of the target, and versions are those of its columns.
    given |= {"transforms": "t", "transforms.t.source-table": r"shop\.deleted, shop\.versions"}
    given["transforms.t.projection"] = "id, name, map('upper', upper(name)) AS more"
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"
    rows = {key: {"id": key, "name": "read"} for key in range(4)}

    def write(pos: int) -> None:
        """Write an update and a delete to each table."""
        for table in tables.values():
            feed.write(table.change("u", rows[0], {**rows[0], "name": f"at {pos}"}, pos=pos))
            feed.write(table.change("d", {**rows[0], "name": f"at {pos}"}, None, pos=pos + 1))
            feed.write(table.change("c", None, rows[0], pos=pos + 2))

    for table in tables.values():
        table.last_split = 1
        feed.write(table.snapshot(prefix, 0, [rows[0], rows[1]], low=10, high=20))
        feed.write([table.end(prefix, 0, high=20, rows=2)])
        feed.write(table.snapshot(prefix, 1, [rows[2], rows[3]], low=30, high=40))
    consume(spark, given)
    shutil.copytree(checkpoint, backup)
    for table in tables.values():
        feed.write([table.end(prefix, 1, high=40, rows=2)])
    write(100)
    consume(spark, given)
    before = {name: sorted(map(str, target.read(name).collect())) for name in tables}

    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    consume(spark, given)
    assert {name: sorted(map(str, target.read(name).collect())) for name in tables} == before
    write(200)
    consume(spark, given)

    shutil.rmtree(checkpoint)
    feed.write(tables["deleted"].change("d", {"id": 1, "name": "last"}, None, pos=290))
    write(300)
    consume(spark, given)

    kinds = {
        key: " ".join(kind for kind, _ in entries) for key, entries in changelog_of(target.read("history")).items()
    }
    assert kinds == {0: "+I" + " -U +U -D +I" * 3, **dict.fromkeys((1, 2, 3), "+I")}
    versions = versions_of(target.read("versions"))
    assert current(versions) == {key: {**each, "more": {"upper": "READ"}} for key, each in rows.items()}
    names = [each["name"] for each in versions[0]]
    assert names == ["read", "at 100", "read", "at 200", "read", "at 300", "read"]
    assert {key: len(each) for key, each in versions.items() if key} == {1: 1, 2: 1, 3: 1}
    found = {each["id"]: (each["__deleted"], each["more"]["upper"]) for each in target.read("deleted").collect()}
    assert found == {**dict.fromkeys(rows, (False, "READ")), 1: (True, "LAST")}
    assert {each["id"]: each["__pos"] for each in target.read("plain").collect()} == {0: 302, 1: 10, 2: 30, 3: 30}
