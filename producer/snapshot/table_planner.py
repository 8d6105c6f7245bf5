"""What an enumerator reads from the source: definitions of tables, their greatest keys, and the bounds of splits.

While a plan begins, the changes of its table are held: for the wait of the low watermark (60 s at most, after which the
session starts again), and for the query of the greatest key (60 s at most, after which the table is planned later).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.producer.model.protocols import KeyOrdering, Offset, SnapshotSession, TableSize
from tailrace.producer.model.split import KeyColumn, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.snapshot.reader import BARRIER_TIMEOUT_S
from tailrace.producer.snapshot.splitter import ChunkSplitter, SplitterSettings


class PlanInput(NamedTuple):
    """What planning needs to know about a table."""

    columns: tuple[KeyColumn, ...]
    """The columns that splits are cut on; empty: the table is one split."""
    size: TableSize
    stand_in_key: tuple[tuple[str, ...], Offset] | None = None
    """The unique index that replaces a primary key, and what the source had executed before it was read."""


@dataclass(slots=True)
class TablePlan:
    """The plan of one table."""

    table: TableId
    columns: tuple[KeyColumn, ...]
    planned: Iterator[Split]
    """What is not assigned yet; the source is asked for the bounds."""
    put_off: list[Split] = field(default_factory=list)
    """Splits that wait: their table was locked, they held the stream for too long, or the limits are exceeded."""
    in_flight: int = 0
    exhausted: bool = False
    missing: bool = False
    """The source no longer has the table; splits in flight are waited for."""

    @property
    def all_read(self) -> bool:
        return self.exhausted and self.in_flight == 0 and not self.put_off and not self.missing


class TablePlanner:
    """Reads over two sessions of its own: one for the enumerator's thread, one for the stream's thread."""

    def __init__(
        self,
        session: SnapshotSession,
        stream_session: SnapshotSession,
        tables: CapturedTables,
        settings: SplitterSettings,
    ) -> None:
        """``tables`` reads the catalog over ``session``."""
        session.bound_lock_waits()
        self.session = session
        self._stream_session = stream_session
        self._tables = tables
        self._settings = settings

    def plan_input(self, table: TableId) -> PlanInput:
        """Read a table's definition. Raises SchemaError if the table does not exist or has no key."""
        found = self.session.describe(table)
        stand_in = None
        if self._tables.stand_in_key(found) is not None:
            at = self.session.current_offset()
            found = self.session.describe(table)
            unique = self._tables.stand_in_key(found)
            stand_in = None if unique is None else (unique, at)
        key = self._tables.key_of(found)
        return PlanInput(self.session.splitting_columns(found, key), self.session.estimated_size(table), stand_in)

    def splitter(self, table: TableId, columns: tuple[KeyColumn, ...]) -> ChunkSplitter:
        return ChunkSplitter(self.session, table, columns, self._settings)

    def stream_order(self, columns: tuple[KeyColumn, ...]) -> KeyOrdering:
        """Return the order of keys for the stream's thread."""
        return self._stream_session.key_ordering(columns)

    def low_watermark(self, barrier: Offset) -> Offset:
        """Wait until the server shows what the stream had read at the barrier; return the low watermark."""
        return self.session.low_watermark(barrier, BARRIER_TIMEOUT_S)

    def close(self) -> None:
        try:
            self.session.close()
        finally:
            self._stream_session.close()
