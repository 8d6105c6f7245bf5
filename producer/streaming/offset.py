"""The offset of the binlog reader: where a restart reads from, and what is done of the open source transaction."""

from __future__ import annotations

from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import PositionAdvanced, QueryEvent, TransactionBegin, TransactionCommit
from tailrace.producer.model.protocols import Offset


class StreamOffset:
    """The progress of the binlog reader. ``position`` is where a restart reads from: an open transaction's begin."""

    def __init__(self, state: StoredOffset) -> None:
        self.position: Offset = state.position
        self.transaction: TransactionBegin | None = None
        self.events = 0
        """Rows events of captured tables done in the current transaction."""
        self.counts: dict[str, int] = {}
        """Row records written in the current transaction, by table; used for transaction metadata only."""
        self._resume_transaction = state.transaction
        self._resume_events = state.events
        self._resume_counts = state.counts
        self._resume_rows = state.rows
        self._skip = 0
        self.rows = 0
        """Rows done before a restart of the first event that is not complete; 0 unless the offset was taken over."""

    @property
    def epoch(self) -> int:
        """Return the epoch of the source."""
        return self.position.epoch

    def begin(self, begin: TransactionBegin) -> int:
        """Enter a transaction; return how many of its rows events were done before a restart."""
        self.transaction = begin
        self.position = self.position.at_begin(begin)
        self.events = 0
        resumed = begin.gtid == self._resume_transaction
        skip = self._resume_events if resumed else 0
        self.counts = dict(self._resume_counts) if resumed else {}
        self._skip, self.rows = skip, self._resume_rows if resumed else 0
        self._resume_transaction, self._resume_events, self._resume_counts, self._resume_rows = "", 0, {}, 0
        return skip

    def rows_to_skip(self) -> int:
        """Return how many rows of the current event were done before a restart."""
        return self.rows if self.events == self._skip + 1 else 0

    def commit(self, event: TransactionCommit | QueryEvent) -> None:
        """Leave a transaction: it counts as executed from here on."""
        self.position = self.position.after(event)
        self.transaction = None
        self.events = 0

    def advance(self, event: PositionAdvanced) -> None:
        """Move forward outside a transaction."""
        self.position = self.position.advanced_to(event)

    def barrier(self) -> Offset:
        """Return what a SELECT must see: all that was read so far, including the open transaction.

        The open transaction is in the binlog already, so it becomes visible without any action of the producer.
        """
        if self.transaction is not None:
            return self.position.including(self.transaction.gtid)
        if self._resume_transaction:
            return self.position.including(self._resume_transaction)
        return self.position

    def state(self) -> StoredOffset:
        """Return what is stored with the next commit."""
        if self.transaction is not None:
            # What was done before a restart stays done while it is being skipped.
            events, rows = max(self.events, self._skip), self.rows if self.events <= self._skip else 0
            return StoredOffset(self.position, self.transaction.gtid, events, self.counts, rows)
        return StoredOffset(
            self.position,
            self._resume_transaction,
            self._resume_events,
            self._resume_counts,
            self._resume_rows,
        )
