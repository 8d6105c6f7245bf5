"""Targets that several queries or routes lead to: the owner of rows is stored in the target, and others are refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tailrace.schemas.alteration import AlterationKind, ColumnChange
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.statements import assignments
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend, WithSettings
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import JdbcBackend
from tests.sinks.test_delta_targets import CatalogBackend
from tests.sinks.test_transforms import (
    SHARDS,
    ProjectedDelta,
    ProjectedIceberg,
    ProjectedMySql,
    ProjectedParquet,
    ProjectedPostgres,
    ProjectedUpsertKafka,
    alteration,
    shards,
)
from tests.spark.records import Feed, Table
from tests.spark.test_parking import delete_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

OF_THE_FIRST = {**SHARDS, "transforms.t.projection": "int(concat(left(__schema_name__, 0), '1')) AS shard, *"}
"""Every table gets the shard value of the database shop_1."""
BACKENDS = [
    ProjectedDelta,
    ProjectedPostgres,
    ProjectedUpsertKafka,
    ProjectedParquet,
    pytest.param(ProjectedIceberg, marks=pytest.mark.long),
    pytest.param(ProjectedMySql, marks=pytest.mark.long),
]


def query(backend: SinkBackend, feed: Feed, table: Table, work: Path, rules: dict[str, str]) -> BatchRunner:
    """Return a query of its own with one table; all write to the same target."""
    more = {"sink.topic": f"out-{feed.prefix}.{{table}}"} if backend.sink == "upsert-kafka" else {}
    return BatchRunner(feed, table, backend, work / table.schema.database, {**rules, **more})


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_two_queries_do_not_give_two_tables_one_shard(
    backend: type[ProjectedDelta], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The second query is refused, also after a restart; with a value of its own it goes on."""
    target = backend(spark, kafka_broker, tmp_path)
    run, one, other = shards(target, prefix)
    feed, target.added = run.feed, {}
    first, second = query(target, feed, one, tmp_path, SHARDS), query(target, feed, other, tmp_path, OF_THE_FIRST)
    third = query(target, feed, other, tmp_path / "own", SHARDS)
    first.batch(one.change("c", None, row(1, 1), pos=100))

    for attempt in (partial(second.batch, other.change("c", None, row(1, 2), pos=101)), second.repeat):
        with pytest.raises(SinkError, match="rows of another table") as caught:
            attempt()
        assert caught.value.context["table_topic"] == one.schema.topic
        assert caught.value.context["batch_topic"] == other.schema.topic
        assert caught.value.context["values"] == {"shard": "1"}

    third.batch(other.change("c", None, row(2, 2), pos=102))
    first.restart()
    first.batch(one.change("c", None, row(3, 3), pos=110))
    if backend.sink in {"delta", "jdbc"}:
        assert rows_of(target) == {(1, 1): 1, (1, 3): 3, (2, 1): 2, (2, 2): 2}


