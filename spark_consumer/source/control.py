"""Batch reads of a prefix's control topics: table schemas and watermarks, always up to the end of the log.

Read uncommitted on purpose. A schema or a LOW watermark is written before, or in the same Kafka transaction as, the
first row that needs it, and a transaction commits only after all its records are in the log. So whoever sees a row as
committed finds its control record in the log, even where the commit marker of that partition is not written yet; a
read-committed reader might not. An aborted control record does no harm: it describes a real schema or split, and
nothing is decided by its absence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from tailrace.runtime.errors import KafkaRequestError
from tailrace.spark_consumer.source.kafka import CLIENT_DEFAULTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ControlRecord(NamedTuple):
    """One record of a control topic."""

    offset: int
    value: bytes


class ControlTopic:
    """A one-partition topic read piece by piece, each time from where the last read ended."""

    def __init__(self, topic: str, client: Mapping[str, str]) -> None:
        self.topic = topic
        self._client = dict(client)
        self._next = 0

    def news(self, spark: SparkSession) -> list[ControlRecord]:
        """Return the records appended since the last call, in order.

        Raises KafkaFailure where the topic cannot be read.
        """
        try:
            rows = self._read(spark).select("offset", "value").where(fn.col("value").isNotNull()).collect()
        except PySparkException as error:
            raise KafkaRequestError(
                f"the topic {self.topic} cannot be read",
                hint="start the producer of this prefix first, and let this client read the topic",
                cause=str(error).splitlines()[0],
            ) from error
        records = sorted(ControlRecord(row["offset"], bytes(row["value"])) for row in rows)
        if records:
            self._next = records[-1].offset + 1
        return records

    def _read(self, spark: SparkSession) -> DataFrame:
        start = json.dumps({self.topic: {"0": self._next}}) if self._next else "earliest"
        options = {
            **CLIENT_DEFAULTS,
            **self._client,
            "kafka.isolation.level": "read_uncommitted",
            "subscribe": self.topic,
            "startingOffsets": start,
            "endingOffsets": "latest",
            # Compaction and retention take old records away; what is missing is noticed where it is needed.
            "failOnDataLoss": "false",
        }
        return spark.read.format("kafka").options(**options).load()
