"""The Kafka sink passes the conformance suite, with a reader that removes repeats."""

from __future__ import annotations

import json
from collections import defaultdict
from decimal import Decimal
from typing import ClassVar

from confluent_kafka import Consumer, TopicPartition

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.sink.kafka import OFFSET_HEADER, PART_HEADER, PARTITION_HEADER
from tests.sinks.backend import Changelog, ChangelogBackend
from tests.sinks.conformance import SinkConformance, row
from tests.sinks.conformance_recovery import RECOVERY
from tests.sinks.conformance_schema import CHANGELOG, NO_MODES, SCHEMA
from tests.sinks.harness import BatchRunner
from tests.support.topics import end_offset


class KafkaBackend(ChangelogBackend):
    """A changelog topic with one partition."""

    sink = "kafka"

    def changelog(self, schema: TableSchema) -> Changelog:
        """Read the topic; per key and partition of the source, records that are not later are repeats."""
        topic = f"changelog.{schema.topic}"
        found: Changelog = defaultdict(list)
        client = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "changelog-reader"})
        try:
            if topic not in client.list_topics(timeout=120).topics:
                return {}
            end = end_offset(client, TopicPartition(topic, 0))
            client.assign([TopicPartition(topic, 0, 0)])
            last: dict[tuple[int, int], tuple[int, ...]] = {}
            read = 0
            while read < end:
                for message in client.consume(1000, timeout=1):
                    read = (message.offset() or 0) + 1
                    body = json.loads(message.value() or b"", parse_float=Decimal)
                    headers = dict(message.headers() or [])
                    order = tuple(int(headers[name] or b"") for name in (PARTITION_HEADER, OFFSET_HEADER, PART_HEADER))
                    key = body["data"]["id"]
                    if order > last.get((key, order[0]), (-1,)):
                        last[key, order[0]] = order
                        found[key].append((body["op"], body["data"]))
        finally:
            client.close()
        return dict(found)


class TestKafkaSink(SinkConformance):
    """Conformance of the Kafka sink."""

    backend_type = KafkaBackend
    # What comes before the writer is that of the Delta sink.
    long: ClassVar = frozenset({SCHEMA}) | RECOVERY - {"test_extremes", "test_restored_checkpoint"}
    not_applicable: ClassVar = NO_MODES
    schema_differences: ClassVar = CHANGELOG
    not_claimed: ClassVar = {
        "test_out_of_order": "a changelog keeps the order of the topic and compares no sequences",
    }

    def test_out_of_order(self, run: BatchRunner) -> None:
        """The older change is in the changelog, at its position in the topic."""
        self.write_out_of_order(run)

        self.expect(run, row(1, 1), changelog={1: "+I -U +U"})
