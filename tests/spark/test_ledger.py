"""A table applies a record once, whatever the checkpoint says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.spark_consumer.errors import NewTopicError
from tailrace.spark_consumer.sink.ledger import Ledger, is_applied
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, table_schema
from tests.spark.running import consume, settings, table_rows
from tests.spark.test_parking import delete_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE = TopicRange("p.d.t", {0: OffsetRange(5, 9), 1: OffsetRange(-2, 3)})


@pytest.mark.timeout(1800)
def test_older_and_lost_checkpoints_lose_and_double_nothing(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    rows = {i: {"id": i, "name": "snapshot"} for i in range(8)}
    given = settings(kafka_broker, prefix, tmp_path)
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"

    def update(key: int, name: str, pos: int) -> None:
        changed = {**rows[key], "name": name}
        feed.write(table.change("u", rows[key], changed, pos=pos))
        rows[key] = changed

    feed.write(table.snapshot(prefix, 0, [rows[i] for i in range(4)], low=100, high=110))
    consume(spark, given)
    shutil.copytree(checkpoint, backup)
    feed.write(table.snapshot(prefix, 1, [rows[i] for i in range(4, 8)], low=120, high=130))
    update(1, "second batch", 200)
    consume(spark, given)
    spark.sql(f"OPTIMIZE delta.`{tmp_path / 'tables' / 'shop' / 't'}`")
    feed.write(table.change("d", rows.pop(2), None, pos=210))
    consume(spark, given)

    # Two batches are gone; the next one holds their records and new ones.
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    update(5, "after the restore", 300)
    consume(spark, given)
    assert table_rows(spark, tmp_path, "t") == rows

    shutil.rmtree(checkpoint)
    update(6, "after the loss", 400)
    feed.write(table.snapshot(prefix, 2, [{"id": 9, "name": "late"}], low=410, high=420))
    consume(spark, given)
    assert table_rows(spark, tmp_path, "t") == {**rows, 9: {"id": 9, "name": "late"}}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("records", "lost"), [(2, True), (5, False)], ids=["as_long", "longer"])
def test_new_topic_of_the_same_name_is_noticed(  # noqa: PLR0917 - fixtures
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, records: int, lost: bool
) -> None:
    """The new topic has as many records as the table has applied, or more; ``lost``: the checkpoint is lost too."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    given = settings(kafka_broker, prefix, tmp_path)
    feed.write([m for i in range(2) for m in table.change("c", None, {"id": i, "name": "old"}, pos=100 + i)])
    consume(spark, given)
    delete_topic(kafka_broker, table.schema.topic)
    kafka_broker.create_topic(table.schema.topic)
    feed.write([m for i in range(records) for m in table.change("c", None, {"id": i, "name": "new"}, pos=200 + i)])
    if lost:
        shutil.rmtree(tmp_path / "checkpoint")

    with pytest.raises(NewTopicError, match="was deleted and created again"):
        consume(spark, given)
    assert set(table_rows(spark, tmp_path, "t")) == {0, 1}

    shutil.move(tmp_path / "tables" / "shop" / "t", tmp_path / "former")
    consume(spark, given)
    assert table_rows(spark, tmp_path, "t") == {i: {"id": i, "name": "new"} for i in range(records)}


@pytest.mark.timeout(1800)
def test_changelog_of_a_new_topic_of_the_same_name_is_not_mixed(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    given = settings(kafka_broker, prefix, tmp_path, sink="console")
    feed.write(table.change("c", None, {"id": 1, "name": "old"}, pos=100))
    consume(spark, given)
    delete_topic(kafka_broker, table.schema.topic)
    kafka_broker.create_topic(table.schema.topic)
    feed.write([m for i in range(5) for m in table.change("c", None, {"id": i, "name": "new"}, pos=200 + i)])

    with pytest.raises(NewTopicError, match="was deleted and created again: the changelog"):
        consume(spark, given)
    with pytest.raises(NewTopicError, match="was deleted and created again: the changelog"):
        consume(spark, given)


def test_newest_entry_of_the_own_topic_counts() -> None:
    older = Ledger("p.d.t", {0: 7}, {0: 7})
    newer = older.appended(RANGE)

    assert Ledger.newest("p.d.t", [None, "note of a person", "[1]", newer.metadata, older.metadata]) == newer
    assert Ledger.newest("p.d.other", [newer.metadata]) is None
    assert (newer.applied, newer.merged(RANGE).applied) == ({0: 7}, {0: 9, 1: 3})


def test_ids_of_topics_are_compared_if_both_are_known() -> None:
    known = Ledger("p.d.t", id="a").appended(RANGE).merged(RANGE)

    assert Ledger.newest("p.d.t", [known.metadata]) == known
    assert [known.is_of_another_topic(other) for other in ("a", "b", "")] == [False, True, False]
    assert not Ledger("p.d.t").is_of_another_topic("b")


def test_offsets_before_the_ledger_are_skipped() -> None:
    half = Ledger("p.d.t", {0: 9}, {0: 7}).applied

    assert RANGE.after(half).partitions == {0: (7, 9), 1: (-2, 3)}
    assert not is_applied(half, RANGE)
    assert is_applied({0: 9, 1: 3}, RANGE)
    assert RANGE.after({0: 12, 1: 3}).partitions == {}
