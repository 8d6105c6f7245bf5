"""Topics that were deleted: what was in them is reported, and read again if that is configured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import structlog

from tailrace.producer.config.sections.kafka import MissingTopicHandling
from tailrace.producer.kafka.state_store import State
from tailrace.producer.model.table import TableId
from tailrace.runtime.errors import KafkaRequestError
from tailrace.schemas.names import watermarks_topic

log = structlog.get_logger(__name__)


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
        "its rows are read by an incremental snapshot; deletes before now are missing"
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


def report_deleted_certificates(created: Collection[str], state: State, prefix: str) -> None:
    """Report a topic of watermarks that was created although splits were certified before."""
    if watermarks_topic(prefix) in created and state.offset is not None:
        log.error(
            "the topic of watermarks does not exist any more: the END certificates of all earlier splits are missing",
            topic=watermarks_topic(prefix),
            hint="changelog readers that start from here need incremental snapshots of the tables, or another prefix",
        )
