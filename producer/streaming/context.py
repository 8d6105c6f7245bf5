"""What everything on the stream's thread shares: settings, objects, and what snapshots report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tailrace.producer.config.filters import TableFilter
from tailrace.producer.kafka.state_store import SplitState, TableState
from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.binlog_events import RowsEvent
from tailrace.producer.model.table import TableId
from tailrace.producer.model.value_options import ProcessingFailureHandling
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.replay import Replay
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
    replay: Replay = field(default_factory=Replay)


class SignalTable(NamedTuple):
    """The source table whose inserts are signals."""

    id: TableId
    on_rows: Callable[[RowsEvent, str, int], None]
    """Processes a rows event of the transaction with a GTID; the number is that of the event."""


class SnapshotProgressListener(Protocol):
    """Called on the stream's thread; what it writes is committed together with the reported fact."""

    def on_table_started(self, table: TableId, *, incremental: bool) -> None:
        """The snapshot of a table started."""

    def on_split_completed(self, table: TableId, state: SplitState, plan: TableState, *, incremental: bool) -> None:
        """The rows of a split are in Kafka."""

    def on_table_completed(self, table: TableId, rows: int, *, incremental: bool) -> None:
        """Every split of a table has ended."""

    def request_reading(self, table: TableId) -> None:
        """Request an incremental snapshot of a table, also if one is running that may have missed rows."""

    def requires_reading(self, table: TableId) -> bool:
        """Return whether the topic of a table lacks rows until a requested or running snapshot has read all of them."""

    def on_table_removed(self, table: TableId, *, incremental: bool, request: int | None = None) -> bool:
        """The snapshot of a table was cancelled: the source no longer has the table, or it cannot be read.

        ``request``: the number of the incremental snapshot that it was; another one of the table stays. Return whether
        the topic lacks rows now that it would have.
        """

    def on_change_skipped(self, tables: Iterable[TableId]) -> None:
        """A change of these tables is missing in their topics: they must be read again, from here on."""
