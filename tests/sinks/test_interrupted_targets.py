"""A schema change that was interrupted, if more happens before the next start: statements, changes of other shards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.sink.jdbc_session import Session
from tailrace.spark_consumer.sink.target_table import TargetTable
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner, CutOffError
from tests.sinks.test_exception_mode import NUMBER, add, records_of, rename
from tests.sinks.test_interrupted_evolution import end_after, on_each_target
from tests.sinks.test_transforms import ProjectedDelta, alteration, shards
from tests.spark.records import Feed, connect, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def _end_after_a_commit(patches: pytest.MonkeyPatch) -> None:
    """Let the first statement that stores an attempt, or changes a table of a database, be the last act of a process.

    A database stores the attempt with the statement.
    """
    end_after(patches, TargetTable, "alter", "tailrace.altering")
    end_after(patches, Session, "execute", "ALTER TABLE")


@on_each_target
def test_later_statements_can_concern_a_column_whose_type_was_to_change(
    backend: type[ProjectedDelta],
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
) -> None:
    """The process ends after the first change of the target; meanwhile the source renames the column."""
    target, feed = backend(spark, kafka_broker, tmp_path), Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", INTEGER, ConnectField("k", NUMBER)))
    run = BatchRunner(feed, table, target, tmp_path, {"schema.change.behavior": "evolve"})
    run.batch(table.change("c", None, {**row(1, 1), "k": 2}, pos=100))
    statements = records_of(feed, table, ((rename("n", "m"), add("n", 5)),))[:-1]
    columns = {each.name: each for each in table.schema.columns} | {"k": ConnectField("k", connect("int64"))}
    table.schema = replace(table.schema, columns=tuple(columns.values()))
    statements.append(table.published(prefix, version=250))

    with pytest.MonkeyPatch.context() as patches:
        _end_after_a_commit(patches)
        with pytest.raises(CutOffError):
            run.batch(statements, table.change("c", None, {**row(2, 9), "k": 1 << 40, "m": 9}, pos=300))
    later = alteration(table, 400, rename("k", "z"))
    columns["k"] = ConnectField("z", connect("int64"))
    table.schema = replace(table.schema, columns=tuple(columns.values()))
    feed.write([later, table.published(prefix, version=450)])
    run.repeat()

    assert run.parked() == {}
    assert sorted(target.read("shop", "t"), key=lambda stored: stored["id"]) == [
        {**row(1, 5), "m": 1, "z": 2},
        {**row(2, 9), "m": 9, "z": 1 << 40},
    ]


@on_each_target
def test_other_shards_can_add_the_columns_that_are_left(
    backend: type[ProjectedDelta],
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
) -> None:
    """The process of a shard ends after it has stored its attempt; then the other shard makes the same changes."""
    target = backend(spark, kafka_broker, tmp_path)
    run, one, other = shards(target, prefix)
    run.batch(*(table.change("c", None, row(1, 1), pos=100) for table in (one, other)))
    changes = ((rename("n", "m"), add("n", 5), add("k", 6)),)
    after = {"m": 9, "n": 9, "k": 9}

    with pytest.MonkeyPatch.context() as patches:
        _end_after_a_commit(patches)
        run.batch(records_of(run.feed, one, changes), one.change("c", None, {**row(2, 9), **after}, pos=300))
    assert run.parked().keys() == {one.schema.topic}
    run.restart()
    run.others, run.table = [], other
    run.batch(records_of(run.feed, other, changes), other.change("c", None, {**row(2, 9), **after}, pos=300))
    run.others = [one]
    run.batch()

    assert run.parked() == {}
    found = {(int(each["shard"]), each["id"]): (each["m"], each["n"], each["k"]) for each in target.read("shop", "t")}
    assert found == {(1, 1): (1, 5, 6), (1, 2): (9, 9, 9), (2, 1): (1, 5, 6), (2, 2): (9, 9, 9)}
