"""Single parts of the consumer: topic pattern, schemas, initial load, session settings."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.sql import functions as fn
from structlog.testing import capture_logs

from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.sequence import Sequence, file_number
from tailrace.spark_consumer import session
from tailrace.spark_consumer.config import parse
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.normalize.split_progress import SplitStats, summarize
from tailrace.spark_consumer.session import coordinates
from tailrace.spark_consumer.sink import initial_load
from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.initial_load import InitialLoad
from tailrace.spark_consumer.sink.plugin import load_sink
from tailrace.spark_consumer.sink.state import TargetState
from tailrace.spark_consumer.sink.table_names import Location
from tailrace.spark_consumer.source.control import ControlRecord, ControlTopic
from tailrace.spark_consumer.source.kafka import range_options, stream_options
from tailrace.spark_consumer.source.ranges import EARLIEST, OffsetRange, TopicRange, parse_offsets, ranges_between
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.source.topics import TableFilter, subscribe_pattern
from tailrace.spark_consumer.source.types import field_type
from tailrace.spark_consumer.source.version_decoder import merge_schemas
from tailrace.spark_consumer.source.watermarks import SnapshotRuns
from tests.spark.records import Table, connect, decimal, table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REQUIRED = {"bootstrap.servers": "b:1", "topic.prefix": "p", "checkpointLocation": "/c", "sink": "console"}
START = Sequence(1, 7, 100, 0, 0)


def stats(split: str | None, rows: int = 0, changes: int = 0) -> SplitStats:
    """Return the counts of one split."""
    return SplitStats(split, rows, changes, None)


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
    # Spark searches for the pattern anywhere in the name.
    assert bool(re.search(subscribe_pattern("a.b"), topic)) is read


@pytest.mark.parametrize(
    ("included", "excluded", "read"),
    [
        ((), (), {"p.shop.a", "p.shop.b", "p.Shop.c.d", "p.tailrace.watermarks"}),
        (("shop\\.a", "x"), (), {"p.shop.a", "p.tailrace.watermarks"}),
        (("shop\\..*",), ("shop\\.[ab]",), {"p.Shop.c.d", "p.tailrace.watermarks"}),
        ((), ("shop.a",), {"p.shop.b", "p.Shop.c.d", "p.tailrace.watermarks"}),
    ],
)
def test_tables_of_a_prefix_can_be_parted(included: tuple[str, ...], excluded: tuple[str, ...], read: set[str]) -> None:
    topics = ["p.shop.a", "p.shop.b", "p.Shop.c.d", "p.tailrace.watermarks", "p.tailrace.schemas", "p.tailrace.state"]
    pattern = subscribe_pattern("p", TableFilter(included, excluded))

    assert {topic for topic in topics if re.search(pattern, topic)} == read


def test_commas_of_expressions_are_escaped() -> None:
    config = parse({**REQUIRED, "table.include.list": r"shop\.a{1\,2}, shop\.b", "table.exclude.list": "x"})

    assert config.table_filter == TableFilter((r"shop\.a{1,2}", r"shop\.b"), ("x",))


def test_options_of_the_source_are_passed_on() -> None:
    config = parse({**REQUIRED, "startingOffsets": "latest", "failOnDataLoss": "false", "minOffsetsPerTrigger": "9"})
    stream = stream_options(
        client={"kafka.isolation.level": "read_uncommitted"},
        prefix="p",
        tables=TableFilter(),
        max_offsets=5,
        extra=config.source_options,
    )
    table = range_options(client={}, query_id="q", extra=config.source_options)

    assert (stream["kafka.isolation.level"], table["kafka.isolation.level"]) == ("read_committed", "read_committed")
    assert (stream["startingOffsets"], stream["minOffsetsPerTrigger"]) == ("latest", "9")
    # The stream never fails for one topic.
    assert (stream["failOnDataLoss"], table["failOnDataLoss"]) == ("false", "false")
    assert range_options(client={}, query_id="q", extra={})["failOnDataLoss"] == "true"
    assert "startingOffsets" not in table


def test_binlog_files_are_compared_as_numbers() -> None:
    assert file_number("binlog.999999") < file_number("binlog.1000000")
    assert Sequence.at(2, "b.000010", 5) == (2, 10, 5, 0, 0)


def test_schemas_are_ordered_by_their_last_use_whatever_the_order_of_records() -> None:
    old, new = table_schema("p", "t"), table_schema("p", "t", ConnectField("extra", connect("int32")))
    for versions in ([(old, 1), (new, 2)], [(new, 2), (old, 1)]):
        tracker = SchemaTracker(ControlTopic("p.tailrace.schemas", {}))
        for schema, version in versions:
            tracker.add(schema.to_json(sequence=Sequence.at(1, "binlog.000001", version)))
        assert tracker.versions("p.shop.t") == [old, new]
        # The table returns to its first schema.
        tracker.add(old.to_json(sequence=Sequence.at(1, "binlog.000001", 3)))
        assert tracker.versions("p.shop.t") == [new, old]


def test_versions_with_other_keys_are_not_merged() -> None:
    schema = table_schema("p", "t")
    with pytest.raises(SchemaError, match=r"the key of shop\.t changed, so rows before and after it") as caught:
        merge_schemas([schema, replace(schema, key=("id", "name"))])
    assert "run tailrace reload --topic p.shop.t --from latest --config FILE" in caught.value.hint
    assert "send the signal execute-snapshot for the table to the producer" in caught.value.hint


class Published(ControlTopic):
    """A schemas topic whose records are given."""

    def __init__(self, *records: bytes) -> None:
        super().__init__("p.tailrace.schemas", {})
        self._records = [ControlRecord(number, value) for number, value in enumerate(records)]

    def poll(self, _spark: object) -> list[ControlRecord]:
        """Return the records, once."""
        records, self._records = self._records, []
        return records


def test_the_number_of_tables_whose_schemas_are_read_is_logged_once() -> None:
    schemas = [table_schema("p", name) for name in ("a", "b", "c")]
    position = Sequence.at(1, "binlog.000001", 4)
    tracker = SchemaTracker(Published(*(schema.to_json(sequence=position) for schema in [*schemas, schemas[0]])))

    with capture_logs() as logs:
        tracker.refresh(cast("SparkSession", None))
        tracker.refresh(cast("SparkSession", None))

    above_debug = [entry for entry in logs if entry["log_level"] != "debug"]
    assert above_debug == [{"event": "table schemas read", "log_level": "info", "tables": 3, "records": 4}]


def test_unknown_topic_and_invalid_schema_record_are_errors() -> None:
    tracker = SchemaTracker(ControlTopic("p.tailrace.schemas", {}))
    with pytest.raises(SchemaError, match=r"no table schema is published for topic p\.shop\.t") as caught:
        tracker.versions("p.shop.t")
    assert "restart the producer, which publishes it with the next change, or leave the topic" in caught.value.hint
    tracker.add(table_schema("p", "t").to_json(sequence=Sequence.at(1, "binlog.000001", 4)))
    assert tracker.versions("p.shop.t")
    with pytest.raises(
        SchemaError, match=r"p\.tailrace\.schemas is not a table schema(?s:.*)allow only the producer to"
    ):
        tracker.add(b"{}")


def test_first_run_is_the_earliest_and_starts_at_its_least_low() -> None:
    runs = SnapshotRuns(ControlTopic("p.tailrace.watermarks", {}))
    for split, run, pos in (("s1", "run1", 50), ("s2", "run1", 40), ("s3", "run2", 1)):
        runs.add("p.d.t", split, run, Sequence(1, 7, pos, 0, 0))

    first = runs.first("p.d.t")

    assert first is not None
    assert (first.id, first.start) == ("run1", (1, 7, 40, 0, 0))
    assert runs.splits_of("run1", ["s1", "s2", "s3", "unknown"]) == ["s1", "s2"]


@pytest.mark.parametrize(
    ("seen", "other_run"),
    [
        ([stats("s1", 5)], False),
        ([stats("s1", 5), stats(None, 0, 3)], False),
        ([stats(None, 0, 3)], False),
        ([stats("s1", 5), stats("of another run", 1)], True),
        ([stats("s1", 5), stats(None, 1)], True),  # a row of an incremental snapshot
    ],
)
def test_rows_of_another_run_close_the_initial_load(seen: list[SplitStats], *, other_run: bool) -> None:
    assert InitialLoad("run1", START).closes_for(seen, ["s1"]) is other_run


def test_initial_load_belongs_to_the_query_that_created_the_table() -> None:
    runs = SnapshotRuns(ControlTopic("w", {}))
    runs.add("p.d.t", "s1", "run1", Sequence(1, 7, 40, 0, 0))
    run, state = runs.first("p.d.t"), TargetState(query="q1")
    assert run is not None
    load = InitialLoad(run.id, run.start)

    assert load == InitialLoad("run1", Sequence(1, 7, 40, 0, 0))
    assert InitialLoad.of(load.noted(state)) == load
    early = replace(load, early_keys=frozenset({-5, 17}))
    assert InitialLoad.of(early.noted(state)) == early
    assert InitialLoad.of(early.noted(state).without_load()) is None


@pytest.mark.parametrize(
    ("records", "early"),
    [
        ([(1, 7, 40)], False),  # at the start, not before it
        ([(1, 8, 4), (1, 7, 41)], False),
        ([(2, 1, 4)], False),
        ([(1, 7, 39), (1, 9, 4)], True),
        ([(1, 6, 1 << 33)], True),
    ],
)
def test_records_before_the_start_of_an_initial_load_are_early(
    spark: SparkSession, records: list[tuple[int, int, int]], *, early: bool
) -> None:
    """If the counts show that no record is early, the records are not read; they never show it for an early record."""
    rows = [(b"k", None, "u", 1, None, (*position, 0, 0)) for position in records]
    decoded = spark.createDataFrame(
        rows,
        "key binary, split string, op string, ts_ms bigint, checksum bigint, "
        "seq struct<epoch: bigint, file: bigint, pos: bigint, event: bigint, row: bigint>",
    )
    [stat] = summarize(decoded)
    load = InitialLoad("run1", Sequence(1, 7, 40, 0, 0))

    found = load.with_early_keys(decoded, [stat])

    assert stat.earliest == Sequence(*min(records), 0, 0)
    assert found is not None
    assert bool(found.early_keys) is early
    assert found.with_early_keys(cast("DataFrame", None), [stats("s1", 5)]) is found
    if not early:
        assert load.with_early_keys(cast("DataFrame", None), [stat]) is load, "the records were read"


@pytest.mark.parametrize("most", [0, 100])
def test_rows_without_changes_are_appended_and_changed_keys_are_merged(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """With and without a broadcast of the changed keys; the row of an early key is merged."""
    monkeypatch.setattr(initial_load, "BROADCAST_KEYS", most)
    records = [("a", "r"), ("b", "r"), ("b", "u"), ("b", "u"), ("c", "r"), ("c", "d"), ("n", "c"), ("e", "r")]
    decoded = spark.createDataFrame(records, "key string, op string").withColumn("key", fn.col("key").cast("binary"))
    [early] = [row[0] for row in decoded.where("key = X'65' and op = 'r'").select(initial_load.key_hash()).collect()]

    def found(rows: DataFrame) -> list[tuple[str, str]]:
        return sorted((bytes(row["key"]).decode(), row["op"]) for row in rows.collect())

    appended, others = initial_load.append_or_merge(decoded, {early}, changes=4)
    assert found(appended) == [("a", "r")]
    assert found(others) == [("b", "u"), ("b", "u"), ("c", "d"), ("e", "r"), ("n", "c")]
    appended, others = initial_load.append_or_merge(decoded.where("op = 'r'"), (), changes=0)
    assert found(appended) == [("a", "r"), ("b", "r"), ("c", "r"), ("e", "r")]
    assert found(others) == []


def test_earliest_is_never_after_a_record(spark: SparkSession) -> None:
    """Records of two epochs: the least epoch with the least position is before both."""
    decoded = spark.sql(
        "SELECT CAST(NULL AS STRING) split, 'u' op, 1L ts_ms, 0L checksum, "
        "named_struct('epoch', epoch, 'file', file, 'pos', pos) seq FROM VALUES (1L, 9L, 500L), (2L, 3L, 700L) "
        "AS t(epoch, file, pos)"
    )
    assert summarize(decoded)[0].earliest == Sequence(1, 3, 700, 0, 0)


def test_offset_log_of_an_unknown_format_is_refused() -> None:
    assert parse_offsets('v1\n{"batchWatermarkMs":0}\n{"p.d.t":{"0":5}}') == {"p.d.t": {"0": 5}}
    assert parse_offsets('\0v1\n{"p.d.t":{"0":5}}') == {"p.d.t": {"0": 5}}  # the initial offsets
    assert parse_offsets('v2\n{}\n{"p.d.t":{"0":5}}') is None
    assert parse_offsets('v1\n{}\n{"p.d.t":{"0":5}}\n{"other":{"0":1}}') is None
    assert parse_offsets("v1\n{}\n17") is None


def test_batch_has_a_range_for_each_topic_that_advances() -> None:
    start = {"p.d.still": {"0": 3}, "p.d.t": {"0": 5, "1": 7}, "p.d.deleted": {"0": 9}}
    end = {"p.d.still": {"0": 3}, "p.d.t": {"0": 6, "1": 7, "2": 4}, "p.d.new": {"0": 0, "1": 2}}

    found = ranges_between(start, end)

    assert found == {
        "p.d.t": TopicRange("p.d.t", {0: OffsetRange(5, 6), 2: OffsetRange(EARLIEST, 4)}),
        "p.d.new": TopicRange("p.d.new", {1: OffsetRange(EARLIEST, 2)}),
    }
    cut_off = ranges_between({"p.d.t": {"0": 5}}, {"p.d.t": {"0": 2}})
    assert cut_off == {"p.d.t": TopicRange("p.d.t", {0: OffsetRange(EARLIEST, 2)}, {0: 5})}
    assert (found["p.d.t"].offsets, found["p.d.new"].offsets) == (5, 2)


@pytest.mark.parametrize(
    ("schema", "problem", "remedy"),
    [
        (
            decimal(65, 30),
            "is a decimal with more digits than",
            "set decimal.handling.mode=string in the producer, or ",
        ),
        (ConnectSchema("map"), "has a Connect type without a Spark type", ""),
        (
            ConnectSchema("array", items=connect("int64", name="io.debezium.time.Timestamp")),
            "has io.debezium.time.Timestamp inside a struct, array or map",
            "",
        ),
    ],
)
def test_type_that_spark_lacks_is_refused_with_a_hint(schema: ConnectSchema, problem: str, remedy: str) -> None:
    """The records that the topic has name the type too, also when the column is excluded."""
    with pytest.raises(SchemaError, match=f"column 'c' {problem}") as caught:
        field_type(schema, column="c", topic="p.d.t")

    excluded = "exclude the column with column.exclude.list in the producer, then stop the query, move the target table"
    assert caught.value.hint.startswith(f"{remedy}{excluded} away, run tailrace reload --topic p.d.t --from latest")


def test_jars_are_known_for_this_spark_version_only() -> None:
    assert any("delta-spark_4.1" in jar for jar in coordinates([load_sink("delta")], "4.1.3"))
    with pytest.raises(ConfigError, match=r"Spark 4\.3\.0; use Spark 4\.1"):
        coordinates([load_sink("delta")], "4.3.0")


def test_options_of_the_jvm_are_added_once() -> None:
    given = {
        "bootstrap.servers": "b:1",
        "topic.prefix": "p",
        "checkpointLocation": "/c",
        "sink": "console",
    }

    def options(**changes: str) -> str:
        parsed = parse({**given, **{name.replace("__", "."): value for name, value in changes.items()}})
        return session.settings(parsed, [load_sink("console")], {}, spark_version="4.1.3")[
            "spark.driver.extraJavaOptions"
        ]

    assert options().count("-XX:MetaspaceSize=256m") == 1
    own = "-XX:MetaspaceSize=1g"
    assert options(spark__driver__extraJavaOptions=own).count("MetaspaceSize") == 1


@pytest.mark.parametrize(
    ("changes", "variables"),
    [
        ({"spark.remote": "sc://host"}, {}),
        ({"spark.api.mode": "connect"}, {}),
        ({}, {"SPARK_REMOTE": "sc://host"}),
        ({}, {"SPARK_CONNECT_MODE_ENABLED": "1"}),
    ],
)
def test_spark_connect_is_refused(changes: dict[str, str], variables: dict[str, str]) -> None:
    given = {"bootstrap.servers": "b:1", "topic.prefix": "p", "checkpointLocation": "/c", "sink": "console"}
    parsed = parse({**given, **changes})
    [(name, value)] = [*changes.items(), *variables.items()]

    session.require_driver(parse({**given, "spark.api.mode": "classic"}), {})
    with pytest.raises(ConfigError, match=f"{name}={value}: the consumer cannot run through Spark Connect"):
        session.require_driver(parsed, variables)


def test_tombstone_follows_a_delete() -> None:
    made = Table(table_schema("p", "t")).change("d", {"id": 1, "name": "a"}, None, pos=5)

    assert [m.value is None for m in made] == [False, True]


@pytest.mark.parametrize("exists", [False, True])
def test_table_without_key_is_refused_by_the_delta_sink(exists: bool) -> None:
    """The producer publishes no key if a key column is masked; the error comes before any Spark call."""
    schema = table_schema("p", "t", key=())
    table = DeltaTable(cast("SparkSession", None), Location.at("/nowhere"))

    with pytest.raises(SinkError, match="has no key") as caught:
        table.require_owned(schema) if exists else table.create(schema, {})

    assert "do not mask or truncate key columns" in caught.value.hint
