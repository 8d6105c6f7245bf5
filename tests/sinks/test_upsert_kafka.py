"""The upsert-kafka sink passes the conformance suite, with a reader that keeps the last value of each key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka import Consumer, TopicPartition

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink import kafka
from tailrace.spark_consumer.source.kafka_admin import open_admin
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import SinkConformance, row
from tests.sinks.conformance_recovery import RECOVERY
from tests.sinks.conformance_schema import APPENDED, NO_MODES, SCHEMA
from tests.sinks.harness import BatchRunner
from tests.spark.records import Row
from tests.support.topics import end_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class UpsertKafkaBackend(SinkBackend):
    """A compacted topic with one partition."""

    sink = "upsert-kafka"
    cuts = (("before", "write_batch"), ("before", "_store"), ("after", "write_batch"))
    kills = ("before-write_batch:1", "before-store:2", "after-store:1", "after-write_batch:2")

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Return the last value of each key; the key of a record must be that of its row."""
        found: dict[tuple[tuple[str, object], ...], Row] = {}
        for key, value in self.records(schema):
            identity = tuple(key.items())
            if value is None:
                found.pop(identity, None)
            else:
                assert {name: value[name] for name in key} == key
                found[identity] = value
        rows = {each["id"]: each for each in found.values()}
        assert len(rows) == len(found), "a row under two keys"
        return rows

    def records(self, schema: TableSchema) -> list[tuple[Row, Row | None]]:
        """Return the keys and values of the topic, in order."""
        topic = f"latest.{schema.topic}"
        client = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "latest-reader"})
        found: list[tuple[Row, Row | None]] = []
        try:
            end = end_offset(client, TopicPartition(topic, 0))
            client.assign([TopicPartition(topic, 0, 0)])
            read = 0
            while read < end:
                for message in client.consume(1000, timeout=1):
                    read = (message.offset() or 0) + 1
                    value = message.value()
                    row = json.loads(value, parse_float=Decimal) if value else None
                    found.append((json.loads(message.key() or b""), row))
        finally:
            client.close()
        return found


class BrokerBehind:
    """An admin client whose first answers come from a broker that has not heard of a topic."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.answers = 3

    def open_admin(self, spark: SparkSession, client: Mapping[str, str]) -> Any:
        """Open the real client, and change its answer to listTopics."""
        real = open_admin(spark, client)

        def listed() -> set[str]:
            names = set(real.listTopics().names().get())
            if self._topic in names and self.answers:
                self.answers -= 1
                names.remove(self._topic)
            return names

        found = SimpleNamespace(names=lambda: SimpleNamespace(get=listed))
        others = {name: getattr(real, name) for name in ("createTopics", "describeConfigs", "close")}
        return SimpleNamespace(listTopics=lambda: found, **others)


class TestUpsertKafkaSink(SinkConformance):
    """Conformance of the upsert-kafka sink."""

    backend_type = UpsertKafkaBackend
    not_claimed: ClassVar = {
        "test_out_of_order": "a topic has no row to compare with; the header of a record has its sequence",
    }

    # The path before the writer is that of the Delta sink, whose cases are quick tests.
    long: ClassVar = frozenset(
        {
            "test_empty_batch",
            "test_incremental_snapshot",
            "test_insert",
            "test_insert_after_delete",
            "test_key_change",
            "test_new_column",
            "test_nulls",
            "test_type_change",
            "test_update",
            "test_wider_number",
        }
        | {SCHEMA}
        | RECOVERY
    )
    not_applicable: ClassVar = NO_MODES
    schema_differences: ClassVar = APPENDED

    def test_out_of_order(self, run: BatchRunner) -> None:
        """The older change of a later batch is the last value."""
        self.write_out_of_order(run)

        self.expect(run, row(1, 1))

    def test_older_checkpoint(self, run: BatchRunner) -> None:
        """Batches that the ledger has are not written again by a query that has forgotten them."""
        run.batch(run.table.change("c", None, row(1, 0), pos=100))
        run.batch(run.table.change("u", row(1, 0), row(1, 1), pos=110), run.table.change("c", None, row(2), pos=120))
        assert isinstance(run.backend, UpsertKafkaBackend)
        written = run.backend.records(run.table.schema)

        run.repeat()

        assert run.backend.records(run.table.schema) == written
        self.expect(run, row(1, 1), row(2))

    def test_topic_that_a_broker_does_not_list_yet(self, run: BatchRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        """The controller has it: what the topic has applied is not forgotten, and older rows do not come back."""
        run.batch(run.table.change("c", None, row(1, 0), pos=100))
        run.batch(run.table.change("u", row(1, 0), row(1, 1), pos=110))
        assert isinstance(run.backend, UpsertKafkaBackend)
        written = run.backend.records(run.table.schema)
        behind = BrokerBehind(f"latest.{run.table.schema.topic}")
        monkeypatch.setattr(kafka, "open_admin", behind.open_admin)

        run.repeat()

        assert behind.answers == 0
        assert run.backend.records(run.table.schema) == written

    def test_topic_that_is_not_compacted(self, run: BatchRunner) -> None:
        """The table stops before a record is written, with the command that sets the policy."""
        topic = f"latest.{run.table.schema.topic}"
        run.feed.broker.create_topic(topic)

        with pytest.raises(SinkError, match="is not compacted") as caught:
            run.batch(run.table.change("c", None, row(1), pos=100))

        assert "--add-config cleanup.policy=compact" in (caught.value.hint or "")
        assert isinstance(run.backend, UpsertKafkaBackend)
        assert run.backend.records(run.table.schema) == []
