"""The library as a program uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer import apply_changes, decode, read_changes
from tailrace.spark_consumer.small_data import with_settings
from tests.docs.pages import PAGES, blocks
from tests.docs.samples import ROOT
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark_connect import SparkConnectServer
from tests.spark.records import Feed, connect, table_schema
from tests.support.library_program import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)

EXPECTED = {
    "kinds": [
        ["+I", "insert", 1],
        ["+I", "insert", 2],
        ["+I", "insert", 3],
        ["+U", "update_postimage", 1],
        ["-D", "delete", 2],
    ],
    "changelog": [["+I", 1], ["+I", 2], ["+I", 3], ["+U", 1], ["-D", 2], ["-U", 1]],
    "latest": [[1, "+U"], [2, "-D"], [3, "+I"]],
    "table": [[1, "new", 2], [3, "c", 4]],
    "metadata": ["shop", "t", "tailrace.event", True],
}


def fill(broker: KafkaBroker, prefix: str) -> str:
    """Write the changes of a table under two schemas, with one key deleted; return the topic."""
    feed = Feed(broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    a, b = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    feed.write([*table.change("c", None, a, pos=100), *table.change("c", None, b, pos=110)])
    table.schema = table_schema(prefix, "t", ConnectField("n", connect("int32")))
    feed.write(
        [
            table.published(prefix, version=2),
            *table.change("u", {**a, "n": None}, {"id": 1, "name": "new", "n": 2}, pos=120),
            *table.change("d", {**b, "n": None}, None, pos=130),
            *table.change("c", None, {"id": 3, "name": "c", "n": 4}, pos=140),
        ]
    )
    return table.schema.topic


def test_library_in_a_session(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    topic = fill(kafka_broker, prefix)

    assert run(spark, kafka_broker.bootstrap, prefix, topic, tmp_path) == EXPECTED


def test_names_of_columns_are_no_variables(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """``${env:NAME}`` in a name stays a name, and the caller's own texts keep their variables."""
    spark = spark.newSession()  # a query that ran in the other one has changed its settings
    name = "${env:PATH}`{x}"
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", ConnectField(name, connect("string")), key=("id", name)))
    row = {"id": 1, "name": "a", name: "k"}
    feed.write([*table.change("c", None, row, pos=100), *table.change("u", row, {**row, "name": "b"}, pos=110)])
    target = f"delta.`{tmp_path}/target`"

    # Delta takes such names with the mapping of columns alone.
    with with_settings(spark, {"spark.databricks.delta.properties.defaults.columnMapping.mode": "name"}):
        for _ in range(2):
            apply_changes(decoded(spark, kafka_broker, prefix, table.schema.topic), target)

    found = [each.asDict() for each in spark.sql(f"SELECT * EXCEPT (_seq) FROM {target}").collect()]
    assert found == [{**row, "name": "b"}]
    assert spark.conf.get("spark.sql.variable.substitute", "true") == "true"


def test_times_without_a_zone_are_right_or_refused(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str) -> None:
    """Another zone of the session would move them; tables without such columns are read in any zone."""
    feed = Feed(kafka_broker, prefix)
    at = feed.table(table_schema(prefix, "at", ConnectField("at", connect("int64", name="io.debezium.time.Timestamp"))))
    plain = feed.table(table_schema(prefix, "plain"))
    feed.write(at.change("c", None, {"id": 1, "name": "a", "at": 1_700_000_000_000}, pos=100))
    feed.write(plain.change("c", None, {"id": 1, "name": "a"}, pos=110))

    def read(topic: str) -> list[Any]:
        return decoded(spark, kafka_broker, prefix, topic).select("after.*").collect()

    assert read(at.schema.topic)[0]["at"] == datetime(2023, 11, 14, 22, 13, 20)
    with with_settings(spark, {"spark.sql.session.timeZone": "America/Chicago"}):
        assert read(plain.schema.topic)
        with pytest.raises(SchemaError, match=r"time zone America/Chicago .* topic") as caught:
            read(at.schema.topic)
        with pytest.raises(SchemaError, match="time zone"):
            read_changes(spark, at.schema.topic, prefix=prefix, bootstrap_servers=kafka_broker.bootstrap)
    assert "spark.sql.session.timeZone=UTC" in caught.value.hint
    missing = rf"no table schema is published for topic {prefix}\.shop\.none(?s:.*)hint: check topic and prefix"
    with pytest.raises(SchemaError, match=missing):
        decoded(spark, kafka_broker, prefix, f"{prefix}.shop.none")


def decoded(spark: SparkSession, broker: KafkaBroker, prefix: str, topic: str) -> DataFrame:
    """Return the changes of a topic."""
    client = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    records = spark.read.format("kafka").options(**client).load()
    return decode(records, topic, prefix=prefix, bootstrap_servers=broker.bootstrap)


def test_example_of_the_page_runs(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    """The code of docs/library.md, with the names of this test."""
    topic = fill(kafka_broker, prefix)
    page = next(page for page in PAGES if page.name == "library.md")
    [example] = [block for block in blocks(page) if block.language == "python"]
    code = example.text.replace("shop.inventory.orders", topic).replace('prefix="shop"', f'prefix="{prefix}"')
    names = {"spark": spark, "broker": kafka_broker.bootstrap}

    exec(code, {**names, "target": tmp_path / "target", "checkpoint": str(tmp_path / "checkpoint")})  # noqa: S102

    table = spark.read.format("delta").load(str(tmp_path / "target"))
    assert sorted((row["id"], row["name"]) for row in table.collect()) == [(1, "new"), (3, "c")]


@pytest.mark.spark
@pytest.mark.long
def test_library_through_spark_connect(kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    """The same program in a process without Java; its foreachBatch runs in a process of the server."""
    topic = fill(kafka_broker, prefix)
    program = [sys.executable, "-m", "tests.support.library_program"]
    with SparkConnectServer() as server:
        arguments = [server.url, kafka_broker.bootstrap, prefix, topic, str(tmp_path)]
        done = subprocess.run([*program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED
