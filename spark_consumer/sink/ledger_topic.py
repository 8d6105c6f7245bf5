"""The ledger topic of the sink ``upsert-kafka``: the newest record of each key, also of those that others write.

The topic is compacted and has one partition: its order is that of the commits of all processes. A Spark job reads it
once. Then a consumer in the driver reads what was appended, which is a few records for each batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.jvm import java_class
from tailrace.spark_consumer.sink.kafka_topic import ensure_topic, newest_records, write_records
from tailrace.spark_consumer.source.kafka_admin import close_consumer, open_consumer
from tailrace.spark_consumer.source.literal_rows import literal_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACTED: Final = {"cleanup.policy": "compact"}
_TEXT: Final = "org.apache.kafka.common.serialization.StringDeserializer"
_WAIT_MS: Final = 500
_MOST_WAIT_S: Final = 30
"""A read without any progress for so long has failed."""


class LedgerTopic:
    """Safe to use from several threads."""

    def __init__(self, spark: SparkSession, client: Mapping[str, str], topic: str) -> None:
        """Create a missing topic, and read it; ``client`` has Kafka client options with their prefix ``kafka.``."""
        self._client, self._topic = client, topic
        ensure_topic(spark, client, topic, 1, COMPACTED)
        self._lock = threading.Lock()
        self._wait: Any = java_class(spark, "java.time.Duration").ofMillis(_WAIT_MS)
        partition = java_class(spark, "org.apache.kafka.common.TopicPartition")(topic, 0)
        self._partitions: Any = java_class(spark, "java.util.Collections").singletonList(partition)
        self._consumer = open_consumer(spark, client, {"key.deserializer": _TEXT, "value.deserializer": _TEXT})
        self._consumer.assign(self._partitions)
        self._next = self._end()
        self._consumer.seek(partition, self._next)
        # The records behind that offset are read again: the last one of a key counts.
        rows = newest_records(spark, client, topic).collect()
        self._values: dict[str, str | None] = {bytes(row["key"]).decode(): row["value"] for row in rows}

    def values(self) -> Mapping[str, str | None]:
        """Return the newest value of each key; None: it was removed."""
        with self._lock:
            end, progress = self._end(), time.monotonic()
            while self._next < end:
                for record in self._consumer.poll(self._wait).iterator():
                    self._values[str(record.key())] = record.value()
                before, self._next = self._next, int(self._consumer.position(self._partitions[0]))
                if self._next > before:
                    progress = time.monotonic()
                elif time.monotonic() > progress + _MOST_WAIT_S:
                    raise SinkError(
                        f"no records of topic {self._topic} for {_MOST_WAIT_S} s, which ends at {end}",
                        hint="look whether the leader of the partition can be reached",
                    )
            return dict(self._values)

    def write(self, spark: SparkSession, values: Mapping[str, str | None]) -> None:
        """Append values, in any order."""
        rows = [{"key": key, "value": value} for key, value in values.items()]
        write_records(literal_rows(spark, rows, "key string, value string"), self._client, self._topic)

    def close(self) -> None:
        """Close the connections."""
        close_consumer(self._consumer, self._wait)

    def _end(self) -> int:
        return int(self._consumer.endOffsets(self._partitions)[self._partitions[0]])
