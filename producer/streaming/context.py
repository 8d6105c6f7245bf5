"""The objects that everything on the stream's thread shares."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.producer.config.filters import TableFilter
from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.value_options import ProcessingFailureHandling
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.stream_transaction import StreamTransaction


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What the stream captures, and how its records look."""

    prefix: str
    table_filter: TableFilter
    context_headers: Headers
    skipped_operations: frozenset[str]
    tombstones: bool
    include_query: bool
    max_waiting_splits: int
    """Readers pause while so many splits are in Kafka without END certificate."""
    max_hold_s: float = 60.0
    """How long the stream waits for a split that is being read."""
    processing_failures: ProcessingFailureHandling = "table"
    fingerprint: str = ""
    """Of the configuration: differs if a setting differs that is no secret."""
    reads_after_alter: bool = False
    """An incremental snapshot reads a table whose rows a statement changed without row events."""


@dataclass(frozen=True, slots=True)
class StreamContext:
    """What every part of the stream uses; only ``mailbox`` and ``status`` may be used by other threads."""

    settings: StreamSettings
    transaction: StreamTransaction
    registry: SplitRegistry
    tables: CapturedTables
    mailbox: Mailbox
    status: Status
