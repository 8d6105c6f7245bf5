"""XA transactions: moves the rows of a prepared transaction to its XA COMMIT, and drops them at its XA ROLLBACK.

The server logs the rows at XA PREPARE, in a transaction of their own. They become visible with the XA COMMIT, which is
another transaction, perhaps much later. Rows of small transactions are kept in memory until then. For others, and after
a restart, the transaction is read again from the binlog. Its rows have the GTID and the position of the XA COMMIT, so
that everything behind this stream orders and judges them by the moment they became visible.

XA START does not say whether one or two phases follow, so the rows of a one-phase transaction wait for its end too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, Protocol

from tailrace.producer.model.binlog_events import (
    ChangeRefused,
    Event,
    PositionAdvanced,
    PreparedTransactionEnded,
    QueryEvent,
    RowsEvent,
    TransactionBegin,
    TransactionCommit,
    TransactionPrepared,
)
from tailrace.producer.model.ddl import DdlEffect
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog import event_types

_MAX_KEPT_BYTES: Final = 16 << 20
"""Of rows of prepared transactions; beyond that, the oldest transaction is read again at its end."""
_EVENT_BYTES: Final = 500
"""Estimated size of a kept event without its images."""


class TransactionPurgedError(Exception):
    """The binlog no longer has a transaction."""


class TransactionNotFoundError(TransactionPurgedError):
    """The part of the binlog that may be searched does not have a transaction."""


class EventSource(Protocol):
    """The binlog stream."""

    @property
    def has_xa(self) -> bool:
        """Whether the events of the last ``poll`` have XA statements."""

    @property
    def caught_up(self) -> bool:
        """Whether the last ``poll`` returned no event because the source had sent nothing more."""

    @property
    def received_at(self) -> float:
        """When the source last sent something."""

    def poll(self, timeout_s: float) -> list[Event]:
        """Return the next events; [] after ``timeout_s`` or ``wake``."""

    def wake(self) -> None:
        """Make the running or the next ``poll`` return at once."""

    def ddl_effects(self, event: QueryEvent) -> Sequence[DdlEffect]:
        """Return what a statement does to tables and databases."""

    def close(self) -> None:
        """Disconnect."""


class PreparedHistory(Protocol):
    """Reads the binlog before the stream. The generators yield [] now and then while they wait."""

    def read(self, gtid: str, ended: PreparedTransactionEnded | None, file: str = "") -> Iterator[list[Event]]:
        """Yield the changes of one transaction; ``file`` has it, unless the server changed.

        Raises TransactionPurgedError.
        """

    def find(self, ended: PreparedTransactionEnded) -> Generator[list[Event], None, TransactionPrepared | None]:
        """Return the last XA PREPARE of a transaction; None: there was none. Raises TransactionPurgedError."""


class XaStream:
    """A change stream without prepared transactions; wraps the binlog stream, which it closes."""

    def __init__(
        self,
        stream: EventSource,
        history: PreparedHistory,
        prepared: Iterable[TransactionPrepared],
        *,
        max_kept_bytes: int = _MAX_KEPT_BYTES,
    ) -> None:
        """``prepared``: transactions before the start of the stream whose end was not read yet."""
        self._stream = stream
        self._history = history
        self._prepared = {transaction.xid: transaction for transaction in prepared}
        self._restored = set(self._prepared)
        self._kept: dict[str, _KeptRows] = {}
        self._kept_bytes = 0
        self._max_kept_bytes = max_kept_bytes
        self._current: _KeptRows | None = None
        """The XA transaction that is being read."""
        self._batches: Iterator[list[Event]] | None = None

    @property
    def caught_up(self) -> bool:
        """See ``ChangeStream``."""
        return self._batches is None and self._stream.caught_up

    @property
    def received_at(self) -> float:
        """See ``ChangeStream``."""
        return self._stream.received_at

    def wake(self) -> None:
        """Make the running or the next ``poll`` return at once. For other threads."""
        self._stream.wake()

    def ddl_effects(self, event: QueryEvent) -> Sequence[DdlEffect]:
        """See ``BinlogStream``."""
        return self._stream.ddl_effects(event)

    def close(self) -> None:
        """Disconnect."""
        if isinstance(self._batches, Generator):
            self._batches.close()
        self._stream.close()

    def poll(self, timeout_s: float) -> list[Event]:
        """Return the next events; raises the errors of ``BinlogStream.poll``."""
        while True:
            if self._batches is not None:
                batch = next(self._batches, None)
                if batch is not None:
                    return batch
                self._batches = None
            events = self._stream.poll(timeout_s)
            if self._current is None and not self._stream.has_xa:
                return events
            self._batches = self._resolve(events)

    def _resolve(self, events: list[Event]) -> Iterator[list[Event]]:
        out: list[Event] = []
        for event in events:
            if self._current is not None:
                if isinstance(event, TransactionCommit):
                    if self._current.rows is None and self._current.prepared is None:
                        yield [*out, self._current.begin]
                        try:
                            yield from self._history.read(event.gtid, None)
                        except TransactionPurgedError as error:
                            begin, tables = self._current.begin, tuple(self._current.tables)
                            yield [_lost(begin.xid, error, tables, (event.file, begin.pos, event.end))]
                        out = [event]
                        self._current = None
                    else:
                        out += self._end_current(event)
                elif not isinstance(event, PositionAdvanced):
                    self._keep(self._current, event)
            elif isinstance(event, TransactionBegin) and event.xid:
                self._current = _KeptRows(event)
            elif isinstance(event, PreparedTransactionEnded):
                yield out
                out = []
                yield from self._end_prepared(event)
            else:
                out.append(event)
        yield out

    def _end_current(self, commit: TransactionCommit) -> list[Event]:
        """End the transaction that is being read: of one phase, or prepared."""
        current, self._current = self._current, None
        assert current is not None
        prepared = current.prepared
        if prepared is None:
            assert current.rows is not None
            return [current.begin, *current.rows, commit]
        self._forget(prepared.xid)
        self._restored.discard(prepared.xid)
        self._prepared[prepared.xid] = prepared
        if current.rows:
            self._kept[prepared.xid] = current
            self._kept_bytes += current.size
            while self._kept_bytes > self._max_kept_bytes:
                self._forget(next(iter(self._kept)))
        return [current.begin, prepared, commit]

    def _forget(self, xid: str) -> None:
        kept = self._kept.pop(xid, None)
        if kept is not None:
            self._kept_bytes -= kept.size

    def _keep(self, current: _KeptRows, event: Event) -> None:
        """Keep an event of the current transaction, but not more than the memory allows."""
        if isinstance(event, TransactionPrepared):
            current.prepared = event
            return
        if isinstance(event, RowsEvent):
            current.tables.add((event.table.id.database, event.table.id.table))
        if current.rows is None:
            return
        if isinstance(event, RowsEvent):
            # A copy: the event refers to all bytes that were received with it.
            images = event.data[event.start : event.stop]
            event = event._replace(data=images, start=0, stop=len(images))
            current.size += len(images)
        current.size += _EVENT_BYTES
        current.rows.append(event)
        if current.size > self._max_kept_bytes:
            current.rows = None
            current.size = 0

    def _end_prepared(self, event: PreparedTransactionEnded) -> Iterator[list[Event]]:
        """Yield the rows of a prepared transaction that is committed, then ``event``."""
        prepared = self._prepared.pop(event.xid, None)
        kept = self._kept.get(event.xid)
        self._forget(event.xid)
        if not event.committed:
            yield [event]
            return
        rows: list[Event] = []
        # Tables that are captured now were perhaps not captured when a restored transaction was read.
        restored = event.xid in self._restored
        self._restored.discard(event.xid)
        try:
            if prepared is None:
                prepared = yield from self._history.find(event)
            if prepared is not None and (prepared.captured or restored):
                if kept is None or kept.rows is None:
                    yield from self._history.read(prepared.gtid, event, prepared.file)
                else:
                    rows = [at_commit(row, event) if isinstance(row, RowsEvent) else row for row in kept.rows]
        except TransactionPurgedError as error:
            if prepared is None or prepared.captured:
                tables = () if prepared is None else prepared.tables
                rows = [_lost(event.xid, error, tables, (event.file, event.pos, event.end))]
        yield [*rows, event]


class _KeptRows:
    """An XA transaction and its events between begin and end; None: too large to keep."""

    __slots__ = ("begin", "prepared", "rows", "size", "tables")

    def __init__(self, begin: TransactionBegin) -> None:
        self.begin = begin
        self.rows: list[Event] | None = []
        self.size = 0
        self.prepared: TransactionPrepared | None = None
        self.tables: set[tuple[str, str]] = set()
        """Captured tables that it changes."""


def at_commit(rows: RowsEvent, commit: PreparedTransactionEnded) -> RowsEvent:
    """Return a rows event with the position and the time of its XA COMMIT."""
    table = rows.table.of_earlier_rows()
    return rows._replace(
        table=table, file=commit.file, pos=commit.pos, end=commit.end, ts=commit.ts, server_id=commit.server_id
    )


def _lost(
    xid: str, error: TransactionPurgedError, tables: Sequence[tuple[str, str]], at: tuple[str, int, int]
) -> ChangeRefused:
    if isinstance(error, TransactionNotFoundError):
        lost = event_types.unfound_xa(xid, str(error))
    else:
        lost = event_types.lost_xa(xid, str(error), known=bool(tables))
    return event_types.refused([TableId(*table) for table in tables], lost, *at)._replace(number=1)