@pytest.mark.parametrize(
    "backend",
    [
        ProjectedDelta,
        *(pytest.param(each, marks=pytest.mark.long) for each in (ProjectedIceberg, ProjectedPostgres, ProjectedMySql)),
    ],
    indirect=True,
)
def test_two_queries_in_turns_keep_what_the_other_one_has_applied(
    backend: type[ProjectedDelta], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Each has the target open, and knows the ledger of the other shard as it was then; no row comes twice or back."""
    target = backend(spark, kafka_broker, tmp_path)
    run, one, other = shards(target, prefix)
    target.added = {}
    queries = [(table, query(target, run.feed, table, tmp_path, SHARDS)) for table in (one, other)]
    for key in (1, 2, 3):
        for table, each in queries:
            each.batch(table.change("c", None, row(key, key), pos=100 + key))
    for table, each in queries:
        each.batch(table.change("d", row(1, 1), None, pos=200))
    expected = {(shard, key): key for shard in (1, 2) for key in (2, 3)}
    assert rows_of(target) == expected

    for table, _ in queries:
        repeated = query(target, run.feed, table, tmp_path / "again", SHARDS).from_beginning()
        repeated.batch(until={0: 2})  # the row that was deleted later
        assert rows_of(target) == expected


ROUTES = {name: value for name, value in SHARDS.items() if name.startswith("routes")}


@pytest.mark.parametrize("backend", [ProjectedUpsertKafka, ProjectedParquet], indirect=True)
def test_two_queries_do_not_write_two_tables_to_one_target(
    backend: type[ProjectedDelta], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A target of one table takes no second one, nor a shard; the first one goes on."""
    target = backend(spark, kafka_broker, tmp_path)
    run, one, other = shards(target, prefix)
    feed, target.added = run.feed, {}
    first = query(target, feed, one, tmp_path, ROUTES)
    first.batch(one.change("c", None, row(1, 1), pos=100))

    for rules in (ROUTES, SHARDS):
        second = query(target, feed, other, tmp_path, rules)
        with pytest.raises(SinkError, match="belongs to another topic") as caught:
            second.batch(other.change("c", None, row(1, 2), pos=100))
        assert caught.value.context["table_topic"] == one.schema.topic

    first.restart()
    first.batch(one.change("c", None, row(2, 2), pos=110))


def rows_of(target: ProjectedDelta) -> dict[tuple[int, int], int]:
    """Return the value of n by shard and key; a duplicate is an error."""
    rows = target.read("shop", "t")
    found = {(int(each["shard"]), each["id"]): each["n"] for each in rows}
    assert len(found) == len(rows), "duplicate key in the table"
    return found


def create_with_decimal(target: SinkBackend) -> None:
    """Create the table with a column for shards whose values have other texts than those of the transform."""
    if isinstance(target, JdbcBackend):
        target.create_schema()
        kind, text = ("DECIMAL(12, 2)", "VARCHAR(50)") if target.is_mysql else ("NUMERIC", "TEXT")
        columns = f"shard {kind} NOT NULL, id BIGINT NOT NULL, name {text}, n INTEGER, PRIMARY KEY (shard, id)"
        target.execute(f"CREATE TABLE {target.table('t')} ({columns})")
        return
    columns = "shard DECIMAL(12, 2), id BIGINT, name STRING, n INT"
    if isinstance(target, ProjectedIceberg):
        target.execute(f"CREATE SCHEMA IF NOT EXISTS {target.schema_name}")
        target.execute(f"CREATE TABLE {target.schema_name}.shop_t ({columns}) USING ICEBERG")
    else:
        target.execute(f"CREATE TABLE delta.`{target.work / 'tables' / 'shop' / 't'}` ({columns}) USING DELTA")


def recreate_topic(feed: Feed, table: Table) -> None:
    """Delete the topic of a table and create it again, with more records than it had."""
    delete_topic(feed.broker, table.schema.topic)
    feed.broker.create_topic(table.schema.topic)
    feed.write(message for key in range(5, 10) for message in table.change("c", None, row(key, key), pos=300 + key))


@pytest.mark.parametrize(
    "backend",
    [
        ProjectedPostgres,
        pytest.param(ProjectedDelta, marks=pytest.mark.long),
        pytest.param(ProjectedIceberg, marks=pytest.mark.long),
        pytest.param(ProjectedMySql, marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_statements_of_one_shard_concern_its_rows_in_any_type(
    backend: type[ProjectedDelta], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A truncate event, and a topic that is created again: the named statement removes the rows of this shard."""
    target = backend(spark, kafka_broker, tmp_path)
    create_with_decimal(target)
    run, one, other = shards(target, prefix)
    run.batch(*(table.change("c", None, row(1, number), pos=100) for number, table in enumerate((one, other), 1)))
    run.batch(one.truncate(pos=200), one.change("c", None, row(2, 1), pos=210))
    assert rows_of(target) == {(1, 2): 1, (2, 1): 2}

    recreate_topic(run.feed, one)
    run.batch(other.change("c", None, row(3, 3), pos=310))
    position = run.parked()[one.schema.topic]
    assert "was deleted and created again" in position["reason"]
    assert rows_of(target) == {(1, 2): 1, (2, 1): 2, (2, 3): 3}
    target.execute(position["details"]["statement"])
    run.restart()
    run.retry()

    assert run.parked() == {}
    assert rows_of(target) == {(2, 1): 2, (2, 3): 3} | {(1, key): key for key in range(5, 10)}
    run.restart()
    run.batch(one.change("u", row(5, 5), row(5, 6), pos=400), other.change("d", row(3, 3), None, pos=400))
    assert rows_of(target) == {(2, 1): 2, (1, 5): 6} | {(1, key): key for key in range(6, 10)}


@pytest.mark.parametrize(
    "backend", [ProjectedDelta, pytest.param(ProjectedIceberg, marks=pytest.mark.long)], indirect=True
)
def test_shard_goes_on_behind_a_truncation_alone(
    backend: type[ProjectedDelta], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The first commit of a shard has no offsets, and the one with its rows fails."""
    target = backend(spark, kafka_broker, tmp_path)
    run, one, other = shards(target, prefix)
    run.batch(other.change("c", None, row(3, 3), pos=100))

    run.batch(one.truncate(pos=200), one.change("c", None, row(2, 1), pos=210), cut=("before", "_append"))
    assert run.parked().keys() == {one.schema.topic}
    run.restart()
    run.retry()

    assert run.parked() == {}
    assert rows_of(target) == {(1, 2): 1, (2, 3): 3}


@pytest.mark.long
def test_shard_of_a_topic_goes_on_after_its_records_were_removed(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    target = ProjectedUpsertKafka(spark, kafka_broker, tmp_path)
    run, one, other = shards(target, prefix, sink__topic=f"latest.out-{prefix}.{{table}}")
    run.batch(*(table.change("c", None, row(1, number), pos=100) for number, table in enumerate((one, other), 1)))
    recreate_topic(run.feed, one)
    run.batch(other.change("c", None, row(3, 3), pos=310))
    assert f"tailrace.topic={one.schema.topic}" in run.parked()[one.schema.topic]["hint"]

    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    producer.produce(f"latest.out-{prefix}.t", key=b'{"shard":1,"id":1}', value=None)
    assert producer.flush(60) == 0
    run.restart()
    run.retry()

    assert run.parked() == {}
    records = target.records(replace(one.schema, topic=f"out-{prefix}.t"))
    last = {(key["shard"], key["id"]): value and value["n"] for key, value in records}
    assert last == {(1, 1): None, (2, 1): 2, (2, 3): 3} | {(1, key): key for key in range(5, 10)}


@pytest.mark.long
def test_copy_of_a_shared_table_gets_no_row_twice(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The copy was made during the initial load, with the properties: which records it has is not known."""
    original, copy = (ProjectedDelta(spark, kafka_broker, tmp_path / name) for name in ("original", "copy"))
    first, one, other = shards(original, prefix)
    copy.added = SHARDS
    second = BatchRunner(first.feed, one, copy, copy.work)
    loaded = [
        [*table.snapshot(prefix, 0, [row(1), row(2)], low=10, high=20), table.end(prefix, 0, high=20, rows=2)]
        for table in (one, other)
    ]
    first.batch(*loaded)
    path = original.work / "tables" / "shop" / "t"
    properties = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]["properties"]
    assert any(name.endswith(f".{other.schema.topic}") and "load" in name.lower() for name in properties), properties
    spark.sql(
        f"CREATE TABLE delta.`{copy.work / 'tables' / 'shop' / 't'}` USING DELTA "
        f"TBLPROPERTIES ({assignments(properties)}) AS SELECT * FROM delta.`{path}`"
    )

    # The second shard finds the commit of the first one.
    second.batch()
    second.others = [other]
    second.batch()

    assert rows_of(copy).keys() == {(shard, key) for shard in (1, 2) for key in (1, 2)}


class Named(WithSettings, CatalogBackend):
    """Tables whose names do not have the database: a route can lead to the name that a table had before."""

    table = "spark_catalog.{schema}.{{table}}"


@pytest.mark.long
def test_table_that_was_written_alone_keeps_its_state_when_it_gets_a_route(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """An ALTER TABLE is not done again; another table does not join it."""
    target = Named(spark, kafka_broker, tmp_path)
    routed, one, other = shards(target, prefix)
    target.added = {}
    alone = {name: value for name, value in SHARDS.items() if name.startswith("transforms")}
    run = BatchRunner(routed.feed, one, target, tmp_path / "alone", alone)
    run.batch(one.change("c", None, row(1, 1), pos=100))
    replaced = (
        ColumnChange(AlterationKind.DROP, "n"),
        ColumnChange(AlterationKind.ADD, "n", schema=INTEGER.schema, value=5),
    )
    run.batch(
        [alteration(one, 200, *replaced), one.published(prefix, version=205)],
        one.change("c", None, row(2, 2), pos=210),
    )
    run.batch(one.change("u", row(1, 5), row(1, 8), pos=300))

    routed.batch(one.change("c", None, row(3, 3), pos=400), other.change("c", None, row(4, 4), pos=400))

    assert "belongs to another topic" in routed.parked()[other.schema.topic]["reason"]
    rows = target.spark.read.table(target.name("t")).collect()
    assert {each["id"]: each["n"] for each in rows} == {1: 8, 2: 2, 3: 3}
