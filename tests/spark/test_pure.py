"""The parts that need no Spark session: which topics, which splits, which schema, which first load."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import pytest

from schemas.connect import ConnectField
from schemas.errors import ConfigError, KafkaFailure, SchemaError, SinkError
from schemas.sequence import Sequence
from schemas.watermark import LogPosition, Watermark, WatermarkKind
from spark_consumer.normalize.order import file_number, position_sequence
from spark_consumer.normalize.summary import SplitFacts
from spark_consumer.normalize.window import judge
from spark_consumer.session import coordinates
from spark_consumer.sink.delta_table import DeltaTable
from spark_consumer.sink.first_load import FirstLoad
from spark_consumer.source import offsets
from spark_consumer.source.control import ControlTopic
from spark_consumer.source.kafka import stream_options, subscribe_pattern
from spark_consumer.source.runs import SnapshotRuns
from spark_consumer.source.schema_tracker import SchemaTracker
from spark_consumer.source.types import plan
from tests.spark.records import Table, connect, decimal, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = Sequence(1, 7, 100, 0, 0)


def end(split: str, rows: int, backfill: int, pos: int = 10) -> Watermark:
    """Return an END record."""
    return mark(split, WatermarkKind.END, pos=pos, rows=rows, backfill=backfill)


def mark(
    split: str, kind: WatermarkKind, *, run: str = "run1", pos: int = 10, rows: int = 0, backfill: int = 0
) -> Watermark:
    """Return a watermark record."""
    position = LogPosition(1, "log.000007", pos, "", "u")
    return Watermark(kind, split, run, "p.d.t", "d", "t", 0, None, None, False, position, rows, 0, backfill, "f", 1)


def facts(split: str | None, rows: int = 0, changes: int = 0) -> SplitFacts:
    """Return the facts of one split."""
    return SplitFacts(split, rows, changes, None)


@pytest.mark.parametrize(
    ("topic", "read"),
    [
        ("a.b.db.table", True),
        ("a.b.db.table.with.dots", True),
        ("a.b.tailrace.watermarks", True),
        ("a.b.tailrace.orders", True),
        ("a.b.tailrace.state", False),
        ("a.b.tailrace.schemas", False),
        ("a.b.transaction", False),
        ("a.b", False),
        ("__debezium-heartbeat.a.b", False),
        ("axb.db.table", False),
        ("changelog.a.b.db.table", False),
    ],
)
def test_topics_of_a_prefix(topic: str, *, read: bool) -> None:
    # Spark looks for the pattern anywhere in the name.
    assert bool(re.search(subscribe_pattern("a.b"), topic)) is read


def test_stream_options_cannot_be_weakened() -> None:
    options = stream_options(
        client={"kafka.isolation.level": "read_uncommitted"},
        prefix="p",
        max_offsets=5,
        extra={"failOnDataLoss": "false", "startingOffsets": "latest"},
    )

    assert options["kafka.isolation.level"] == "read_committed"
    assert (options["failOnDataLoss"], options["startingOffsets"]) == ("true", "earliest")
    assert (options["includeHeaders"], options["maxOffsetsPerTrigger"]) == ("true", "5")


def test_binlog_files_are_numbers() -> None:
    assert file_number("binlog.999999") < file_number("binlog.1000000")
    assert position_sequence(LogPosition(2, "b.000010", 5, "", "")) == (2, 10, 5, 0, 0)


def test_split_is_complete_when_its_counts_match_end() -> None:
    verdict = judge(
        [facts("a", 3, 1), facts("b", 2), facts("c", 1), facts(None, 0, 9)], [end("a", 3, 1), end("b", 2, 1)]
    )

    assert verdict.high == {"a": (1, 7, 10, 0, 0)}
    assert verdict.incomplete == {"b", "c"}
    assert [e.split for e in verdict.pending] == ["b"]


def test_empty_split_is_complete_at_once_and_end_may_come_first() -> None:
    verdict = judge([], [end("empty", 0, 0), end("early", 2, 0)])

    assert set(verdict.high) == {"empty"}
    assert verdict.incomplete == frozenset()
    assert [e.split for e in verdict.pending] == ["early"]


def test_more_records_than_end_says_is_an_error() -> None:
    with pytest.raises(KafkaFailure, match="split a has more records"):
        judge([facts("a", 4, 0)], [end("a", 3, 0)])


def test_newest_schema_wins_whatever_the_order() -> None:
    old, new = table_schema("p", "t"), table_schema("p", "t", ConnectField("extra", connect("int32")))
    for versions in ([(old, 1), (new, 2)], [(new, 2), (old, 1)]):
        tracker = SchemaTracker(ControlTopic("p.tailrace.schemas", {}))
        for schema, version in versions:
            tracker.learn(schema.to_json(version=version))
        assert tracker.get("p.shop.t") == new


def test_unknown_topic_and_foreign_record_are_told() -> None:
    tracker = SchemaTracker(ControlTopic("p.tailrace.schemas", {}))
    with pytest.raises(SchemaError, match="no table schema is published"):
        tracker.get("p.shop.t")
    with pytest.raises(SchemaError, match="not a table schema"):
        tracker.learn(b"{}")


def test_first_run_is_the_earliest_and_starts_at_its_least_low() -> None:
    runs = SnapshotRuns(ControlTopic("p.tailrace.watermarks", {}))
    for record in (
        mark("s1", WatermarkKind.LOW, pos=50),
        mark("s2", WatermarkKind.LOW, pos=40),
        mark("s2", WatermarkKind.END, pos=5),
        mark("s3", WatermarkKind.LOW, run="run2", pos=1),
    ):
        runs.add(record)

    first = runs.first("p.d.t")

    assert first is not None
    assert (first.id, first.start) == ("run1", (1, 7, 40, 0, 0))
    assert runs.splits_of("run1", ["s1", "s2", "s3", "unknown"]) == ["s1", "s2"]


@pytest.mark.parametrize(
    ("seen", "foreign"),
    [
        ([facts("s1", 5)], False),
        ([facts("s1", 5), facts(None, 0, 3)], False),
        ([facts(None, 0, 3)], False),
        ([facts("s1", 5), facts("of another run", 1)], True),
        ([facts("s1", 5), facts(None, 1)], True),  # a row that was read again
    ],
)
def test_first_load_is_closed_by_what_the_promise_does_not_cover(seen: list[SplitFacts], *, foreign: bool) -> None:
    assert FirstLoad("run1", START).meets_other_run(seen, ["s1"]) is foreign


def test_first_load_belongs_to_the_query_that_made_the_table() -> None:
    runs = SnapshotRuns(ControlTopic("w", {}))
    runs.add(mark("s1", WatermarkKind.LOW, pos=40))
    stored = {"tailrace.query": "q1", **FirstLoad.properties(runs.first("p.d.t"))}

    assert FirstLoad.from_properties(stored, "q1") == FirstLoad("run1", Sequence(1, 7, 40, 0, 0))
    early = FirstLoad("run1", Sequence(1, 7, 40, 0, 0), frozenset({-5, 17}))
    assert FirstLoad.from_properties({**stored, **early.early_property}, "q1") == early
    assert FirstLoad.from_properties(stored, "q2") is None
    assert FirstLoad.from_properties({"tailrace.query": "q1"}, "q1") is None


def test_offset_log_that_is_not_understood_is_not_trusted() -> None:
    assert offsets.parse('v1\n{"batchWatermarkMs":0}\n{"p.d.t":{"0":5}}') == {"p.d.t": {"0": 5}}
    assert offsets.parse('v2\n{}\n{"p.d.t":{"0":5}}') is None
    assert offsets.parse('v1\n{}\n{"p.d.t":{"0":5}}\n{"other":{"0":1}}') is None
    assert offsets.parse("v1\n{}\n17") is None


def test_decimal_beyond_38_digits_is_refused_with_the_remedy() -> None:
    with pytest.raises(SchemaError, match=r"decimal\.handling\.mode=string"):
        plan(decimal(65, 30), column="c", topic="p.d.t")


def test_jars_are_known_for_this_spark_and_refused_for_another() -> None:
    assert any("delta-spark_4.1" in jar for jar in coordinates("delta", "4.1.3"))
    with pytest.raises(ConfigError, match=r"Spark 4\.3\.0; use Spark 4\.1"):
        coordinates("delta", "4.3.0")


def test_tombstone_follows_a_delete() -> None:
    made = Table(table_schema("p", "t")).change("d", {"id": 1, "name": "a"}, None, pos=5)

    assert [m.value is None for m in made] == [False, True]


@pytest.mark.parametrize("exists", [False, True])
def test_a_table_without_key_is_no_delta_table(exists: bool) -> None:
    """The producer publishes no key where rows show its columns masked; told before Spark is asked for anything."""
    schema = table_schema("p", "t", key=())
    table = DeltaTable(cast("SparkSession", None), "/nowhere")

    with pytest.raises(SinkError, match="has no key") as caught:
        table.evolve(schema) if exists else table.create(schema, {})

    assert "leave key columns out of column.mask" in caught.value.hint
