"""What snapshots report about their progress."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tailrace.producer.kafka.state_store import SplitState, TableState
from tailrace.producer.model.table import TableId


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

    def on_table_removed(self, table: TableId, *, incremental: bool, request: int | None = None) -> bool:
        """The snapshot of a table was cancelled: the source no longer has the table, or it cannot be read.

        ``request``: the number of the incremental snapshot that it was; another one of the table stays. Return whether
        the topic lacks rows now that it would have.
        """

    def on_change_skipped(self, tables: Iterable[TableId]) -> None:
        """A change of these tables is missing in their topics: they must be read again, from here on."""
