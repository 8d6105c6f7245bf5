"""What the consumer says of its tables and jobs while it runs: /status, and the names of jobs in Spark's interface."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, Table, table_schema
from tests.spark.running import run_query, settings
from tests.support.capture import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def job_names(spark: SparkSession) -> set[str]:
    """Return the descriptions of the jobs that Spark's interface lists."""
    context: Any = spark.sparkContext
    jobs = context._jsc.sc().statusStore().jobsList(None)
    found = (jobs.apply(index).description() for index in range(jobs.size()))
    return {str(name.get()).splitlines()[0] for name in found if name.isDefined()}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sink", ["delta", "kafka"])
def test_tables_are_complete_loading_or_parked(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, sink: str
) -> None:
    feed = Feed(kafka_broker, prefix)
    complete, loading = feed.table(table_schema(prefix, "complete")), feed.table(table_schema(prefix, "loading"))
    bad = Table(table_schema(prefix, "bad"))
    kafka_broker.create_topic(bad.schema.topic)
    rows = [{"id": i, "name": "x"} for i in range(4)]
    complete.last_split = 0
    loading.last_split = 2
    feed.write(complete.snapshot(prefix, 0, rows[:2], low=100, high=110))
    feed.write([complete.end(prefix, 0, high=110, rows=2)])
    feed.write(complete.change("u", rows[0], {**rows[0], "name": "y"}, pos=120))
    feed.write(complete.change("d", rows[1], None, pos=130))
    feed.write(loading.snapshot(prefix, 0, rows[:1], low=100, high=110))
    feed.write(loading.snapshot(prefix, 1, rows[1:2], low=100, high=110))
    feed.write([loading.end(prefix, 0, high=110, rows=1)])
    feed.write(bad.change("c", None, rows[0], pos=5))

    status, error = run_query(spark, settings(kafka_broker, prefix, tmp_path, sink=sink))

    assert error is not None
    assert "no table schema is published" in str(error)
    now = status.as_dict()
    tables = {topic.rpartition(".")[2]: table for topic, table in now["tables"].items()}
    assert {name: table["state"] for name, table in tables.items()} == {
        "complete": "complete",
        "loading": "loading",
        "bad": "parked",
    }
    assert tables["loading"]["splits"]["done"] == 1
    assert tables["loading"]["splits"]["expected"] == 2
    before = {"update_before": 1} if sink == "kafka" else {}
    assert tables["complete"]["rows"] == {"insert": 2, "update_after": 1, "delete": 1, **before}
    assert tables["complete"]["offsets_behind"] == 0
    assert "no table schema" in tables["bad"]["parked"]["reason"]
    assert {"table.decode", "table.write", "schemas", "spark.addBatch"} <= now["phases"].keys()
    topic = complete.schema.topic
    wanted = {f"{prefix}: schemas", f"{topic}: decode", f"{topic}: write"}
    eventually(lambda: wanted <= job_names(spark), "the names of the jobs, which Spark lists a moment later")
