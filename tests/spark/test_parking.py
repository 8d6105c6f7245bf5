"""A table that cannot go on is parked: the other tables go on, and it is taken up again where it stopped."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.runtime.errors import ConfigError, KafkaUnavailableError, SchemaError, TailraceError
from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer import config
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.errors import ControlTopicError, SinkError, concerns_all_tables
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, Table, connect, table_schema
from tests.spark.running import consume, settings, table_rows, topic_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delete_topic(broker: KafkaBroker, name: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = broker.admin()
    admin.delete_topics([name])[name].result(60)
    supervised.wait_until(lambda: name not in admin.list_topics(timeout=60).topics, what="the deletion", deadline_s=300)


@pytest.mark.timeout(1800)
def test_table_is_parked_and_resumed(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    good = feed.table(table_schema(prefix, "good"))
    bad = Table(table_schema(prefix, "bad"))
    kafka_broker.create_topic(bad.schema.topic)
    given = settings(kafka_broker, prefix, tmp_path)
    rows = {i: {"id": i, "name": "x"} for i in range(1, 5)}
    file = tmp_path / "checkpoint" / "tailrace" / "parked" / f"{bad.schema.topic}.json"

    # Its schema is not published: the table cannot be read.
    for key in (1, 2):
        feed.write([*good.change("c", None, rows[key], pos=key), *bad.change("c", None, rows[key], pos=key)])
        with pytest.raises(SchemaError, match="no table schema is published"):
            consume(spark, given)
        assert table_rows(spark, tmp_path, "good").keys() == set(range(1, key + 1))
        assert json.loads(file.read_text())["starts"] == {"0": 0}

    # The backlog is read, and the records of the next batch.
    feed.write([bad.published(prefix)])
    consume(spark, given)
    assert table_rows(spark, tmp_path, "bad") == {1: rows[1], 2: rows[2]}
    feed.write([*good.change("c", None, rows[3], pos=3), *bad.change("c", None, rows[3], pos=3)])
    consume(spark, given)
    feed.write(bad.change("c", None, rows[4], pos=4))
    consume(spark, given)
    assert table_rows(spark, tmp_path, "bad") == rows
    assert table_rows(spark, tmp_path, "good").keys() == {1, 2, 3}
    assert not file.exists()


@pytest.mark.timeout(1800)
def test_running_query_resumes_a_table_on_request(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    good, bad = feed.table(table_schema(prefix, "good")), Table(table_schema(prefix, "bad"))
    kafka_broker.create_topic(bad.schema.topic)
    row = {"id": 1, "name": "x"}
    feed.write([*good.change("c", None, row, pos=1), *bad.change("c", None, row, pos=1)])
    changes = {"trigger.availableNow": "false", "tailrace.parked.table.retry.ms": "0"}
    parsed = config.parse({**settings(kafka_broker, prefix, tmp_path), **changes})
    status = Status(parsed.name, parsed.sink_names)
    running = RunningQuery(spark, parsed, load_sinks(parsed), status)
    ended = threading.Thread(target=running.wait)
    ended.start()

    def state() -> str:
        return str(status.as_dict()["tables"].get(bad.schema.topic, {}).get("state"))

    try:
        supervised.wait_until(lambda: state() == "parked", what="the table to be parked", deadline_s=900)
        feed.write([bad.published(prefix)])
        running.retry_parked()
        supervised.wait_until(lambda: state() == "streaming", what="the table", deadline_s=900)
    finally:
        running.stop()
        ended.join(300)

    assert table_rows(spark, tmp_path, "bad") == {1: row}


def test_lost_broker_or_session_is_not_the_error_of_a_table() -> None:
    assert concerns_all_tables(ControlTopicError("x"))
    assert concerns_all_tables(KafkaUnavailableError("x"))
    assert concerns_all_tables(KeyboardInterrupt())
    assert not concerns_all_tables(SinkError("the key has changed"))
    assert not concerns_all_tables(RuntimeError("Cannot call methods on a stopped SparkContext."))


@pytest.mark.timeout(1800)
def test_deleted_topic_concerns_only_its_table(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    good, gone = feed.table(table_schema(prefix, "good")), feed.table(table_schema(prefix, "gone"))
    given = settings(kafka_broker, prefix, tmp_path)
    rows = [{"id": i, "name": "x"} for i in range(4)]
    feed.write(message for row in rows[:2] for table in (good, gone) for message in table.change("c", None, row, pos=1))
    consume(spark, given)

    delete_topic(kafka_broker, gone.schema.topic)
    feed.write(good.change("c", None, rows[2], pos=2))
    consume(spark, given)
    assert table_rows(spark, tmp_path, "good").keys() == {0, 1, 2}

    # The new topic ends before the offsets that the table has applied.
    kafka_broker.create_topic(gone.schema.topic)
    feed.write([*good.change("c", None, rows[3], pos=3), *gone.change("c", None, rows[3], pos=3)])
    with pytest.raises(SinkError, match="was deleted and created again"):
        consume(spark, given)
    assert table_rows(spark, tmp_path, "good").keys() == {0, 1, 2, 3}
    assert table_rows(spark, tmp_path, "gone").keys() == {0, 1}


@pytest.mark.timeout(1800)
def test_bad_record_goes_to_the_dead_letter_topic(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    number = ConnectField("n", connect("int32"))
    table = feed.table(table_schema(prefix, "t", number))
    rows = [{"id": i, "name": "x", "n": "text" if i in {2, 3} else i} for i in range(1, 5)]
    feed.write([message for i, row in enumerate(rows) for message in table.change("c", None, row, pos=100 + i)])
    letters = f"letters-{prefix}"
    kafka_broker.create_topic(letters)
    tolerant = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": letters}

    consume(spark, {**settings(kafka_broker, prefix, tmp_path), **tolerant})

    assert table_rows(spark, tmp_path, "t") == {1: rows[0], 4: rows[3]}
    client = {"kafka.bootstrap.servers": kafka_broker.bootstrap, "subscribe": letters, "includeHeaders": "true"}
    found = spark.read.format("kafka").options(**client).load().orderBy("offset").collect()
    headers = [{header["key"]: bytes(header["value"]).decode() for header in row["headers"]} for row in found]
    assert {json.loads(row["value"])["after"]["id"] for row in found} == {2, 3}
    assert {each["__connect.errors.topic"] for each in headers} == {table.schema.topic}
    assert {each["__connect.errors.offset"] for each in headers} == {"1", "2"}
    assert all("does not match" in each["__connect.errors.exception.message"] for each in headers)


@pytest.mark.timeout(1800)
def test_a_value_that_reads_like_an_error_skips_no_other_record(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The error of a sink quotes the value that does not fit; nothing is skipped for it."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", ConnectField("n", connect("int32"))))
    letters, given = f"letters-{prefix}", settings(kafka_broker, prefix, tmp_path, sink="parquet")
    kafka_broker.create_topic(letters)
    feed.write(table.change("c", None, {"id": 1, "name": "x", "n": 1}, pos=100))
    consume(spark, given)
    table.schema = table_schema(prefix, "t", ConnectField("n", connect("string")))
    quoted = f"a record cannot be decoded: topic {table.schema.topic}, partition 0, offset 1: x"
    good, bad = {"id": 2, "name": "x", "n": "2"}, {"id": 3, "name": "x", "n": quoted}
    changes = [*table.change("c", None, good, pos=110), *table.change("c", None, bad, pos=120)]
    feed.write([table.published(prefix, version=2), *changes])

    with pytest.raises(TailraceError, match="does not fit the files"):
        consume(spark, {**given, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": letters})

    client = {"kafka.bootstrap.servers": kafka_broker.bootstrap, "subscribe": letters}
    assert spark.read.format("kafka").options(**client).load().isEmpty()


@pytest.mark.parametrize("sink", ["delta", pytest.param("kafka", marks=pytest.mark.long)])
def test_record_that_a_transform_fails_for_is_named_and_can_be_skipped(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, sink: str
) -> None:
    """The changelog has held the rows of the split until its end."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    rows = [{"id": i, "name": "x" if i in {2, 3} else str(i)} for i in range(1, 5)]
    letters, out = f"letters-{prefix}", f"out-{prefix}"
    kafka_broker.create_topic(letters)
    given = settings(kafka_broker, prefix, tmp_path, sink=sink) | {
        "transforms": "t",
        "transforms.t.source-table": "shop\\.t",
        "transforms.t.projection": "*, cast(name AS INT) AS number",
    }
    if sink == "kafka":
        given["sink.topic"] = out
    feed.write(table.snapshot(prefix, 0, rows, low=10, high=20))
    if sink == "kafka":
        consume(spark, given)
    feed.write([table.end(prefix, 0, high=20, rows=4)])

    with pytest.raises(TailraceError) as caught:
        consume(spark, given)
    assert f"for a record: topic {table.schema.topic}, partition 0, offset 1: [CAST_INVALID_INPUT]" in str(caught.value)
    assert "'x'" not in str(caught.value)

    consume(spark, {**given, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": letters})
    expected = {key: {"id": key, "name": str(key), "number": key} for key in (1, 4)}
    if sink == "delta":
        assert table_rows(spark, tmp_path, "t") == expected
    else:
        found = topic_records(kafka_broker, out)
        assert [entry for entries in found.values() for entry in entries] == [("+I", row) for row in expected.values()]
    client = {"kafka.bootstrap.servers": kafka_broker.bootstrap, "subscribe": letters}
    skipped = spark.read.format("kafka").options(**client).load().orderBy("offset").collect()
    assert [json.loads(row["value"])["after"]["id"] for row in skipped] == [2, 3]


def test_tolerance_needs_a_topic_for_the_records() -> None:
    given = {"bootstrap.servers": "b:1", "topic.prefix": "p", "checkpointLocation": "/c", "sink": "console"}
    with pytest.raises(ConfigError, match=r"it is needed for errors\.tolerance=all"):
        config.parse({**given, "errors.tolerance": "all"})
    with pytest.raises(ConfigError, match=r"'p\.x' would be read as a captured table"):
        config.parse({**given, "errors.deadletterqueue.topic.name": "p.x"})
