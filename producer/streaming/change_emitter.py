"""Emits the changes of usual transactions by the compiled extension: many events in one call.

It emits what needs no decision, while no transaction of an earlier start is resumed and no transaction metadata is
written: changes of streaming tables whose version is in use, and those of a table under snapshot whose keys have one
decision, to write or to skip them. ``BinlogReader`` handles each event that is declined: those that are held or belong
to a split, the first of a version. It raises the errors of those that cannot be written.

Invariant: the commit at which a split ends, or a table is to be finished, is declined. So all that decisions depend on
changes only between two calls.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from tailrace.producer.errors import RecordRefusedError, RecordTooLargeError
from tailrace.producer.model.binlog_events import Event, RowsEvent, TransactionBegin, TransactionCommit
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.native.loader import codec
from tailrace.producer.serialization.envelope.source_info import source_time_us
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.refused_changes import location
from tailrace.producer.streaming.table_versions import OPS, StreamedVersion, TableVersions
from tailrace.producer.streaming.tracked_table import ChangeDecision, TrackedSplit, TrackedTable

if TYPE_CHECKING:
    from tailrace.producer.native.codec import KeyCover

WRITTEN: Final = 0
SKIPPED: Final = 1
DECLINED: Final = 2

_LEAST: Final = -(1 << 63)
_GREATEST: Final = (1 << 63) - 1
_CODES: Final = {ChangeDecision.EMIT: WRITTEN, ChangeDecision.SKIP: SKIPPED}


class _Begin:
    """Where a transaction begins; the stream has read up to ``read``, in it or before it."""

    def __init__(self, read: Callable[[], Offset], transaction: TransactionBegin) -> None:
        self._read = read
        self._transaction = transaction

    @property
    def position(self) -> Offset:
        return self._read().at_begin(self._transaction)


def cover_of(table: TrackedTable, read: Callable[[], Offset]) -> KeyCover | None:
    """Return the spans of a table under snapshot as the extension reads them; None: no integer cuts the table.

    A cover has one decision for each span, and asks for that of a committed split once for each transaction. It is
    part of the spans, so that it does not outlive what it was made of.

    ``read`` returns how far the stream has read, which may be before the transaction that is decided on.
    """
    spans = table.spans
    if spans is not None and spans.cover is None and (of_integers := key_spans(table)) is not None:
        incremental = table.mode is TableMode.INCREMENTAL

        def decide(split: TrackedSplit, transaction: TransactionBegin) -> int:
            begin = _Begin(read, transaction)
            decision, _ = split.decide_committed(transaction, begin, incremental=incremental)
            return _CODES.get(decision, DECLINED)

        spans.cover = codec.KeyCover(list(of_integers), list(of_integers.values()), decide)
    return None if spans is None else spans.cover


def key_spans(table: TrackedTable) -> dict[int, int | TrackedSplit] | None:
    """Return the first key of each span, in order, and what decides in it; None: no integer cuts the table."""
    spans, order = table.spans, table.order
    if spans is None or order is None or len(order.columns) != 1 or not order.columns[0].is_integer:
        return None
    found: dict[int, int | TrackedSplit] = {}
    for (key, behind), span in zip(spans.starts, spans.spans, strict=True):
        first = int(key[0]) + behind if key else _LEAST
        # The extension declines keys of more than 63 bits, which unsigned columns have.
        if first <= _GREATEST:
            found[first] = span if isinstance(span, TrackedSplit) else _CODES.get(span[0], DECLINED)
    return found


_STREAMING: Final = TableMode.STREAMING


class EmitListener(Protocol):
    """Counts what is emitted, and tells where an event is."""

    def on_emitted(self, version: StreamedVersion, op: str, *, events: int, records: int, skipped: int) -> None:
        """Count rows events, their records, and the events without records."""

    def on_transactions(self, count: int, last_ts_us: int) -> None:
        """Count transactions; the last one was committed at ``last_ts_us``."""


class ChangeEmitter:
    """Emits changes in the open Kafka transaction, and passes them in the offset; used by the stream's thread."""

    def __init__(self, context: StreamContext, versions: TableVersions) -> None:
        self._transaction = context.transaction
        offset = self._offset = context.transaction.offset
        self._registry = context.registry
        self._versions = versions
        self._native: codec.ChangeEmitter = codec.ChangeEmitter(
            TransactionBegin,
            RowsEvent,
            TransactionCommit,
            ops=OPS,
            output=context.transaction,
            cover_of=partial(cover_of, read=lambda: offset.position),
            include_query=context.settings.include_query,
        )
        self._batch: list[Event] = []
        self._commits: list[int] = []
        """The indexes of the commits in ``_batch``; both are kept while splits wait for their ends."""

    def emit(self, events: list[Event], at: int, listener: EmitListener) -> int:
        """Emit the events from ``at`` on; return the index of the first that is declined.

        It stops as well when the Kafka transaction is full. Nothing is emitted while an event may have been done before
        a restart.
        """
        sender = self._transaction.sender
        if sender is None or self._offset.has_resumed:
            return at
        native, begin = self._native, self._offset.transaction
        end, room = self._end(events, at), self._transaction.room
        stop = -1
        try:
            stop = native.emit(sender, events, at, end, self._versions.in_use, begin, room, _STREAMING)
        except RecordTooLargeError as error:
            if native.failed_at >= 0 and not isinstance(error, RecordRefusedError):
                before = (
                    event for event in reversed(events[: native.failed_at]) if isinstance(event, TransactionBegin)
                )
                error.add_context(**location(events[native.failed_at], next(before, begin)))
            raise
        finally:
            self._pass(listener, complete=stop >= 0)
        return stop

    def _end(self, events: list[Event], at: int) -> int:
        """Return the index of the first commit at which a split ends or a table is finished; without one, of the end.

        Positions grow from commit to commit, so each one after the first that reaches an end reaches it too.
        """
        if not self._registry.may_end:
            self._batch, self._commits = [], []
            return len(events)
        if self._batch is not events:
            self._batch = events
            self._commits = [index for index, event in enumerate(events) if type(event) is TransactionCommit]
        commits = self._commits
        first = bisect_left(commits, at)
        if first == len(commits) or not self._reaches_end(commits[-1]):
            return len(events)
        return commits[bisect_left(commits, True, lo=first, key=self._reaches_end)]

    def _reaches_end(self, index: int) -> bool:
        event = self._batch[index]
        assert isinstance(event, TransactionCommit)
        return self._registry.reaches_end(event)

    def _pass(self, listener: EmitListener, *, complete: bool) -> None:
        """Count what was emitted, and pass it in the offset.

        The offset does not move if the call failed: records may be missing, and the session ends.
        """
        native = self._native
        for version, op, events, records, skipped in native.take_counts():
            listener.on_emitted(version, op, events=events, records=records, skipped=skipped)
        rows = [(version.definition.id, count) for version, count in native.take_rows()]
        if not complete:
            return
        ended, last = native.ended, native.last_begin
        at = None if native.number < 0 else (native.number, native.pos)
        self._offset.pass_events(native.begin, ended, entered=native.entered, last=at, rows=rows)
        if ended:
            listener.on_transactions(len(ended), source_time_us(ended[-1], last))
