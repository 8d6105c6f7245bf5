"""The whole consumer on real topics: tables and changelogs equal the reference for every batch size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.errors import SinkError
from tests.embedded.kafka import KafkaBroker
from tests.spark.model import Run, reference_changelog
from tests.spark.records import Feed, connect, table_schema
from tests.spark.running import consume, settings, table_rows, topic_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBER = ConnectField("n", connect("int32"))


@pytest.mark.timeout(2700)
@pytest.mark.parametrize(("seed", "batch"), [pytest.param(1, 110, marks=pytest.mark.long), (2, 1000)])
def test_random_run_gives_the_reference_result(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, *, seed: int, batch: int
) -> None:
    feed = Feed(kafka_broker, prefix)
    runs = [
        Run(feed.table(table_schema(prefix, name, NUMBER), partitions=2), prefix, seed + number)
        for number, name in enumerate(("customers", "orders"))
    ]
    # Transactions of two tables in turn, with an aborted one in between that must not be visible.
    for one, other in zip(runs[0].transactions, runs[1].transactions, strict=False):
        feed.write(one)
        feed.write(one, commit=False)
        feed.write(other)
    for run in runs:
        shorter = min(len(r.transactions) for r in runs)
        for transaction in run.transactions[shorter:]:
            feed.write(transaction)

    consume(spark, settings(kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=batch))
    changelog = settings(
        kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=batch, sink="kafka", checkpointLocation=tmp_path / "other"
    )
    status = consume(spark, changelog)

    for run in runs:
        schema = run.table.schema
        messages = [message for transaction in run.transactions for message in transaction]
        assert table_rows(spark, tmp_path, schema.table) == run.rows
        assert topic_records(kafka_broker, f"changelog.{schema.topic}") == reference_changelog(messages, schema.topic)
    assert status.as_dict()["splits_incomplete"] == 0


@pytest.mark.timeout(1800)
def test_split_waits_for_its_end_across_restarts_and_holds_later_changes_of_its_keys(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", NUMBER))
    a, b, c = ({"id": i, "name": "x", "n": i} for i in (1, 2, 3))
    given = settings(kafka_broker, prefix, tmp_path, sink="kafka")
    out = f"changelog.{prefix}.shop.t"

    feed.write(table.snapshot(prefix, 0, [a, b], low=100, high=200))
    feed.write(table.change("u", a, {**a, "n": 10}, pos=150, split=table.split_id(0)))
    feed.write([*table.change("u", b, {**b, "n": 20}, pos=300), *table.change("c", None, c, pos=310)])
    first = consume(spark, given)
    before = topic_records(kafka_broker, out)
    feed.write([*table.change("d", {**b, "n": 20}, None, pos=320)])
    consume(spark, given)
    feed.write([table.end(prefix, 0, high=200, rows=2, backfill=1)])
    last = consume(spark, given)

    assert first.as_dict()["splits_incomplete"] == 1
    assert before == {b'{"id":3}': [("+I", c)]}
    assert last.as_dict()["splits_incomplete"] == 0
    assert topic_records(kafka_broker, out) == {
        b'{"id":1}': [("+I", {**a, "n": 10})],
        b'{"id":2}': [("+I", b), ("-U", b), ("+U", {**b, "n": 20}), ("-D", {**b, "n": 20})],
        b'{"id":3}': [("+I", c)],
    }


@pytest.mark.timeout(1800)
def test_new_column_is_added_and_older_rows_have_null(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    old = feed.table(table_schema(prefix, "t"))
    given = settings(kafka_broker, prefix, tmp_path)
    feed.write(old.change("c", None, {"id": 1, "name": "a"}, pos=100))
    consume(spark, given)
    old.schema = table_schema(prefix, "t", NUMBER)
    # The row and its schema are in one transaction.
    feed.write(
        [
            *old.change("c", None, {"id": 2, "name": "without"}, pos=110),
            old.published(prefix, version=2),
            *old.change("c", None, {"id": 3, "name": "with", "n": 7}, pos=120),
        ]
    )
    consume(spark, given)

    assert table_rows(spark, tmp_path, "t") == {
        1: {"id": 1, "name": "a", "n": None},
        2: {"id": 2, "name": "without", "n": None},
        3: {"id": 3, "name": "with", "n": 7},
    }


@pytest.mark.timeout(1800)
def test_early_key_is_not_appended_twice(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", NUMBER))
    old, new = {"id": 1, "name": "old", "n": 1}, {"id": 1, "name": "new", "n": 2}
    given = settings(kafka_broker, prefix, tmp_path)
    # The LOW watermark is known when the table is created, and the table has a change from before the run.
    feed.write([*table.change("c", None, old, pos=50), *table.snapshot(prefix, 0, [], low=100, high=100)])
    consume(spark, given)
    feed.write(table.snapshot(prefix, 1, [new, {**new, "id": 2}], low=110, high=120))
    consume(spark, given)

    assert table_rows(spark, tmp_path, "t") == {1: new, 2: {**new, "id": 2}}


@pytest.mark.timeout(2700)
@pytest.mark.parametrize(
    ("batch", "created_before"),
    [(9, False), (1000, False), (1000, True), pytest.param(3, False, marks=pytest.mark.long)],
)
def test_incremental_snapshot_ends_with_the_last_record_of_each_key(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, *, batch: int, created_before: bool
) -> None:
    """Rows of a second run after changes, in the batch that creates the table or later, without a wait for END.

    A row can contain a change and still have a sequence from before that change (key 2): it was read during a
    transaction. A change after such a row can already be contained in it (key 3).
    """
    feed = Feed(kafka_broker, prefix)
    first = feed.table(table_schema(prefix, "t", NUMBER))
    incremental = replace(first, run="run2", incremental=True)

    def row(key: int, n: int) -> dict[str, object]:
        return {"id": key, "name": "row", "n": n}

    feed.write(first.snapshot(prefix, 0, [row(key, 0) for key in range(1, 7)], low=100, high=110))
    feed.write([first.end(prefix, 0, high=110, rows=6)])
    feed.write(first.change("u", row(1, 0), row(1, 1), pos=200))
    feed.write(first.change("u", row(2, 0), row(2, 1), pos=305))
    given = settings(kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=batch)
    if created_before:
        consume(spark, given)
    feed.write(first.change("u", row(2, 1), row(2, 2), pos=310))
    feed.write(first.change("d", row(4, 0), None, pos=320))
    # The SELECT of the reader sees the change of key 3 at 400, and keys 7 and 5, which the topic lacks or has wrong.
    selected = [row(1, 1), row(2, 2), row(3, 4), row(5, 5), row(6, 0), row(7, 7)]
    feed.write(incremental.snapshot(prefix, 0, selected, low=300, high=450))
    split = incremental.split_id(0)
    feed.write(incremental.change("u", row(3, 0), row(3, 3), pos=390, split=split))
    feed.write(incremental.change("u", row(3, 3), row(3, 4), pos=400, split=split))
    feed.write(incremental.change("d", row(6, 0), None, pos=410, split=split))
    feed.write([incremental.end(prefix, 0, high=450, rows=6, backfill=3)])
    feed.write(incremental.change("u", row(7, 7), row(7, 8), pos=500))

    consume(spark, given)
    changelog = settings(
        kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=batch, sink="kafka", checkpointLocation=tmp_path / "other"
    )
    status = consume(spark, changelog)

    expected = {1: row(1, 1), 2: row(2, 2), 3: row(3, 4), 5: row(5, 5), 7: row(7, 8)}
    assert table_rows(spark, tmp_path, "t") == expected
    last = {key: rows[-1] for key, rows in topic_records(kafka_broker, f"changelog.{first.schema.topic}").items()}
    assert {data["id"]: data for op, data in last.values() if op != "-D"} == expected
    assert status.as_dict()["splits_incomplete"] == 0


@pytest.mark.timeout(1800)
def test_invalid_value_stops_the_query_with_its_offset(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", NUMBER))
    good = {"id": 1, "name": "a", "n": 1}
    bad = {**good, "id": 2, "n": "x"}
    feed.write([*table.change("c", None, good, pos=100), *table.change("c", None, bad, pos=110)])

    with pytest.raises(SinkError, match=rf"topic {prefix}\.shop\.t, partition 0, offset \d+"):
        consume(spark, settings(kafka_broker, prefix, tmp_path))


@pytest.mark.timeout(1800)
def test_topic_without_schema_is_an_error(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", NUMBER))
    kafka_broker.create_topic(f"{prefix}.shop.stray")
    table.schema = table_schema(prefix, "stray", NUMBER)
    feed.write(table.change("c", None, {"id": 1, "name": "a", "n": 1}, pos=110))

    with pytest.raises(SchemaError, match=rf"no table schema is published for topic {prefix}\.shop\.stray"):
        consume(spark, settings(kafka_broker, prefix, tmp_path))
