"""The Kafka source: topics, options, and the raw columns of a record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.names import EVENT_HEADER, INCREMENTAL_HEADER, SCHEMA_HEADER, SPLIT_HEADER
from tailrace.spark_consumer.small_data import ColumnCache
from tailrace.spark_consumer.source.topics import TableFilter, subscribe_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tailrace.spark_consumer.source.ranges import TopicRange

RAW_COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "split", "event", "schema", "incremental")
"""A record in the pipeline: Kafka's columns, and the headers ``tailrace.split``, ``tailrace.event``,
``tailrace.schema`` and ``tailrace.incremental`` as text."""

READ_COMMITTED: Final = "read_committed"

NEW_TOPIC_REMEDY: Final = "move the target table away: the next attempt loads it from the new topic"
"""What to do about a topic that was deleted and created again."""


_AWAY: Final = "move the target table away"


def load_remedy(target: str = _AWAY) -> str:
    """Return how one table, and no other, is loaded again from its topic: its target is behind (sink/ledger.py).

    ``target``: what makes it empty.
    """
    return f"{target}: the next attempt loads it again from its topic, and no other table"


def reload_remedy(topic: str, target: str = _AWAY) -> str:
    """Return how one table is loaded again, and no other, if its rows before and after a change do not fit together.

    Its topic has both kinds of rows: the table begins behind them, and the producer reads it again. ``target``: what
    makes it empty.
    """
    return (
        f"{_stop_remedy(topic, target, 'latest')}, start it, and send the signal execute-snapshot for the table to the "
        "producer"
    )


def new_changelog_remedy(topic: str) -> str:
    """Return what to do about a topic that was deleted and created again, if the checkpoint has the former one."""
    return f"{_stop_remedy(topic, _AWAY, 'earliest')}, and start it"


def _stop_remedy(topic: str, target: str, start: str) -> str:
    return (
        f"stop the query, {target}, run tailrace reload --topic {topic} --from {start} --config FILE with the "
        "configuration of the query"
    )


CLIENT_DEFAULTS: Final[Mapping[str, str]] = {
    # The last offset of a batch is usually a transaction marker, which no poll returns: a long wait is useless.
    "kafka.fetch.max.wait.ms": "50",
    "kafka.max.poll.records": "2000",
}
"""Client options for reading a backlog; the configuration can override them."""


def stream_options(
    *, client: Mapping[str, str], prefix: str, tables: TableFilter, max_offsets: int, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the options of the streaming source; ``client`` has the ``kafka.`` keys of the configuration."""
    return {
        **CLIENT_DEFAULTS,
        **client,
        "startingOffsets": "earliest",
        **extra,
        "kafka.isolation.level": READ_COMMITTED,
        "subscribePattern": subscribe_pattern(prefix, tables),
        # The stream only plans. Each table notices what is missing in its own range.
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": str(max_offsets),
    }


def read_raw(spark: SparkSession, options: Mapping[str, str], *ranges: TopicRange) -> DataFrame:
    """Return the records of some topics in their ranges with all columns of Spark's Kafka source."""
    starts = {found.topic: {str(number): each.start for number, each in found.partitions.items()} for found in ranges}
    ends = {found.topic: {str(number): each.end for number, each in found.partitions.items()} for found in ranges}
    own = {
        "assign": json.dumps({found.topic: sorted(found.partitions) for found in ranges}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    return spark.read.format("kafka").options(**{**options, **own}).load()


def range_options(*, client: Mapping[str, str], query_id: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the options of all range reads of a query.

    One consumer group for all reads lets an executor use a Kafka consumer again in the next batch. The group assigns no
    partitions and commits no offsets.
    """
    own = {name: value for name, value in extra.items() if name in _RANGE_OPTIONS}
    return {
        **CLIENT_DEFAULTS,
        **client,
        "failOnDataLoss": "true",
        # Several tasks can read one partition: the order of records comes from (partition, offset), not from the tasks.
        "maxRecordsPerPartition": str(_RECORDS_PER_TASK),
        **own,
        "kafka.isolation.level": READ_COMMITTED,
        "kafka.group.id": f"{extra.get('groupIdPrefix', 'spark-kafka-source')}-{query_id}",
        "includeHeaders": "true",
    }


def select_raw(records: DataFrame, *more: str) -> DataFrame:
    """Return RAW_COLUMNS of Kafka records, and ``more``, with native expressions; a missing header is NULL."""
    return records.select(
        "topic",
        "partition",
        "offset",
        "key",
        "value",
        *_HEADERS.get("", _headers),
        *more,
    )


_HEADERS: Final = ColumnCache["list[Column]"]()


def _headers() -> list[Column]:
    return [
        _header(SPLIT_HEADER).alias("split"),
        _header(EVENT_HEADER).alias("event"),
        _header(SCHEMA_HEADER).alias("schema"),
        _header(INCREMENTAL_HEADER).alias("incremental"),
    ]


_RANGE_OPTIONS: Final = (
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Options of the configuration that apply to range reads."""

_RECORDS_PER_TASK: Final = 75_000
"""About a second of work. Much longer tasks leave cores idle at the end of a batch."""

_COMPARED_HEADERS: Final = 4
"""Headers that are compared one by one. Tailrace's headers are among them, after at most one Debezium header."""

_CONTEXT: Final = "__debezium.context."
"""Prefix of Debezium's context headers, which the producer writes after Tailrace's headers."""


def _header(name: str) -> Column:
    """Return a header's value as text, or NULL.

    Spark compiles the comparison of the first headers but interprets a search through the array (``filter``). The
    search is used only if another program has put more headers in front.
    """
    headers = fn.col("headers")
    first = [fn.get(headers, fn.lit(index)) for index in range(_COMPARED_HEADERS)]
    found = fn.when(first[0]["key"] == name, first[0]["value"])
    for header in first[1:]:
        found = found.when(header["key"] == name, header["value"])
    searched = fn.get(fn.filter(headers, lambda header: header["key"] == fn.lit(name)), fn.lit(0))["value"]
    more = (fn.size(headers) > _COMPARED_HEADERS) & ~first[-1]["key"].startswith(_CONTEXT)
    return found.when(more, searched).cast("string")
