"""What a start checks is not done again by the first batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.schemas.names import schemas_topic
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.transform import transforms
from tailrace.spark_consumer.transform.columns import find_columns
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, table_schema
from tests.spark.running import consume, settings, table_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_schemas_are_read_and_expressions_analyzed_once(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    analyzed: list[str] = []
    read = ControlTopic._read

    def count_read(self: ControlTopic, *given: Any) -> DataFrame:
        reads.append(self.topic)
        return read(self, *given)

    def count_columns(*given: Any) -> Any:
        analyzed.append(given[2].table)
        return find_columns(*given)

    monkeypatch.setattr(ControlTopic, "_read", count_read)
    monkeypatch.setattr(transforms, "find_columns", count_columns)
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    feed.write(table.change("c", None, {"id": 1, "name": "a"}, pos=10))
    given = settings(kafka_broker, prefix, tmp_path) | {
        "transforms": "t",
        "transforms.t.source-table": "shop\\.t",
        "transforms.t.projection": "id, upper(name) AS name",
    }

    consume(spark, given)

    assert table_rows(spark, tmp_path, "t") == {1: {"id": 1, "name": "A"}}
    assert reads.count(schemas_topic(prefix)) == 1
    assert analyzed == ["t"]


def test_transforms_of_a_prefix_without_topics(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The producer has not started yet: nothing can be checked, and nothing is read."""
    given = settings(kafka_broker, prefix, tmp_path) | {
        "transforms": "t",
        "transforms.t.source-table": "shop\\.t",
        "transforms.t.projection": "id",
    }

    assert consume(spark, given).as_dict()["batches"] == 0
