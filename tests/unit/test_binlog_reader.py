"""What the binlog reader counts, and when it finishes tables; no servers."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tailrace.producer.model.binlog_events import (
    Event,
    QueryEvent,
    RowsEvent,
    TableVersion,
    TransactionBegin,
    TransactionCommit,
)
from tailrace.producer.model.codec import EventEnvelope
from tailrace.producer.model.split import KeyColumn, Range, Split
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql.key_order import KeyOrder
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.table_codec import TableCodec
from tailrace.producer.streaming.binlog_reader import BinlogReader, Handlers
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.table_versions import StreamedVersion
from tailrace.producer.streaming.tracked_table import TrackedSplit
from tests.support.stream import FILE, SERVER, START, FakeProducer, stream_transaction
from tests.support.values import DEFAULT_CODEC

ID: Final = Column("id", "int", nullable=False)
TABLE: Final = Table(TableId("d", "t"), (ID,), ("id",))
DEFINITION: Final = TableVersion(TABLE.id, TABLE.columns, TABLE.key, b"1")
BEGIN: Final = TransactionBegin(f"{SERVER}:1", FILE, 1000, 1050, 7, 0, 1, 1)
COMMIT: Final = TransactionCommit(f"{SERVER}:1", FILE, 1900, 7)
DROP: Final = QueryEvent(f"{SERVER}:2", "d", "DROP TABLE t", FILE, 2000, 2900, 0, 1, None)


def _insert(key: int) -> RowsEvent:
    image = b"\0" + struct.pack("<i", key)
    return RowsEvent("c", DEFINITION, image, 0, len(image), FILE, 1100, 1110, 7, 1, None, 1)


class Reader:
    """A binlog reader of one table under snapshot with the keys up to 9, whose only split is committed."""

    def __init__(self, *, high: int, on_query: Callable[[Reader], None]) -> None:
        self.registry, self.status = SplitRegistry(), Status()
        self.transaction = stream_transaction(FakeProducer(), self.registry)
        tracked = self.registry.track(TABLE.id, TableMode.WAITING)
        self.registry.start_planning(TABLE.id)
        self.registry.set_range(TABLE.id, (9,))
        self.status.table_mode(TABLE.id, TableMode.SNAPSHOT)
        tracked.order = KeyOrder([KeyColumn(ID, is_integer=True)], lambda sql: (sql,))
        self.split = Split(TABLE.id, "s", 0, Range(None, (9,), closed=True), None, (9,))
        self.registry.open(self.split)
        self.registry.commit(self.split, START, START._replace(pos=high))
        context: Any = SimpleNamespace(
            transaction=self.transaction,
            registry=self.registry,
            settings=SimpleNamespace(tombstones=True, include_query=False, skipped_operations=frozenset()),
            tables=SimpleNamespace(failures=SimpleNamespace(take=dict)),
            mailbox=self,
            status=self.status,
        )
        captured: Any = SimpleNamespace(
            codec=TableCodec(TABLE, "topic", DEFAULT_CODEC),
            topic="topic",
            schema_header=("s", b"1"),
            source=SimpleNamespace(rows_event_envelope=lambda *_, **__: EventEnvelope(b"", b"", b"")),
        )
        version = StreamedVersion(DEFINITION, captured, tracked, [], epoch=1)
        self._batches: list[Sequence[Event]] = []
        self._on_query = on_query
        stub: Any = self
        self.reader = BinlogReader(
            context,
            stub,
            stub,
            SimpleNamespace(in_use={DEFINITION.fingerprint: version}),  # type: ignore[arg-type]
            lifecycle=stub,
            handlers=Handlers(),
        )

    # -- the stream, the mailbox, the coordinator and the lifecycle, as far as they are needed ------------------------

    caught_up = True
    received_at = 1.0

    @property
    def stopped(self) -> bool:
        return not self._batches

    def run_pending(self) -> None:
        """There are no requests."""

    def poll(self, _timeout_s: float) -> Sequence[Event]:
        return self._batches.pop(0)

    def ddl_effects(self, _event: QueryEvent) -> list[object]:
        return []

    def end_replay(self) -> None:
        """Nothing is read again."""

    def end_splits(self) -> None:
        self.registry.end_passed(self.transaction.offset.position)
        for table in self.registry.finished_tables():
            self.registry.finish_table(table)

    def apply(self, _event: QueryEvent, _effects: object) -> list[object]:
        self._on_query(self)
        return []

    # -----------------------------------------------------------------------------------------------------------------

    def read(self, *batches: Sequence[Event]) -> None:
        """Read some batches of events."""
        self._batches += batches
        self.reader.run()

    @property
    def counts(self) -> dict[str, int]:
        """The records by table."""
        return {str(table): found["records"] for table, found in self.status.snapshot()["tables"].items()}


def test_a_table_that_is_dropped_after_its_changes_is_not_counted_any_more() -> None:
    """The count of a batch must not bring the table back."""

    def drop(reader: Reader) -> None:
        assert reader.counts == {"d.t": 1}
        reader.registry.forget(TABLE.id)
        reader.status.table_removed(TABLE.id)

    reader = Reader(high=5000, on_query=drop)
    reader.read([BEGIN, _insert(3), COMMIT, DROP])

    assert reader.counts == {}


def test_what_is_written_is_counted_although_the_batch_fails() -> None:
    def fail(_reader: Reader) -> None:
        raise RuntimeError("the statement cannot be applied")

    reader = Reader(high=5000, on_query=fail)
    with pytest.raises(RuntimeError):
        reader.read([BEGIN, _insert(3), COMMIT, BEGIN._replace(gtid=f"{SERVER}:3"), _insert(4), COMMIT, DROP])

    assert reader.counts == {"d.t": 2}
    assert reader.status.snapshot()["stream"]["events_skipped"] == 0


def test_a_skipped_event_is_counted_as_one() -> None:
    """Also if another event of the batch has records."""
    contained = BEGIN._replace(gtid=f"{SERVER}:9")
    reader = Reader(high=5000, on_query=lambda _: None)
    reader.registry.tables[TABLE.id].opened[reader.split.id].low = START.including(contained.gtid)
    reader.read([contained, _insert(3), COMMIT, BEGIN, _insert(4), COMMIT])

    stream = reader.status.snapshot()["stream"]
    assert (stream["events"], stream["events_skipped"], stream["creates"]) == (2, 1, 1)


def test_a_complete_table_is_finished_before_the_statement_behind_the_next_commit() -> None:
    """The statement would find its snapshot running; the split of another table still waits for its end."""
    modes = []

    def keep_mode(reader: Reader) -> None:
        modes.append(reader.registry.tables[TABLE.id].mode)

    reader = Reader(high=900, on_query=keep_mode)
    other = TableId("d", "other")
    reader.registry.track(other, TableMode.WAITING)
    reader.registry.start_planning(other)
    reader.registry.set_range(other, (9,))
    waiting = Split(other, "s", 0, Range(None, (9,), closed=True), None, (9,))
    reader.registry.open(waiting)
    reader.registry.commit(waiting, START, START._replace(pos=999_999))
    reader.registry.end_passed(START._replace(pos=950))
    reader.registry.mark_all_read(TABLE.id)

    reader.read([BEGIN, COMMIT, DROP])

    assert modes == [TableMode.STREAMING]


def test_a_split_is_freed_when_it_has_ended() -> None:
    """Without the garbage collector, which runs rarely: the splits of a large table are many."""
    reader = Reader(high=1500, on_query=lambda _: None)
    gc.collect()
    gc.disable()
    try:
        reader.read([BEGIN, _insert(3), COMMIT])
        assert reader.counts == {"d.t": 1}
        assert reader.registry.waiting_for_end == 0
        splits = [each for each in gc.get_objects() if isinstance(each, TrackedSplit)]
        assert not [each for each in splits if each.split is reader.split]
    finally:
        gc.enable()
