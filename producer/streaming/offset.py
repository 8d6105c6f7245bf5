"""The offset of the binlog reader: where a restart reads from, and what is done of the open source transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from tailrace.producer.errors import BinlogError
from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    PositionAdvanced,
    QueryEvent,
    RowsEvent,
    TableVersion,
    TransactionBegin,
    TransactionCommit,
    TransactionMark,
)
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import TableId

log = structlog.get_logger(__name__)

_MAX_COUNTED_TABLES: Final = 1000
"""Tables whose rows are counted within one transaction: bounds the stored offset."""
_MAX_ENDED: Final = 1000
"""Transactions, besides those of one batch, before their GTIDs are added to the position."""


class StreamOffset:
    """The progress of the binlog reader."""

    def __init__(
        self,
        state: StoredOffset,
        *,
        uncounted: str = "",
        has_unique_rows: Callable[[TableVersion], bool] = lambda _version: True,
    ) -> None:
        """``uncounted`` are the operations whose rows are not written.

        ``has_unique_rows``: a table has a primary or unique key, so that every server logs its rows in one order.
        """
        self._has_unique_rows = has_unique_rows
        self.epoch = state.position.epoch
        """Epoch of the source."""
        self.transaction: TransactionBegin | None = None
        self.statement: QueryEvent | None = None
        """The statement that is applied now; outside of a transaction it has no begin."""
        self.resuming = False
        """The current transaction was begun before a restart, and not all that was done of it is passed."""
        self.counts: dict[str, int] = {}
        """Row records written in the current transaction, by table; used for transaction metadata only."""
        self._position: Offset = state.position
        """Before ``_ended`` and, unless ``_begun``, before the begin of the open transaction."""
        self._ended: list[TransactionCommit | QueryEvent] = []
        self._last = state.last
        """The last transaction before ``_ended``."""
        self._begun = False
        self._pending = {mark.gtid: mark for mark in state.transactions}
        self._uncounted = uncounted
        self._number = self._pos = 0
        self._resumed = TransactionMark("")
        self._table_rows: dict[TableId, int] = {}
        """Rows of the current transaction that are passed, by table, since it began or since the restart."""
        self._rows_before: dict[str, int] | None = {}
        """Rows that were done before a restart and are not passed here, by table; None: unknown."""

    @property
    def position(self) -> Offset:
        """Where a restart reads from: the begin of an open transaction.

        It is made when it is asked for, since most transactions are passed without that.
        """
        if self._ended:
            self._position = self._position.after(*self._ended)
            last = self._ended[-1]
            self._last = TransactionCommit(last.gtid, last.file, last.end, last.ts)
            self._ended.clear()
        if self.transaction is not None and not self._begun:
            self._position = self._position.at_begin(self.transaction)
            self._begun = True
        return self._position

    # -- transactions ------------------------------------------------------------------------------------------------

    def begin(self, begin: TransactionBegin) -> None:
        self.transaction, self._begun = begin, False
        self._number = self._pos = 0
        self._table_rows, self._rows_before = {}, {}
        mark = self._pending.pop(begin.gtid, None) if self._pending else None
        if mark is None:
            self.counts = {}
            return
        self._resumed = mark
        self.counts = dict(mark.records)
        known = mark.table_rows is not None and (mark.relocated or mark.uncounted == self._uncounted)
        self._rows_before = dict(mark.table_rows or {}) if known else None
        self.resuming = not mark.relocated or bool(self._rows_before)

    def commit(self, event: TransactionCommit | QueryEvent) -> None:
        """Leave a transaction: it counts as executed from here on."""
        self._ended.append(event)
        self.transaction = self.statement = None
        self.resuming = False
        if len(self._ended) >= _MAX_ENDED or isinstance(event, QueryEvent):  # the text of a statement may be long
            _ = self.position

    @property
    def has_resumed(self) -> bool:
        """Whether a transaction was begun before a restart, so that ``begin`` must see each one."""
        return self.resuming or bool(self._pending)

    def pass_events(
        self,
        begin: TransactionBegin | None,
        ended: Sequence[TransactionCommit],
        *,
        entered: bool,
        last: tuple[int, int] | None,
        rows: Iterable[tuple[TableId, int]],
    ) -> None:
        """Pass events at once as ``begin``, ``done`` and ``commit`` do, unless ``has_resumed``.

        ``begin`` is the transaction that is open after them, ``entered``: a begin was passed, ``last`` is
        number and position of the last rows event, if there was one, ``rows`` those that were passed of ``begin``.
        """
        self._ended.extend(ended)
        self.transaction = begin
        if entered:
            self._begun = False
            self._number = self._pos = 0
            self._table_rows, self._rows_before, self.counts = {}, {}, {}
        if begin is not None:
            if last is not None:
                self._number, self._pos = last
            for table, count in rows:
                self._table_rows[table] = self._table_rows.get(table, 0) + count
        if len(self._ended) >= _MAX_ENDED:
            _ = self.position

    def advance(self, event: PositionAdvanced) -> None:
        """Move forward outside a transaction; a server announces a file from its start, whatever it sends of it."""
        position = self.position
        moved = position.advanced_to(event)
        if not moved.before(position):
            self._position = moved

    # -- events of the current transaction ---------------------------------------------------------------------------

    def is_done(self, event: RowsEvent | QueryEvent | ChangeRefused) -> bool:
        """Return whether an event was done before a restart.

        Raises BinlogError if the last event that was done is not at the position where it was read.
        """
        if not self.resuming or event.number > self._resumed.number:
            return False
        if isinstance(event, QueryEvent):
            return True  # the first event of its transaction, on every server
        if self._resumed.relocated:
            return False
        if event.number == self._resumed.number and self._resumed.pos not in {0, event.pos}:
            raise BinlogError(
                "a transaction in the binlog is not the one that was read before, although it has the same GTID",
                hint="take a new snapshot under another topic.prefix: the source has lost binlog in a crash, or gave "
                "GTIDs to other transactions",
                gtid=self._resumed.gtid,
                file=event.file,
                pos=event.pos,
                expected_pos=self._resumed.pos,
            )
        return True

    def rows_to_skip(self, event: RowsEvent) -> int:
        """Return how many of the first rows of an event were done before a restart; it may be more than it has."""
        if not self.resuming:
            return 0
        if self._resumed.relocated:
            done = (self._rows_before or {}).get(str(event.table.id), 0)
            return done if not done or self._has_unique_rows(event.table) else self._repeat(event.table.id)
        return self._resumed.rows if event.number == self._resumed.number + 1 else 0

    def _repeat(self, table: TableId) -> int:
        """Skip no row of a table: a replica finds rows without a key by a scan, and may log them in another order."""
        assert self._rows_before is not None
        rows = self._rows_before.pop(str(table))
        log.warning(
            "rows of a transaction that is partly written are written again from its beginning",
            reason="another server may have them in another order: the table has neither a primary nor a unique key",
            table=str(table),
            rows=rows,
            gtid=self._resumed.gtid,
        )
        return 0

    @property
    def skips_rows_of_connector(self) -> bool:
        """Whether a Debezium connector has written the rows to skip.

        All records of a row have one offset in Kafka Connect. Of the last row the connector may have written the delete
        of a changed key and not the insert of the new key.
        """
        return self._resumed.rows > 0 and not self._resumed.relocated

    def done(self, event: RowsEvent | QueryEvent | ChangeRefused, table: TableId | None = None, rows: int = 0) -> None:
        """All that an event needs is written: ``rows`` is the number of all its rows, 0 if they are not written."""
        self._number, self._pos = event.number, event.pos
        if rows and table is not None:
            self._table_rows[table] = self._table_rows.get(table, 0) + rows
        if self.resuming:
            self._pass_resumed(table, rows)

    def _pass_resumed(self, table: TableId | None, rows: int) -> None:
        if not self._resumed.relocated:
            self.resuming = False
            return
        assert self._rows_before is not None
        left = self._rows_before.pop(str(table), 0) - rows
        if left > 0:
            self._rows_before[str(table)] = left
        self.resuming = bool(self._rows_before)

    # -- what restarts and readers need ------------------------------------------------------------------------------

    def barrier(self) -> Offset:
        """Return what a SELECT must see: all that was read so far, including what is partly done.

        They are in the binlog already, so they become visible without any action of the producer.
        """
        barrier = self.position
        for gtid in self._pending:
            barrier = barrier.including(gtid)
        current = self.transaction or self.statement
        return barrier if current is None else barrier.including(current.gtid)

    def state(self) -> StoredOffset:
        """Return what is stored with the next commit."""
        marks = tuple(self._pending.values())
        if self.transaction is not None:
            marks = (*marks, self._mark(self.transaction.gtid))
        return StoredOffset(self.position, marks, self._last)

    def _mark(self, gtid: str) -> TransactionMark:
        if self.resuming and not self._resumed.relocated:
            return self._resumed  # what was done before a restart stays done while it is passed
        rows: dict[str, int] | None = None
        if self._rows_before is not None and len(self._table_rows) <= _MAX_COUNTED_TABLES:
            rows = dict(self._rows_before)
            for table, count in self._table_rows.items():
                rows[str(table)] = rows.get(str(table), 0) + count
        mark = TransactionMark(
            gtid, self._number, self._pos, table_rows=rows, uncounted=self._uncounted, records=self.counts
        )
        return replace(mark, relocated=True, number=self._resumed.number, pos=0) if self.resuming else mark
