"""Sink ``upsert-kafka``: one compacted topic per table with the last row of each key; a deleted key is a tombstone.

The key of a record is the JSON object of the key columns, the value the JSON object of all columns, as in Flink's
upsert-kafka connector.

What a topic has applied is one record of the ledger topic: the offsets of the source, and the last truncation. It is
written after the rows. A batch that runs again after a failure in between writes the same last rows again, which
compaction removes and a reader of the last value per key does not see. A batch that the ledger has is not written
again, so an older checkpoint does not bring old rows back.

The invariant with several writers: rows are written only if the newest record of the ledger is the one that their
writer knows, and the record that is last in the ledger is behind all rows of its writer. Two that write at once differ
in their next batch: the table of one of them stops, and goes on at the last record. If that is behind the rows of the
other one, they are written again, so that the last value of each key is right. Spark's writer has no transactions that
could fence a writer: the rows of one that is killed before it writes its record can be behind those of another.

Several topics can have one target only if its name does not have ``{topic}``. Then a topic writes its record of the
ledger before its first row, and reads those of others after it: of two that begin at once, one finds the other.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import functions as fn

from tailrace.runtime.config.section import supported
from tailrace.runtime.config.value_types import TEXT
from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.latest import last_per_key, later, without_truncated
from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS, upsert_columns
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch, TargetRows
from tailrace.spark_consumer.sink.kafka import (
    COMPACTED,
    OFFSET_HEADER,
    PARTITION_HEADER,
    SEQUENCE_HEADER,
    TOPIC_HEADER,
    LedgerTopic,
    TopicOptions,
    ensure_topic,
    has_topic,
    header,
    header_text,
    newest_records,
    sequence_header,
    sequence_text,
    target_topic,
    write_records,
)
from tailrace.spark_consumer.sink.ledger import ENTRY as LEDGER_ENTRY
from tailrace.spark_consumer.sink.ledger import LEAVE_OUT, Ledger, comparable, is_applied, missing_target, not_applied
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import PLAIN, Layout
from tailrace.spark_consumer.sink.state import ALONE, Shard, Stored, TargetState, key_text, require_owner
from tailrace.spark_consumer.sink.target import TargetSink
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.kafka import reload_remedy
from tailrace.spark_consumer.source.types import sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOPIC_WORD: Final = "{topic}"
"""What makes each target that of one topic."""
_TRUNCATED: Final = "truncated"
_KEY: Final = "key"
_SHARD: Final = "shard"

log = structlog.get_logger(__name__)


class UpsertKafkaOptions(TopicOptions):
    """Settings of the upsert-kafka sink."""

    topic: str = supported(
        "sink.topic", TEXT, default="latest.{topic}", doc="Topic of a table, with {topic}, {database} and {table}."
    )
    ledger: str = supported(
        "sink.ledger.topic",
        TEXT,
        default="ledger.{prefix}",
        doc="Topic of the applied offsets, with {prefix}; each query with its own sink.topic needs one of its own.",
    )


def stored_in(topic: str, text: str | None) -> Stored | None:
    """Return what a record of the ledger topic says of the topic of a table."""
    ledger = Ledger.newest(topic, [text])
    if ledger is None or text is None:
        return None
    found = json.loads(text)
    key = json.dumps(found[_KEY]) if found.get(_KEY) is not None else ""
    state = TargetState(topic, found.get(_SHARD, ""), key, truncated=found.get(_TRUNCATED) or "")
    return Stored(state, ledger)


def text_of(stored: Stored) -> str:
    """Return the value of a record of the ledger topic."""
    state = stored.state
    own = {_TRUNCATED: state.truncated, _KEY: json.loads(state.key or "[]"), _SHARD: state.shard}
    return json.dumps({**json.loads(stored.ledger.metadata), **{name: value for name, value in own.items() if value}})


@dataclass(slots=True)
class OpenTopic:
    """The target topic of a table, which exists."""

    name: str
    """Of the target and of the topic of the table: several of these can be written at the same time."""
    target: str
    key: str
    """That of its record of the ledger."""
    stored: Stored
    shard: Shard | None
    layout: Layout = PLAIN

    @property
    def known(self) -> Ledger:
        """What is known to be applied."""
        return self.stored.ledger


class UpsertKafkaSink(TargetSink[OpenTopic]):
    """Writes the last row of each key to one topic per table."""

    def __init__(self, spark: SparkSession, options: UpsertKafkaOptions, context: SinkContext) -> None:
        super().__init__(context)
        self._spark = spark
        self._options = options
        self._client = options.client_options(context.client)
        self._writer = uuid.uuid4().hex[:12]
        """Tells the records of this process from those of others."""
        self._opening = threading.Lock()

    @cached_property
    def _ledger(self) -> LedgerTopic:
        """The ledger, which the first target that is opened needs."""
        return LedgerTopic(self._spark, self._client, self._options.ledger.format(prefix=self._context.prefix))

    def _applied(self, opened: OpenTopic, schema: TableSchema) -> Mapping[int, int]:
        found, target, topic_id = opened.stored, opened.target, self._context.topic_id(schema.topic)
        if found.ledger.is_of_another_topic(topic_id):
            hint = f"delete topic {target}: the next attempt loads it from the new topic"
            if opened.shard is not None:
                if self._has_rows_of(schema.topic, target):
                    hint = (
                        f"write a tombstone for each key of topic {target} whose last record has the header "
                        f"{TOPIC_HEADER}={schema.topic}: the next attempt loads them from the new topic; or delete the "
                        "topic to load all of its tables"
                    )
                else:
                    state = TargetState(schema.topic, found.state.shard)
                    found = opened.stored = Stored(state, Ledger(schema.topic))
            found.ledger.require_same_topic(topic_id, f"topic {target}", hint=hint)
        if found.state.key not in {"", key_text(schema)}:
            raise SinkError(
                f"the key of {schema.database}.{schema.table} has changed: topic {target} would keep the records of "
                "the former key",
                hint=reload_remedy(schema.topic, f"delete topic {target}"),
                stored=", ".join(json.loads(found.state.key)),
                now=", ".join(schema.key),
            )
        return found.ledger.applied

    def _write(self, opened: OpenTopic, batch: TableBatch, batch_id: int) -> None:  # noqa: ARG002 - offsets tell it
        before, target = opened.stored, opened.target
        self._require_newest(opened)
        truncated = later(before.state.last_truncation, batch.truncated)
        state = before.state if truncated is None else replace(before.state, truncated=truncated.text)
        after = replace(before, state=state)
        if truncated is not None and state != before.state:
            write_records(self._tombstones(opened, batch, truncated), self._client, target)
            log.info("topic truncated", topic=target, sequence=truncated)
        if batch.range is not None and not is_applied(before.ledger.merge, batch.range):
            incremental = any(stat.incremental for stat in batch.stats)
            last = last_per_key(without_truncated(batch.records, truncated), incremental=incremental)
            left = not_applied(last, before.ledger.merge, batch.range)
            write_records(_kafka_records(left, batch.schema), self._client, target)
            topic_id = self._context.topic_id(batch.schema.topic) or before.ledger.id
            ledger = replace(before.ledger, id=topic_id, writer=self._writer)
            state = replace(state, key=key_text(batch.schema))
            after = Stored(state, ledger.appended(batch.range).merged(batch.range))
        if after != before:
            self._store(opened, after)

    def close(self) -> None:
        """Close the consumer of the ledger."""
        if "_ledger" in vars(self):
            self._ledger.close()

    def read_target(self, spark: SparkSession, schema: TableSchema) -> TargetRows:
        """Return the last row of each key, with the ledger before and behind the query of them."""
        target, topic = target_topic(self._options.topic, schema, self._context.prefix), schema.topic
        if not has_topic(spark, self._client, target):
            raise missing_target(target, topic)
        if _TOPIC_WORD not in self._options.topic:
            raise SinkError(f"topic {target} can have the rows of several tables: not compared yet", hint=LEAVE_OUT)

        def ledger() -> Ledger:
            return comparable(self._newest(topic, target).ledger, self._context, topic, f"topic {target}")

        before = ledger()
        rows = newest_records(spark, self._client, target).where(fn.col("value").isNotNull())
        row = fn.from_json("value", row_type(schema), {**JSON_OPTIONS, "mode": "FAILFAST"})
        return TargetRows(rows.select(row.alias("row")).select("row.*"), before.applied, lambda: ledger().reached)

    def _store(self, opened: OpenTopic, stored: Stored) -> None:
        """Store what is applied, behind the rows."""
        self._ledger.write(self._spark, {opened.key: text_of(stored)})
        opened.stored = stored

    def _require_newest(self, opened: OpenTopic) -> None:
        """Raise SinkError if another process has written to the topic of a table since its ledger was read."""
        topic = opened.known.topic
        newest = self._newest(topic, opened.target).ledger
        if newest.is_of_another_topic(self._context.topic_id(topic)):
            newest = Ledger(topic)  # none of its rows is left: ``applied`` has looked
        newest.require_known(opened.known, f"topic {opened.target}")

    def _newest(self, topic: str, target: str) -> Stored:
        values = self._ledger.values()
        # Earlier settings of sink.topic, and earlier releases, had other names.
        stored = (
            stored_in(topic, values.get(name)) for name in (self._key(topic, target), target, f"{target} {topic}")
        )
        return next(filter(None, stored), None) or Stored(TargetState(topic), Ledger(topic))

    def _has_rows_of(self, topic: str, target: str) -> bool:
        rows = newest_records(self._spark, self._client, target).where(fn.col("value").isNotNull())
        return not rows.where(header_text(TOPIC_HEADER) == topic).limit(1).isEmpty()

    def _target(self, schema: TableSchema) -> OpenTopic:
        """Create the topic of a table if it is missing; read what it has applied."""
        topic, target = schema.topic, target_topic(self._options.topic, schema, self._context.prefix)
        with self._opening:
            if not has_topic(self._spark, self._client, target):
                self._remove(target)
            _, other = ensure_topic(self._spark, self._client, target, self._options.partitions, COMPACTED)
            if other:
                raise SinkError(
                    f"topic {target} is not compacted: it would lose the last row of a key, or grow without bound",
                    hint=f"run kafka-configs.sh --bootstrap-server BROKER --alter --topic {target} --add-config "
                    "cleanup.policy=compact; the table goes on at the next attempt",
                    **{name.replace(".", "_"): value for name, value in other.items()},
                )
            stored, shard = self._newest(topic, target), self._context.shard(topic)
            opened = OpenTopic(f"{target} {topic}", target, self._key(topic, target), stored, shard)
            if _TOPIC_WORD not in self._options.topic:
                self._claim(opened)
        return opened

    def _claim(self, opened: OpenTopic) -> None:
        """Store that a topic writes to its target. Raises SinkError if it cannot because of another one."""
        topic, shard, stored = opened.known.topic, opened.shard, opened.stored
        former = self._ledger.values().get(opened.key)
        claimed = replace(stored, state=replace(stored.state, shard=ALONE if shard is None else shard.text))
        require_owner(topic, shard, self._owners(opened.target), f"topic {opened.target}")
        if claimed == stored:
            return
        self._ledger.write(self._spark, {opened.key: text_of(claimed)})
        try:
            require_owner(topic, shard, self._owners(opened.target), f"topic {opened.target}")
        except SinkError:
            self._ledger.write(self._spark, {opened.key: former})
            raise
        opened.stored = claimed

    def _owners(self, target: str) -> dict[str, str]:
        """Return the topics that write to a target, with the values of their shards."""
        values, start, found = self._ledger.values(), f"{target} ", {}
        # The names of topics have no spaces, and the record of a shard follows that of its topic alone.
        for key in sorted(key for key in values if key == target or key.startswith(start)):
            text = values[key]
            if text:
                entry = json.loads(text)
                topic = str(entry[LEDGER_ENTRY]["topic"])
                found[topic] = str(entry.get(_SHARD, ALONE if key == target else ""))
        return found

    def _key(self, topic: str, target: str) -> str:
        """Return the key of the record with what is applied.

        If several topics can have one target, each of them has its own record.
        """
        return target if _TOPIC_WORD in self._options.topic else f"{target} {topic}"

    def _remove(self, target: str) -> None:
        """Remove what the ledger has of a topic that does not exist (any more), before the topic is created."""
        values = self._ledger.values()
        known = [key for key, value in values.items() if value and (key == target or key.startswith(f"{target} "))]
        if known:
            self._ledger.write(self._spark, dict.fromkeys(known))

    def _tombstones(self, opened: OpenTopic, batch: TableBatch, truncated: Sequence) -> DataFrame:
        """Return a tombstone for each row of the topic that is older than a truncate event."""
        rows = newest_records(batch.records.sparkSession, self._client, opened.target)
        older = rows.where(fn.col("value").isNotNull() & (sequence_header() < sequence_literal(truncated)))
        if opened.shard is not None:
            older = older.where(header_text(TOPIC_HEADER) == batch.schema.topic)
        headers = fn.array(
            header(TOPIC_HEADER, fn.lit(batch.schema.topic)), header(SEQUENCE_HEADER, fn.lit(truncated.text))
        )
        return older.select("key", fn.lit(None).cast("string").alias("value"), headers.alias("headers"))


def _kafka_records(last: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the last row of each key as Kafka records: key, value, headers."""
    columns = dict(zip((column.name for column in schema.columns), upsert_columns(schema), strict=True))
    key = fn.to_json(fn.struct(*(columns[name] for name in schema.key)), JSON_OPTIONS)
    row = fn.to_json(fn.struct(*columns.values()), JSON_OPTIONS)
    headers = fn.array(
        header(TOPIC_HEADER, fn.lit(schema.topic)),
        header(PARTITION_HEADER, fn.col("partition").cast("string")),
        header(OFFSET_HEADER, fn.col("offset").cast("string")),
        header(SEQUENCE_HEADER, sequence_text(fn.col("seq"))),
    )
    value = fn.when(fn.col("op") != Op.DELETE.value, row)
    return last.select(key.alias("key"), value.alias("value"), headers.alias("headers"))


SINK = SinkPlugin(
    name="upsert-kafka",
    doc="Keeps the last row of each key in a compacted topic per table.",
    options=UpsertKafkaOptions,
    images=Images.UPSERT,
    guarantee="exact for a reader of the last value per key: a batch that runs again writes the same last rows",
    open=UpsertKafkaSink,
    merges_tables=True,
)
