"""Topics that a real Debezium connector wrote (recorded), through the whole consumer into Delta tables."""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest
from confluent_kafka import Producer

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField
from tests.debezium_parity.topics import KafkaRecord
from tests.embedded.kafka import KafkaBroker
from tests.embedded.registry import SchemaRegistry
from tests.spark.connector_records import final_rows, in_avro, recorded, write
from tests.spark.records import Feed, connect, table_schema
from tests.spark.running import consume, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
AVRO: Final = "io.confluent.connect.avro.AvroConverter"
TABLES: Final = ("temporals", "integers", "spatial")

pytestmark = pytest.mark.timeout(1800)


def converters(name: str, registry: str = "") -> dict[str, str]:
    """Return the settings of both converters."""
    found = {f"{side}.converter": name for side in ("key", "value")}
    return found | ({f"{side}.schema.registry.url": registry for side in found} if registry else {})


def plain(found: Any) -> Any:
    """Return a Spark value without Row and bytearray."""
    if hasattr(found, "asDict"):
        return {name: plain(each) for name, each in found.asDict().items()}
    return bytes(found) if isinstance(found, bytearray) else found


def delta_rows(spark: SparkSession, work: Path, database: str, table: str) -> dict[Any, dict[str, Any]]:
    """Return the rows of a table by ``id``, without the sequence; a duplicate key is an error."""
    frame = spark.read.format("delta").load(str(work / "tables" / database / table)).drop("_seq")
    rows = [plain(row) for row in frame.collect()]
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "duplicate key in the table"
    return found


@pytest.mark.parametrize(
    "variant", [pytest.param("schemas", marks=pytest.mark.long), pytest.param("avro", marks=pytest.mark.registry)]
)
def test_recorded_topics_of_a_connector_reach_their_tables(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, *, variant: str
) -> None:
    """All types of MySQL, and a table with several schemas in one batch; topics without rows are ignored."""
    with ExitStack() as stack:
        with_schemas = recorded("schemas", prefix=prefix)
        chosen = [f"{prefix}.odd.{name}" for name in (*TABLES, "again")]
        others = [prefix, f"{prefix}.transaction", f"__debezium-heartbeat.{prefix}"]
        topics = {name: found for name, found in recorded(variant, prefix=prefix).items() if name in (*chosen, *others)}
        url = ""
        if variant == "avro":
            registry = stack.enter_context(SchemaRegistry())
            url = registry.url
            topics = {name: list(in_avro(found, registry)) for name, found in topics.items()}
        write(kafka_broker, topics)
        given = settings(kafka_broker, prefix, tmp_path) | converters(AVRO if url else JSON, url)

        status = consume(spark, given)

    assert set(status.as_dict()["tables"]) == set(chosen)
    for table in TABLES:
        found = delta_rows(spark, tmp_path, "odd", table)
        expected = final_rows(with_schemas[f"{prefix}.odd.{table}"]).values()
        assert found == {row["id"]: row for row in expected}
    # VARCHAR, then DECIMAL in a table of that name that was created once more, then one more column.
    repeated = {1: {"v": "1.5", "id": 1, "extra": None}, 3: {"v": "3.5", "id": 3, "extra": None}}
    assert delta_rows(spark, tmp_path, "odd", "again") == repeated


def envelope(op: str, before: object, after: object, *, pos: int, **source: object) -> bytes:
    """Return the envelope that a connector writes without schemas."""
    origin = {"db": "shop", "table": "t", "ts_ms": 1, "file": "binlog.000003", "pos": pos, "row": 0, **source}
    return orjson.dumps({"before": before, "after": after, "source": origin, "op": op, "ts_ms": 1, "transaction": None})


def record(topic: str, row: dict[str, Any], value: bytes | None, offset: int = 0) -> KafkaRecord:
    """Return a record of a connector."""
    return KafkaRecord(topic, 0, offset, orjson.dumps({"id": row["id"]}), value, ())


