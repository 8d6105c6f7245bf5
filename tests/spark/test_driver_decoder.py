"""Records that the driver decodes are as those of a query: the values, the last change of each key, the counts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tailrace.spark_consumer.images import Images, read_fields
from tailrace.spark_consumer.in_driver import NotPlannedError, RowFunction, rows_of_type
from tailrace.spark_consumer.jvm import companion, java_class
from tailrace.spark_consumer.normalize.latest import last_per_key
from tailrace.spark_consumer.normalize.split_progress import summarize
from tailrace.spark_consumer.small_data import with_settings
from tailrace.spark_consumer.source.version_decoder import decode_versions
from tailrace.spark_consumer.tables.driver_decoder import DriverDecoder
from tests.spark.driver_batches import FIELDS, VALUES, rows_by_topic
from tests.spark.records import EPOCH, Message, Row, Table, table_schema
from tests.spark.running import count_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SCHEMA = table_schema("p", "t", *FIELDS)
RAW = (
    "topic string, partition int, offset bigint, key binary, value binary, "
    "split string, event string, schema string, incremental string"
)


def raw_records(spark: SparkSession, messages: Sequence[Message], schema: TableSchema = SCHEMA) -> DataFrame:
    """Return messages as the records that several tables share."""
    rows = []
    for offset, message in enumerate(messages):
        headers = {name: value.decode() for name, value in message.headers}
        names = ("tailrace.split", "tailrace.event", "tailrace.schema", "tailrace.incremental")
        found = [headers.get(name) for name in names]
        rows.append((message.topic, message.partition, offset, message.key, message.value, *found))
    rows.append(("p.shop.other", 0, 0, b"k", b"not JSON", None, "1.0", schema.fingerprint, None))
    records = spark.createDataFrame(rows, RAW).coalesce(1).persist()
    records.count()
    return records


def some_messages(chosen: random.Random, table: Table, count: int) -> list[Message]:
    """Return changes of a few keys in random order, also several at one position."""

    def row(key: int) -> Row:
        return {"id": key, **{name: chosen.choice(values) for name, values in VALUES.items()}}

    found: list[Message] = []
    for _ in range(count):
        key, pos, event = chosen.randrange(8), chosen.randrange(12), chosen.randrange(3)
        op = chosen.choice("cud")
        before, after = None if op == "c" else row(key), None if op == "d" else row(key)
        found += table.change(op, before, after, pos=pos, row=event)
    return found


def as_rows(spark: SparkSession, decoder: DriverDecoder, rows: Any) -> DataFrame:
    """Return rows in the driver as a DataFrame."""
    like: Any = rows_of_type(spark, decoder.type)._jdf
    none = java_class(spark, "scala.Option").empty()
    relation = java_class(spark, "org.apache.spark.sql.catalyst.plans.logical.LocalRelation")(
        like.queryExecution().analyzed().output(), rows.toSeq(), False, none
    )
    session: Any = spark._jsparkSession
    datasets: Any = java_class(spark, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(session, relation), spark)


def decoder_of(spark: SparkSession, records: DataFrame, images: Images = Images.UPSERT) -> DriverDecoder:
    """Return a decoder for records of SCHEMA."""
    raw = rows_by_topic(records)[SCHEMA.topic]
    return DriverDecoder(spark, raw.type, SCHEMA, images, ())


@pytest.mark.parametrize("images", [Images.UPSERT, Images.UPSERT_WITH_BEFORE])
def test_as_a_query(spark: SparkSession, images: Images) -> None:
    """One decoder for several batches; two partitions, tombstones, records of another topic."""
    table = Table(SCHEMA, partitions=2)
    fields = read_fields("source.pos,op")
    decoder: DriverDecoder | None = None
    for seed in range(6):
        records = raw_records(spark, some_messages(random.Random(seed), table, 40))
        own = records.where(f"topic = '{SCHEMA.topic}'")
        _, decoded = decode_versions(own, [SCHEMA], images, fields=fields)
        expected = sorted(map(str, last_per_key(decoded).collect()))
        stats = summarize(decoded)

        raw = rows_by_topic(records)[SCHEMA.topic]
        decoder = decoder or DriverDecoder(spark, raw.type, SCHEMA, images, fields)
        before = count_jobs(spark)
        changes = decoder.last_changes(spark, raw)
        assert count_jobs(spark) == before
        assert changes is not None
        assert sorted(map(str, as_rows(spark, decoder, changes.rows).collect())) == expected
        assert [changes.stats] == stats
        records.unpersist()


def test_other_key(spark: SparkSession) -> None:
    """A key of several columns, of which one is text."""
    schema = replace(SCHEMA, key=("id", "zoned"))
    table = Table(schema)
    rows = [{"id": key % 2, **{name: values[-1] for name, values in VALUES.items()}} for key in range(4)]
    messages = [m for pos, row in enumerate(rows) for m in table.change("c", None, {**row, "day": pos}, pos=pos)]
    records = raw_records(spark, messages, schema)
    raw = rows_by_topic(records)[schema.topic]
    decoder = DriverDecoder(spark, raw.type, schema, Images.UPSERT, ())
    changes = decoder.last_changes(spark, raw)
    assert changes is not None
    assert [row["offset"] for row in as_rows(spark, decoder, changes.rows).collect()] == [2, 3]


ROW: Row = {"id": 1, **{name: values[-1] for name, values in VALUES.items()}}


@pytest.mark.parametrize("kind", ["split", "incremental", "truncate", "read", "schema"])
def test_what_is_left_to_queries(spark: SparkSession, kind: str) -> None:
    table = Table(SCHEMA, incremental=kind == "incremental")
    change = table.change("c", None, {**ROW, "id": 2}, pos=1)
    other = {
        "split": lambda: table.change("u", ROW, ROW, pos=2, split="s"),
        "incremental": lambda: table.change("r", None, ROW, pos=2, split="s"),
        "truncate": lambda: table.truncate(pos=2),
        "read": lambda: table.change("r", None, ROW, pos=2),
        "schema": lambda: [
            replace(each, headers=(*({**dict(each.headers), "tailrace.schema": b"unknown"}).items(),))
            for each in table.change("u", ROW, ROW, pos=2)
        ],
    }[kind]()
    records = raw_records(spark, [*change, *other])
    raw = rows_by_topic(records)[SCHEMA.topic]
    assert decoder_of(spark, records).last_changes(spark, raw) is None
    plain = rows_by_topic(raw_records(spark, change))[SCHEMA.topic]
    assert decoder_of(spark, records).last_changes(spark, plain) is not None


@pytest.mark.parametrize("kind", ["JSON", "value", "event", "key", "row"])
def test_bad_records_fail_as_in_a_query(spark: SparkSession, kind: str) -> None:
    table = Table(SCHEMA)
    good, (bad,) = table.change("c", None, ROW, pos=1), table.change("c", None, {**ROW, "id": 2}, pos=2)
    headers = dict(bad.headers)
    bad = {
        "JSON": replace(bad, value=b"{"),
        "value": replace(bad, value=(bad.value or b"").replace(b'"tiny":7', b'"tiny":70000')),
        "event": replace(bad, headers=(*({**headers, "tailrace.event": f"{EPOCH}".encode()}).items(),)),
        "key": replace(bad, key=None),
        "row": replace(bad, value=(bad.value or b"").replace(b'"after":', b'"later":')),
    }[kind]
    records = raw_records(spark, [*good, bad])
    raw = rows_by_topic(records)[SCHEMA.topic]
    with pytest.raises(PySparkException, match="partition 0, offset 1: ") as caught:
        decoder_of(spark, records).last_changes(spark, raw)
    _, decoded = decode_versions(records.where(f"topic = '{SCHEMA.topic}'"), [SCHEMA], Images.UPSERT)
    with pytest.raises(PySparkException) as expected:
        decoded.select("op").collect()
    reason = str(expected.value).partition("a record cannot be decoded")[2].splitlines()[0]
    assert reason
    assert reason in str(caught.value)


def test_a_bad_batch_leaves_nothing_behind(spark: SparkSession) -> None:
    """The decoder is used for the batches that follow."""
    table = Table(SCHEMA)
    good = [m for key in range(3) for m in table.change("c", None, {**ROW, "id": key}, pos=1 + key)]
    records = raw_records(spark, good)
    decoder = decoder_of(spark, records)
    for value in (b"{", b"", b"null", good[1].value[:-9] if good[1].value else b""):
        bad = rows_by_topic(raw_records(spark, [good[0], replace(good[1], value=value)]))[SCHEMA.topic]
        with pytest.raises(PySparkException):
            decoder.last_changes(spark, bad)
        raw = rows_by_topic(records)[SCHEMA.topic]
        changes = decoder.last_changes(spark, raw)
        assert changes is not None
        _, decoded = decode_versions(records.where(f"topic = '{SCHEMA.topic}'"), [SCHEMA], Images.UPSERT)
        found = as_rows(spark, decoder, changes.rows).collect()
        assert sorted(map(str, found)) == sorted(map(str, decoded.collect()))


@pytest.mark.parametrize("ignored", ["true", "false"])
def test_records_without_a_time(spark: SparkSession, ignored: str) -> None:
    """Whether JSON of Spark has fields without a value is a setting."""
    table = Table(SCHEMA)
    messages = [m for key in range(4) for m in table.change("c", None, {**ROW, "id": key}, pos=1 + key)]
    for index in (0, 1, 3):
        value = (messages[index].value or b"").replace(b'"ts_ms":17', b'"ts_was":17')
        messages[index] = replace(messages[index], value=value)
    records = raw_records(spark, messages)
    raw = rows_by_topic(records)[SCHEMA.topic]
    with with_settings(spark, {"spark.sql.jsonGenerator.ignoreNullFields": ignored}):
        changes = decoder_of(spark, records).last_changes(spark, raw)
    assert changes is not None
    _, decoded = decode_versions(records.where(f"topic = '{SCHEMA.topic}'"), [SCHEMA], Images.UPSERT)
    assert [changes.stats] == summarize(decoded)
    assert changes.stats.newest_ms == 1_700_000_000_003


def test_what_is_no_function_of_a_row(spark: SparkSession) -> None:
    rows = rows_of_type(spark, spark.range(1).schema)
    values = companion(spark, "scala.collection.mutable.ArrayBuffer").empty()
    assert RowFunction(rows.selectExpr("id + 1 AS id").selectExpr("id * 2 AS id")).of(values).isEmpty()
    for other in (rows.where("id > 1"), rows.groupBy("id").count(), rows.unionAll(rows), rows.limit(1)):
        with pytest.raises(NotPlannedError):
            RowFunction(other)
