"""Runs the consumer over everything that is in Kafka, and reads the contents of its sinks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from confluent_kafka import Consumer, TopicPartition

from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer import config
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.query import RunningQuery
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark import spark_environment, spark_settings
from tests.support.topics import end_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP: Final = Path(__file__).resolve().parents[2] / "spark_consumer" / "app.py"


def upkeep_off(sink: str | None) -> dict[str, str]:
    """Return the setting by which a sink never tends its tables.

    When a table is due depends on a hash of its name, which has a random part in tests: in a few runs of a hundred,
    upkeep would add commits between those of a test. Tests of upkeep name a number of commits.
    """
    return {"sink.optimize.batches": "0"} if sink in {"delta", "hudi", "iceberg"} else {}


def settings(
    broker: KafkaBroker, prefix: str, work: Path, *, sink: str | None = "delta", **changes: object
) -> dict[str, str]:
    """Return a configuration whose query ends when everything is read; ``sink``: None if the caller names several."""
    own = {} if sink is None else {"sink": sink}
    if sink in {"delta", "hudi", "parquet"}:
        own["sink.path"] = str(work / "tables")
    given = {
        "bootstrap.servers": broker.bootstrap,
        "topic.prefix": prefix,
        "checkpointLocation": str(work / "checkpoint"),
        "trigger.availableNow": "true",
        **own,
        **upkeep_off(sink),
    }
    return given | {name.replace("__", "."): str(value) for name, value in changes.items()}


def consume(spark: SparkSession, given: dict[str, str]) -> Status:
    """Run a query to its end and return its status."""
    status, error = run_query(spark, given)
    if error is not None:
        raise error
    return status


def run_query(
    spark: SparkSession, given: dict[str, str], wrap: Callable[[SinkPlugin], SinkPlugin] = lambda plugin: plugin
) -> tuple[Status, TailraceError | None]:
    """Run a query to its end; return its status and the error that it ended with. ``wrap`` can replace the sink."""
    parsed = config.parse(given)
    status = Status(parsed.name, parsed.sink_names)
    try:
        RunningQuery(spark, parsed, load_sinks(parsed, wrap), status).wait()
    except TailraceError as error:
        return status, error
    return status, None


def count_jobs(spark: SparkSession) -> int:
    """Return the number of jobs so far, as the scheduler counts them.

    The status store drops old jobs, and learns of new ones later.
    """
    context: Any = spark.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())


def run_app(given: dict[str, str], work: Path) -> subprocess.CompletedProcess[str]:
    """Run the consumer as a process to its end, with a configuration file; the settings of the session may differ."""
    file = work / "consumer.json"
    text = json.dumps({**spark_settings(work), "spark.driver.memory": "1g", **given})
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, str(APP), "--config", str(file)]
    environment = {**os.environ, **spark_environment()}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def table_rows(spark: SparkSession, work: Path, table: str) -> dict[Any, dict[str, Any]]:
    """Return the rows of a Delta table by ``id``, without the sequence; a duplicate key is an error."""
    rows = spark.read.format("delta").load(str(work / "tables" / "shop" / table)).drop("_seq").collect()
    found = {row["id"]: row.asDict() for row in rows}
    assert len(found) == len(rows), "duplicate key in the table"
    return found


def topic_records(broker: KafkaBroker, topic: str) -> dict[bytes, list[tuple[str, dict[str, Any]]]]:
    """Return the changelog records of a topic by key, in order."""
    client = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        end = end_offset(client, TopicPartition(topic, 0))
        client.assign([TopicPartition(topic, 0, 0)])
        found: dict[bytes, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        read = 0
        while read < end:
            for message in client.consume(1000, timeout=1):
                body = orjson.loads(message.value() or b"")
                found[message.key() or b""].append((body["op"], body["data"]))
                read = (message.offset() or 0) + 1
        return dict(found)
    finally:
        client.close()