def test_plain_records_are_read_with_the_given_columns(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """DDL for one table, a StructType for another; a table of which nothing is known gets VARIANT columns."""
    row = {"id": 7, "price": "AJY=", "at": 1_600_000_000_123_456, "day": 18262}
    rows = {name: f"{prefix}.shop.{name}" for name in ("ddl", "struct", "unknown")}
    columns = (
        "id INT, price DECIMAL(9,2), at TIMESTAMP_NTZ COMMENT 'io.debezium.time.MicroTimestamp', day DATE, later INT"
    )
    struct = spark.createDataFrame([], columns).schema.json()
    write(
        kafka_broker,
        {
            topic: [
                record(topic, row, envelope("r", None, {**row, "id": 8}, pos=5, table=name, snapshot="true"))._replace(
                    key=b'{"id":8}'
                ),
                record(topic, row, envelope("c", None, row, pos=9, table=name)),
                record(topic, row, envelope("d", {**row, "id": 8}, None, pos=10, table=name))._replace(key=b'{"id":8}'),
                record(topic, {"id": 8}, None),
            ]
            for name, topic in rows.items()
        },
    )
    given = settings(kafka_broker, prefix, tmp_path) | converters(JSON)
    given |= {"table.schema.shop.ddl": columns, "table.schema.shop.struct": struct}

    consume(spark, given)

    expected = {
        "id": 7,
        "price": Decimal("1.50"),
        "at": dt.datetime(2020, 9, 13, 12, 26, 40, 123456),
        "day": dt.date(2020, 1, 1),
    }
    assert delta_rows(spark, tmp_path, "shop", "ddl") == {7: expected}
    assert delta_rows(spark, tmp_path, "shop", "struct") == {7: expected}
    unknown = spark.read.format("delta").load(str(tmp_path / "tables" / "shop" / "unknown"))
    assert unknown.schema["price"].dataType.simpleString() == "variant"
    assert [(found["id"], found["at"].toPython()) for found in unknown.collect()] == [(7, row["at"])]


def test_column_that_is_not_given_is_an_error(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    topic = f"{prefix}.shop.t"
    write(kafka_broker, {topic: [record(topic, {"id": 1}, envelope("c", None, {"id": 1, "more": 2}, pos=1))]})
    given = settings(kafka_broker, prefix, tmp_path) | converters(JSON) | {"table.schema.shop.t": "id INT"}

    with pytest.raises(SchemaError, match=r"(?s)table\.schema does not name.*more.*table\.schema\.shop\.t"):
        consume(spark, given)


def test_topic_continues_after_a_takeover(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The connector's records come first, without headers and without a column that was added before the takeover."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", ConnectField("n", connect("int32"))))
    topic = table.schema.topic
    old = [{"id": number, "name": f"old{number}"} for number in (1, 2, 3)]
    first = [record(topic, row, envelope("r", None, row, pos=900_000)) for row in old]
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0})
    for each in first:
        producer.produce(topic, each.value, each.key, 0)
    producer.flush(30)
    # A smaller position: after the takeover a record is later because of its epoch.
    new = {"id": 1, "name": "new", "n": 5}
    feed.write(table.change("u", {**old[0], "n": None}, new, pos=100))
    feed.write(table.change("d", {**old[1], "n": None}, None, pos=110))

    consume(spark, settings(kafka_broker, prefix, tmp_path) | converters(JSON))

    assert delta_rows(spark, tmp_path, "shop", "t") == {1: new, 3: {**old[2], "n": None}}


def test_record_that_is_not_an_envelope_is_an_error(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    topic = f"{prefix}.shop.t"
    write(kafka_broker, {topic: [record(topic, {"id": 1}, b'{"id":1,"name":"x"}')]})

    with pytest.raises(SchemaError, match=rf"(?s)topic {prefix}\.shop\.t is not a change event.*offset: 0"):
        consume(spark, settings(kafka_broker, prefix, tmp_path) | converters(JSON))
