"""A table with many bytes in a batch is processed in parts; each part once, also if one fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.runtime.errors import KafkaUnavailableError
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.source.ranges import BatchRanges, OffsetRange, TopicRange
from tailrace.spark_consumer.tables.parking import ParkedTables
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, table_schema
from tests.spark.running import run_query, settings, table_rows, topic_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.sink.base import Sink
    from tailrace.spark_consumer.sink.plugin import SinkPlugin

ROWS = 1500
TOPIC = "p.d.t"


def failing(plugin: SinkPlugin, call: int, sizes: list[int]) -> SinkPlugin:
    """Return a sink that loses the broker before it writes for the ``call``-th time; ``sizes`` gets the others."""

    def open_sink(*arguments: Any) -> Sink:
        sink: Any = plugin.open(*arguments)
        write = sink.write_batch

        def write_batch(batch: Any, batch_id: int) -> None:
            if len(sizes) == call:
                raise KafkaUnavailableError("no broker answers")
            sizes.append(batch.records.count())
            write(batch, batch_id)

        sink.write_batch = write_batch
        opened: Sink = sink
        return opened

    return replace(plugin, open=open_sink)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("sink", "written"), [("delta", 1), ("kafka", 0)])
def test_parts_are_bounded_by_bytes_and_continue_after_a_failure(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, *, sink: str, written: int
) -> None:
    """The changelog holds the rows of the split until its last part is read; the table has those of each part."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"), partitions=2)
    table.last_split = 0
    rows = {i: {"id": i, "name": "x" * 500} for i in range(ROWS)}
    feed.write(table.snapshot(prefix, 0, rows.values(), low=100, high=200))
    rows[3] = {"id": 3, "name": "y"}
    feed.write(table.change("u", {"id": 3, "name": "x" * 500}, rows[3], pos=300))
    feed.write([table.end(prefix, 0, high=200, rows=ROWS)])
    given = settings(kafka_broker, prefix, tmp_path, sink=sink, tailrace__table__max__bytes=400_000)
    sizes: list[int] = []
    position = tmp_path / "checkpoint" / "tailrace" / "parked" / f"{table.schema.topic}.json"

    _, error = run_query(spark, given, lambda plugin: failing(plugin, written, sizes))
    assert isinstance(error, KafkaUnavailableError)
    assert json.loads(position.read_text())["until"]
    # With another limit the part that failed is the same.
    given["tailrace.table.max.bytes"] = "300000"
    status, error = run_query(spark, given, lambda plugin: failing(plugin, -1, sizes))

    assert error is None
    if sink == "delta":
        assert table_rows(spark, tmp_path, "t") == rows
        # About 660 bytes a record; the last 1,000 offsets are one part.
        assert 500 < sizes[0] < 700
        assert sizes[0] + sizes[1] == ROWS + 1
    else:
        found = topic_records(kafka_broker, f"changelog.{table.schema.topic}")
        assert len(found) == ROWS
        assert {data["id"] for records in found.values() for op, data in records if op == "+I"} == rows.keys()
        assert sum(len(records) for records in found.values()) == ROWS + 2
    [now] = status.as_dict()["tables"].values()
    assert now["state"] == "complete"


def test_position_has_all_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """A table that is parked in a batch with records of one partition does not read the others from their start."""
    tables = ParkedTables(str(tmp_path), 100, retry_s=0)
    batch = BatchRanges({TOPIC: {"0": 5, "1": 50}}, {TOPIC: {"0": 9, "1": 50, "2": 3}})

    admitted = tables.admit(spark, batch)
    tables.finish(spark, admitted, {TOPIC: SinkError("it does not fit")})

    [position] = tables.parked()
    assert position.starts == {"0": 5, "1": 50, "2": -2}
    assert position.range_to({"0": 9, "1": 60, "2": 3}).partitions == {
        0: OffsetRange(5, 9),
        1: OffsetRange(50, 60),
        2: OffsetRange(-2, 3),
    }


def test_position_is_removed_when_the_next_batch_has_no_records_of_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Otherwise the table would not use an END certificate that the batch brings."""
    tables = ParkedTables(str(tmp_path), 100, retry_s=0)
    batch = BatchRanges({TOPIC: {"0": 0}}, {TOPIC: {"0": 90}})
    first = TopicRange(TOPIC, {0: OffsetRange(0, 40)})
    admitted = tables.admit(spark, batch)
    tables.plan(spark, first, whole=False)
    tables.advance(spark, first)
    tables.finish(spark, admitted, {})
    assert tables.without_position({TOPIC}) == set()

    tables.admit(spark, BatchRanges(batch.end, batch.end))

    assert tables.without_position({TOPIC}) == {TOPIC}


def test_position_is_kept_while_a_batch_without_the_table_is_processed(spark: SparkSession, tmp_path: Path) -> None:
    """The background reaches the start of the batch that was admitted meanwhile; its records are still to be read."""
    before = ParkedTables(str(tmp_path), 100, retry_s=0)
    batch = BatchRanges({TOPIC: {"0": 40}}, {TOPIC: {"0": 60}})
    before.finish(spark, before.admit(spark, BatchRanges({}, batch.start)), {TOPIC: SinkError("it does not fit")})
    tables = ParkedTables(str(tmp_path), 100, retry_s=0)
    tables.load(spark)

    [chunk] = tables.behind(batch.start, {})
    assert tables.admit(spark, batch) == {}
    tables.finish(spark, {TOPIC: chunk}, {})
    assert tables.behind(batch.start, {}) == []

    later = tables.admit(spark, BatchRanges(batch.end, {TOPIC: {"0": 65}}))
    assert later[TOPIC].partitions == {0: OffsetRange(40, 65)}


def test_position_is_removed_when_the_next_batch_starts(spark: SparkSession, tmp_path: Path) -> None:
    tables = ParkedTables(str(tmp_path), 100, retry_s=0)
    batch = BatchRanges({TOPIC: {"0": 0}}, {TOPIC: {"0": 90}})
    tables.admit(spark, batch)
    first = TopicRange(TOPIC, {0: OffsetRange(0, 40)})
    tables.plan(spark, first, whole=False)

    # After a failure the same part is planned, although the position is at the start of the batch.
    later = ParkedTables(str(tmp_path), 100, retry_s=0)
    later.load(spark)
    admitted = later.admit(spark, batch)
    assert admitted[TOPIC].until(later.planned(TOPIC)) == first
    later.advance(spark, first)
    later.finish(spark, admitted, {})
    assert later.resuming
    later.admit(spark, BatchRanges(batch.end, batch.end))
    assert not later.resuming
    assert list((tmp_path / "tailrace" / "parked").iterdir()) == []
