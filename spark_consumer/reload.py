"""Lets one table of a query that is stopped begin at another place of its topic: ``tailrace reload``.

The command replaces the position of the table (parking.py) and its state (table_state.py) in the checkpoint. The state
has the offsets at which the table begins, as long as it is the same topic: no target gets a record from before, also if
it is moved away later (sink/ledger.py). Behind the latest offsets splits of snapshots are not compared: their
records can be before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.names import watermarks_topic
from tailrace.spark_consumer import session
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.errors import as_tailrace_error
from tailrace.spark_consumer.files import children
from tailrace.spark_consumer.normalize.stored_records import CarryOver, MovedKeys, RememberedDeletes
from tailrace.spark_consumer.normalize.table_state import TableState, TableStates
from tailrace.spark_consumer.source.kafka_admin import SharedAdmin, TopicIds, matching
from tailrace.spark_consumer.source.ranges import EARLIEST
from tailrace.spark_consumer.source.topics import subscribe_pattern
from tailrace.spark_consumer.tables.parking import write_position
from tailrace.spark_consumer.tables.progress import TablePosition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Start = Literal["earliest", "latest"]


def reload(config: ConsumerConfig, topic: str, start: Start) -> Mapping[int, int]:
    """Let a table begin elsewhere at the next start of its query; return the offsets, -2 for the earliest."""
    spark = session.build(config, [sink.plugin for sink in load_sinks(config)])
    try:
        return _reload(spark, config, topic, start)
    except Exception as error:
        raise as_tailrace_error(error, "the table cannot be reloaded") from error
    finally:
        spark.stop()


def _reload(spark: SparkSession, config: ConsumerConfig, topic: str, start: Start) -> Mapping[int, int]:
    if not children(spark, f"{config.checkpoint.rstrip('/')}/offsets"):
        problem = f"checkpointLocation {config.checkpoint} is not that of a query that has read a topic"
        raise ConfigError([f"{problem}: name the configuration with which the query runs"])
    pattern = subscribe_pattern(config.topic_prefix, config.table_filter)
    if topic == watermarks_topic(config.topic_prefix) or not matching(spark, pattern, [topic]):
        problem = f"--topic {topic} is not the topic of a table that the query reads"
        raise ConfigError([f"{problem}, by topic.prefix, table.include.list and table.exclude.list"])
    topic_id, ends = _present(spark, config, topic)
    begins = ends if start == "latest" else {}
    starts = begins or dict.fromkeys(ends, EARLIEST)
    # The position is first: the state alone would let the table go on behind records that no target has.
    numbers = {str(number): offset for number, offset in starts.items()}
    write_position(spark, config.checkpoint, TablePosition(topic, numbers, topic_id=topic_id))
    states = TableStates(config.checkpoint)
    before, _ = states.load(spark, topic, -1, None)
    # Keys have one partition, if no record is left from before the last partitions were added.
    moved = MovedKeys(len(ends) if begins else before.moved_keys_in(topic_id).partitions)
    state = TableState(
        step=before.step + 1, unverified=bool(begins), ends=begins, topic_id=topic_id, begins=begins, moved_keys=moved
    )
    states.save(spark, topic, state, TableState())
    # The state names none of them any more, so nothing else removes them.
    CarryOver(config.checkpoint).remove_all(spark, topic)
    RememberedDeletes(config.checkpoint).remove_all(spark, topic)
    return starts


def _present(spark: SparkSession, config: ConsumerConfig, topic: str) -> tuple[str, dict[int, int]]:
    admin = SharedAdmin(config.kafka_client)
    try:
        ids = TopicIds(admin)
        ids.refresh(spark, [topic])
        ends = ids.ends_of(spark, topic)
        return ids.get(topic), ends
    finally:
        admin.close()
