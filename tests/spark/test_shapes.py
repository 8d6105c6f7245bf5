"""Tables of each shape in one query, from an empty target to a checkpoint that is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.embedded.kafka import KafkaBroker
from tests.sinks.test_history import changelog_of
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_table_versions import current, versions_of
from tests.spark.records import Feed, table_schema
from tests.spark.running import consume, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHAPES = r"shop\.history:history;shop\.versions:scd2;SHOP\.deleted:soft-delete"


@pytest.mark.long
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_older_and_lost_checkpoints_change_nothing(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, sink: str
) -> None:
    """A snapshot whose second split waits for its end, changes, and the same records once more."""
    feed = Feed(kafka_broker, prefix)
    tables = {name: feed.table(table_schema(prefix, name)) for name in ("history", "versions", "deleted", "plain")}
    given = settings(kafka_broker, prefix, tmp_path, sink=sink)
    if sink == "iceberg":
        backend = IcebergBackend(spark, kafka_broker, tmp_path)
        given |= backend.settings()
        del given["sink.path"]
    given |= {"sink.shape.overrides": SHAPES, "add.fields": "source.pos:pos"}
    # A deleted row has the values of the target, and versions are those of its columns.
    given |= {"transforms": "t", "transforms.t.source-table": r"shop\.deleted, shop\.versions"}
    given["transforms.t.projection"] = "id, name, map('upper', upper(name)) AS more"
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"
    rows = {key: {"id": key, "name": "read"} for key in range(4)}

    def stored(name: str) -> DataFrame:
        if sink == "iceberg":
            return spark.read.table(backend.name(name))
        return spark.read.format("delta").load(str(tmp_path / "tables" / "shop" / name))

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
    before = {name: sorted(map(str, stored(name).collect())) for name in tables}

    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    consume(spark, given)
    assert {name: sorted(map(str, stored(name).collect())) for name in tables} == before
    write(200)
    consume(spark, given)

    shutil.rmtree(checkpoint)
    feed.write(tables["deleted"].change("d", {"id": 1, "name": "last"}, None, pos=290))
    write(300)
    consume(spark, given)

    kinds = {key: " ".join(kind for kind, _ in entries) for key, entries in changelog_of(stored("history")).items()}
    assert kinds == {0: "+I" + " -U +U -D +I" * 3, **dict.fromkeys((1, 2, 3), "+I")}
    versions = versions_of(stored("versions"))
    assert current(versions) == {key: {**each, "more": {"upper": "READ"}} for key, each in rows.items()}
    names = [each["name"] for each in versions[0]]
    assert names == ["read", "at 100", "read", "at 200", "read", "at 300", "read"]
    assert {key: len(each) for key, each in versions.items() if key} == {1: 1, 2: 1, 3: 1}
    found = {each["id"]: (each["__deleted"], each["more"]["upper"]) for each in stored("deleted").collect()}
    assert found == {**dict.fromkeys(rows, (False, "READ")), 1: (True, "LAST")}
    assert {each["id"]: each["__pos"] for each in stored("plain").collect()} == {0: 302, 1: 10, 2: 30, 3: 30}
