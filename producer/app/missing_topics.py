"""Topics that were deleted, or cannot be created: what was in them is reported, and read again if configured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import structlog
from confluent_kafka import OFFSET_BEGINNING

from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.app.startup import fail_tables
from tailrace.producer.config import ProducerConfig, fingerprint
from tailrace.producer.config.sections.kafka import MissingTopicHandling
from tailrace.producer.errors import StateLostError
from tailrace.producer.kafka.state_store import State
from tailrace.producer.kafka.topic_reader import messages, topic_consumer
from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.producer.streaming.refused_changes import table_fault
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.producer.streaming.topics import CaptureTopics
from tailrace.runtime.errors import KafkaRequestError
from tailrace.schemas.names import state_topic, watermarks_topic
from tailrace.schemas.watermark import Watermark

log = structlog.get_logger(__name__)

_EPOCHS_WITHOUT_WATERMARK: Final = 1000
"""A change of the server begins an epoch, and only a split writes it to the topic of watermarks."""


def deleted_tables(
    missing: Iterable[TableId], state: State, topic_of: Callable[[TableId], str], handling: MissingTopicHandling
) -> list[TableId]:
    """Report the tables whose topic is missing although the state says that they were captured; return them.

    Raises KafkaRequestError if a missing topic shall stop the producer.
    """
    captured = state.captured
    deleted = [table for table in missing if str(table) in captured]
    if deleted and handling == "fail":
        raise KafkaRequestError(
            "topics of captured tables do not exist any more: what was written to them is missing",
            hint="restore the topics, or set tailrace.missing.topic.handling.mode to snapshot or warn",
            topics=", ".join(map(topic_of, deleted)),
        )
    hint = (
        "wait: an incremental snapshot reads its rows, and readers are told that the earlier ones are gone"
        if handling == "snapshot"
        else "request an incremental snapshot of the table, or set tailrace.missing.topic.handling.mode=snapshot"
    )
    for table in deleted:
        log.error(
            "the topic of a table does not exist any more: everything written to it until now is missing",
            table=str(table),
            topic=topic_of(table),
            mode=state.tables[str(table)].mode.value,
            written_up_to=state.offset.position.to_json() if state.offset is not None else None,
            hint=hint,
        )
    return deleted


def fail_without_topic(
    config: ProducerConfig,
    transaction: StreamTransaction,
    state: State,
    topics: CaptureTopics,
    tables: Iterable[TableId],
) -> dict[TableId, str]:
    """Create the missing topics of tables; return why tables are in error whose topics Kafka refuses to create.

    In the stream such a topic concerns its table alone, and so it does here. At the first start nothing is captured
    yet: it is refused, as for every other problem.
    """
    refused = topics.refused(tables)
    if refused and (state.offset is None or config.values.processing_failures == "fail"):
        raise next(iter(refused.values()))
    failed = {
        table: table_fault(table, error, fingerprint(config))
        for table, error in refused.items()
        if str(table) in state.captured
    }
    fail_tables(transaction, state, failed, topic_of=TopicNames(config.topics).table)
    return {table: f"{error.message}; {error.hint}" for table, error in refused.items()}


def first_epoch(config: ProducerConfig, topics: CaptureTopics, captured: Iterable[TableId]) -> int:
    """Return the epoch of a start without state: what it reads sorts after all that the topics of the prefix have.

    Raises StateLostError if they have anything, unless that is configured: rows that were deleted since would stay.
    Without the error, readers are told that the rows are gone (streaming/former_tables.py).
    """
    prefix = config.topics.prefix
    certified, written = topics.has_watermarks(), topics.with_records(captured)
    if not certified and not written:
        return 1
    message = (
        f"the topic {state_topic(prefix)} is empty, but topics of the prefix have records: it was deleted, or another "
        "program has written them"
    )
    facts: dict[str, object] = {"watermarks": certified, "topics": len(written)}
    if config.topics.missing_state == "fail":
        raise StateLostError(
            message,
            hint="restore the topic, or capture under another topic.prefix; after a Debezium connector, run "
            "`tailrace takeover`; or set tailrace.missing.state.handling.mode=snapshot: readers are told that the "
            "earlier rows of the tables are gone, and all tables are read again",
            **facts,
        )
    log.warning(message, then="readers are told that the earlier rows of the tables are gone", **facts)
    kafka, topic = kafka_settings(config), watermarks_topic(prefix)
    with topic_consumer(kafka, topic) as consumer:
        found = messages(consumer, topic, {0: OFFSET_BEGINNING}, kafka.request_timeout_s)
        last = max((Watermark.from_json(value).position.epoch for each in found if (value := each.value())), default=0)
    return last + _EPOCHS_WITHOUT_WATERMARK


def report_deleted_certificates(created: Collection[str], state: State, prefix: str) -> None:
    """Report a topic of watermarks that was created although splits were certified before."""
    if watermarks_topic(prefix) in created and state.offset is not None:
        log.error(
            "the topic of watermarks does not exist any more: the END certificates of all earlier splits are missing",
            topic=watermarks_topic(prefix),
            hint="request incremental snapshots of the tables for changelog readers that start from here, or take "
            "another prefix",
        )
