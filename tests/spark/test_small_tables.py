"""Small tables: records of several are read together, and a small Delta table is written whole instead of merged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tailrace.spark_consumer.source.group_reader import SharedReads
from tailrace.spark_consumer.source.kafka import range_options
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange
from tailrace.spark_consumer.tables.pool import TablePool
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, Row, table_schema
from tests.spark.running import consume, settings, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.tables.work import TableWork


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("follows", "operation"), [("false", "STREAMING UPDATE"), pytest.param("true", "MERGE", marks=pytest.mark.long)]
)
def test_many_small_tables(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, *, follows: str, operation: str
) -> None:
    """A table whose changes somebody follows gets a MERGE; both ways give the same rows, and skip what is applied."""
    feed = Feed(kafka_broker, prefix)
    tables = [feed.table(table_schema(prefix, f"t{number}")) for number in range(8)]
    given = settings(kafka_broker, prefix, tmp_path) | {"sink.properties.delta.enableChangeDataFeed": follows}
    rows: list[Row] = [{"id": key, "name": "a"} for key in range(4)]
    for table in tables:
        feed.write(m for row in rows for m in table.change("c", None, row, pos=10 + row["id"]))
    consume(spark, given)
    for number, table in enumerate(tables):
        feed.write(
            [
                *table.change("u", rows[0], {"id": 0, "name": f"b{number}"}, pos=20),
                *table.change("u", {"id": 0, "name": f"b{number}"}, {"id": 0, "name": f"c{number}"}, pos=21),
                *table.change("d", rows[1], None, pos=22),
                *table.change("u", rows[2], {"id": 2, "name": "stale"}, pos=5),
                *table.change("c", None, {"id": 9, "name": "new"}, pos=23),
                *table.change("c", None, {"id": 10, "name": "short"}, pos=24),
                *table.change("d", {"id": 10, "name": "short"}, None, pos=25),
            ]
        )
    consume(spark, given)
    # The ledger says what is applied, also without the checkpoint.
    given["checkpointLocation"] = str(tmp_path / "another")
    status = consume(spark, given)

    for number in range(8):
        assert table_rows(spark, tmp_path, f"t{number}") == {
            0: {"id": 0, "name": f"c{number}"},
            2: rows[2],
            3: rows[3],
            9: {"id": 9, "name": "new"},
        }
        history = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/tables/shop/t{number}`").collect()
        assert [row["operation"] for row in history] == [operation, "WRITE", "CREATE TABLE"]
    assert status.as_dict()["table_states"] == {"streaming": 8}


def test_group_that_fails_has_errors(spark: SparkSession) -> None:
    """No table of it may count as written."""

    class Broken(SharedReads):
        def of(self, spark: SparkSession, ranges: Sequence[TopicRange]) -> Any:  # noqa: ARG002
            raise OSError("no space left on device")

    class Never:
        topic, offsets = "a", 1
        found = TopicRange("a", {0: OffsetRange(0, 1)})

    pool = TablePool(spark, 2)
    errors = pool.run([cast("TableWork", Never())], lambda _work, _result: None, None, Broken({}))

    assert [(topic, str(error)) for topic, error in errors.items()] == [("a", "no space left on device")]


def test_ranges_that_cannot_be_read_together(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str) -> None:
    """One of them does not exist: each table reads its own range then."""
    feed = Feed(kafka_broker, prefix)
    tables = [feed.table(table_schema(prefix, name)) for name in ("a", "b")]
    for table in tables:
        feed.write(m for key in range(3) for m in table.change("c", None, {"id": key, "name": "x"}, pos=10 + key))
    topics = [table.schema.topic for table in tables]
    client = {"kafka.bootstrap.servers": kafka_broker.bootstrap, "kafkaConsumer.pollTimeoutMs": "10000"}
    reads = SharedReads(range_options(client=client, query_id="q", extra={}))
    whole = [TopicRange(topic, {0: OffsetRange(0, 3)}) for topic in topics]
    beyond = TopicRange(topics[1], {0: OffsetRange(500, 510)})

    with reads.of(spark, whole):
        found = reads.records(whole[0])
        assert found is not None
        assert sorted((row["topic"], row["offset"]) for row in found.collect()) == [(topics[0], n) for n in range(3)]
        assert reads.records(TopicRange(topics[0], {0: OffsetRange(1, 3)})) is None  # it reads its own part
    with reads.of(spark, [whole[0], beyond]):
        assert reads.records(whole[0]) is None
    assert reads.records(whole[0]) is None
