"""What is read from Kafka: which topics, with which options, and the raw columns of a record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.names import EVENT_HEADER, SPLIT_HEADER, schemas_topic, state_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RAW_COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "split", "event")
"""A record as the pipeline carries it: Kafka's own columns and the two Tailrace headers as text."""

READ_COMMITTED: Final = "read_committed"

CLIENT_DEFAULTS: Final[Mapping[str, str]] = {
    # The last offset of a batch is mostly a transaction marker, which no poll returns: do not wait long for it.
    "kafka.fetch.max.wait.ms": "50",
    "kafka.max.poll.records": "2000",
}
"""Client options that suit reading a backlog; the configuration may set others."""


def subscribe_pattern(prefix: str) -> str:
    """Return the Java regular expression of the topics of a prefix that hold rows or watermarks.

    A data topic has at least two parts after the prefix, so ``<prefix>.transaction`` and ``<prefix>`` itself do not
    match; heartbeats begin with another word. Table schemas are not streamed: they must be known before a batch that
    needs them, whatever offsets the batch happens to have (schema_tracker.py).
    """
    own = [schemas_topic(prefix), state_topic(prefix)]
    left_out = "|".join(re.escape(topic) for topic in own)
    # Spark looks for the pattern anywhere in a name.
    return f"^(?!(?:{left_out})$){re.escape(prefix)}\\.[^.]+\\..+$"


def stream_options(
    *, client: Mapping[str, str], prefix: str, max_offsets: int, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the options of the streaming source; ``client`` are the ``kafka.`` keys of the configuration."""
    return {
        **CLIENT_DEFAULTS,
        **client,
        **extra,
        "kafka.isolation.level": READ_COMMITTED,
        "subscribePattern": subscribe_pattern(prefix),
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(max_offsets),
    }


def read_stream(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the stream of raw records."""
    # A long stretch of a partition is read by several tasks: order is by (partition, offset), which every record
    # carries, not by task.
    tasks = {"maxRecordsPerPartition": str(_RECORDS_PER_TASK)}
    return select_raw(spark.readStream.format("kafka").options(**{**tasks, **options}).load())


def select_raw(records: DataFrame) -> DataFrame:
    """Reduce Kafka's columns to RAW_COLUMNS. Headers are looked up natively; a missing one is NULL."""
    return records.select(
        "topic",
        "partition",
        "offset",
        "key",
        "value",
        _header(SPLIT_HEADER).alias("split"),
        _header(EVENT_HEADER).alias("event"),
    )


_RECORDS_PER_TASK: Final = 75_000
"""A second or so of work: tasks that are much longer leave cores idle at the end of a batch."""

_LOOKED_AT: Final = 4
"""Headers looked at one by one. The producer's own are among them, after at most one of Debezium's."""

_CONTEXT: Final = "__debezium.context."
"""Where these begin, the producer's own headers have passed."""


def _header(name: str) -> Column:
    """Return a header's value as text, NULL where there is none.

    A search through the array (``filter``) is interpreted for each element of each row; comparing the first elements is
    compiled. The search is left for records that another program gave more headers in front.
    """
    headers = fn.col("headers")
    first = [fn.get(headers, fn.lit(index)) for index in range(_LOOKED_AT)]
    found = fn.when(first[0]["key"] == name, first[0]["value"])
    for header in first[1:]:
        found = found.when(header["key"] == name, header["value"])
    searched = fn.get(fn.filter(headers, lambda header: header["key"] == fn.lit(name)), fn.lit(0))["value"]
    further = (fn.size(headers) > _LOOKED_AT) & ~first[-1]["key"].startswith(_CONTEXT)
    return found.when(further, searched).cast("string")
