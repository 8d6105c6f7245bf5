"""What a snapshot of very many splits costs: state records, memory, and work per transaction; no servers."""

from __future__ import annotations

import random
import threading
import tracemalloc
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tailrace.producer.kafka.state_store import RangeState, SplitState, TableState, decode
from tailrace.producer.model.binlog_events import PositionAdvanced, QueryEvent, TransactionCommit
from tailrace.producer.model.split import Range, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.ops.status import Status
from tailrace.producer.streaming.context import StreamContext, StreamSettings
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.producer.streaming.split_registry import SplitRegistry
from tests.support.stream import FILE, SERVER, START, FakeListener, FakeProducer, stream_transaction

TABLES, SPLITS_PER_TABLE, ROWS = 10_000, 30, 8192
MAX_WAITING = 256
READERS = 8
STATE_TOPIC = "p.tailrace.state"
LONG_GTIDS = GtidSet({f"{n:08x}-aaaa-aaaa-aaaa-aaaaaaaaaaaa": [(1, 10**9), (10**9 + 2, 10**10)] for n in range(100)})
"""About 6 KB as text."""


class CompactedState(FakeProducer):
    """Keeps the last value of each key of the state topic, as compaction does, and the extremes it met."""

    def __init__(self) -> None:
        super().__init__()
        self.state: dict[bytes, bytes] = {}
        self.most_splits = self.greatest_record = 0
        self._splits = 0

    def send(self, topic: str, key: bytes | None, value: bytes | None, *_: Any, partition: int = -1) -> None:
        """Keep the state, count the rest."""
        assert partition in {-1, 0}
        self.records_in_transaction += 1
        if topic != STATE_TOPIC:
            return
        assert key is not None
        of_splits = not key.startswith((b"table/", b"offset"))
        self._splits += of_splits * ((value is not None) - (key in self.state))
        self.most_splits = max(self.most_splits, self._splits)
        if value is None:
            self.state.pop(key, None)
        else:
            self.state[key] = value
            self.greatest_record = max(self.greatest_record, len(value))


class Snapshot:
    """Plans and reads tables as the enumerator and its readers do; the binlog reader lags."""

    def __init__(self, seed: int = 1) -> None:
        self.rnd = random.Random(seed)
        self.producer, self.registry, self.status = CompactedState(), SplitRegistry(), Status("p")
        settings = StreamSettings(
            "p",
            SimpleNamespace(includes=lambda _table: True),  # type: ignore[arg-type]
            [],
            skipped_operations=frozenset(),
            tombstones=True,
            include_query=False,
            max_waiting_splits=MAX_WAITING,
        )
        tables: Any = SimpleNamespace(topic=str)
        self.transaction = stream_transaction(self.producer, self.registry)
        mailbox = Mailbox(lambda: None, threading.Event())
        context = StreamContext(settings, self.transaction, self.registry, tables, mailbox, self.status)
        versions: Any = SimpleNamespace(forget=lambda _table: None)
        self.coordinator = SnapshotCoordinator(context, versions, FakeListener())
        self.binlog_end = START.pos
        self.most_waiting = 0

    def low(self) -> MySqlOffset:
        """Return a LW of now."""
        return START._replace(pos=self.binlog_end)

    def high(self) -> MySqlOffset:
        """Return a HW of now; the source writes all the time."""
        self.binlog_end += 10
        return START._replace(pos=self.binlog_end)

    def start(self, table: TableId, splits: int) -> None:
        """Plan a table."""
        order: Any = SimpleNamespace()
        self.coordinator.start_table(table, order)
        greatest = (splits * ROWS,)
        above = Split(table, "run", -1, Range(greatest, None, lower_open=True), greatest, None)
        plan = TableState(TableMode.SNAPSHOT, "run", list(greatest), ("id",))
        self.coordinator.set_range(table, plan, greatest, (above, self.split_state(above, rows=0)), low=START)

    def split_state(self, split: Split, rows: int = ROWS) -> SplitState:
        """Return the record of a split that is read now."""
        span, table = split.range, split.table
        lower = list(span.lower) if span.lower is not None else None
        upper = list(span.upper) if span.upper is not None else None
        low, high = self.low(), self.high()
        return SplitState(
            table.database,
            table.table,
            "run",
            split.number,
            lower,
            upper,
            span.closed,
            low,
            high,
            rows,
            checksum=1,
            schema="f",
            lower_open=span.lower_open,
        )

    def read(self, splits: list[Split]) -> None:
        """Read splits, several at a time in random order; pause when too many wait, until the stream moves."""
        for at in range(0, len(splits), READERS):
            batch = splits[at : at + READERS]
            for split in batch:
                self.coordinator.open_split(split)
            self.rnd.shuffle(batch)
            for split in batch:
                state = self.split_state(split)
                self.producer.begin()
                self.producer.send(STATE_TOPIC, state.key, state.to_json())
                self.status.split_read(split.table, rows=ROWS)
                full = self.coordinator.commit_split(split, state, partitions=1)
            self.most_waiting = max(self.most_waiting, self.registry.waiting_for_end)
            if full:
                self.stream(self.binlog_end - 100)

    def stream(self, pos: int) -> None:
        """Let the binlog reader get to a position."""
        self.transaction.offset.advance(PositionAdvanced(FILE, pos, 0))
        self.coordinator.end_splits()
        self.transaction.commit()


def planned(table: TableId, count: int) -> list[Split]:
    """Return the splits of a table in key order."""
    found = []
    for n in range(count):
        lower = (n * ROWS,) if n else None
        upper = ((n + 1) * ROWS,)
        found.append(Split(table, "run", n, Range(lower, upper, n == count - 1), lower, upper))
    return found


@pytest.mark.parametrize("read", [300, pytest.param(TABLES, marks=pytest.mark.long)])
def test_state_and_memory_do_not_grow_with_splits(read: int) -> None:
    """Of 10,000 tables some are read, up to 300,000 splits: few records and little memory at any moment."""
    tables = [TableId("shop", f"orders_{n:05d}") for n in range(TABLES)]
    snapshot = Snapshot()
    for table in tables:
        snapshot.registry.track(table, TableMode.WAITING)
        snapshot.status.table_mode(table, TableMode.WAITING)
    for table in tables[: read - 1]:
        snapshot.start(table, SPLITS_PER_TABLE)
        snapshot.read(planned(table, SPLITS_PER_TABLE))
        snapshot.coordinator.all_read(table)
    last = tables[read - 1]
    snapshot.start(last, SPLITS_PER_TABLE)
    snapshot.read(planned(last, SPLITS_PER_TABLE)[:-1])

    producer = snapshot.producer
    assert snapshot.most_waiting < MAX_WAITING + READERS + SPLITS_PER_TABLE
    assert producer.most_splits < 2 * MAX_WAITING
    assert producer.greatest_record < 1000
    assert len(producer.state) < read + 2 * MAX_WAITING

    tracemalloc.start()
    state = decode(producer.state, MySqlOffset.from_json)
    restored = Snapshot()
    for table in tables:
        known = state.tables.get(str(table))
        streams = known is not None and known.mode is TableMode.STREAMING
        restored.registry.track(table, TableMode.STREAMING if streams else TableMode.WAITING)
        restored.status.table_mode(table, TableMode.STREAMING if streams else TableMode.WAITING)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 30_000_000
    assert sum(len(stored.splits) + len(stored.ranges) for stored in state.splits.values()) < 2 * MAX_WAITING


def test_splits_of_one_table_become_one_range() -> None:
    """A restart in the middle finds the read part of the table as one record."""
    table = TableId("shop", "orders")
    snapshot = Snapshot()
    snapshot.registry.track(table, TableMode.WAITING)
    snapshot.start(table, 5000)
    snapshot.read(planned(table, 5000)[:4000])
    assert snapshot.producer.most_splits < 2 * MAX_WAITING
    snapshot.stream(snapshot.binlog_end)

    stored = decode(snapshot.producer.state, MySqlOffset.from_json).splits_of(table)
    assert stored.splits == []
    assert stored.ranges == [
        RangeState(
            "shop", "orders", "run", stored.ranges[0].number, 4000, None, [4000 * ROWS], closed=False,
            splits=4000, rows=4000 * ROWS,
        )
    ]  # fmt: skip


class CountingOffset(MySqlOffset):
    """Counts its comparisons."""

    comparisons = 0

    def before(self, other: Self) -> bool:
        """Count, then compare."""
        type(self).comparisons += 1
        return super().before(other)

    def reached_by(self, event: TransactionCommit | QueryEvent) -> bool:
        """Count, then compare."""
        type(self).comparisons += 1
        return super().reached_by(event)


@pytest.mark.parametrize("waiting", [10, 1000])
def test_a_transaction_costs_the_same_with_many_waiting_splits(waiting: int) -> None:
    registry, table = SplitRegistry(), TableId("shop", "orders")
    registry.track(table, TableMode.WAITING)
    registry.start_planning(table)
    registry.set_range(table, None)
    for split in planned(table, waiting):
        registry.open(split)
        registry.commit(split, START, CountingOffset(1, FILE, 1000, START.gtids, SERVER))

    CountingOffset.comparisons = 0
    for pos in range(100):
        assert registry.end_passed(CountingOffset(1, FILE, pos, START.gtids, SERVER)) == []
        assert registry.finished_tables() == []
    assert CountingOffset.comparisons == 100
    for pos in range(100):
        assert not registry.reaches_end(TransactionCommit(f"{SERVER}:{pos + 1}", FILE, pos, 0))
    assert CountingOffset.comparisons == 200


def test_the_offset_record_does_not_grow_with_waiting_splits() -> None:
    """A start may find more of them than may wait now, each with backfill events and long GTID sets."""
    table = TableId("shop", "orders")
    snapshot = Snapshot()
    tracked = snapshot.registry.track(table, TableMode.WAITING)
    snapshot.start(table, 3000)
    for split in planned(table, 3000):
        low = START._replace(gtids=LONG_GTIDS)
        state = snapshot.split_state(split)
        snapshot.coordinator.restore_split(split, state, backfill=1)
        assert len(state.to_json()) < 10_000
        tracked.opened[split.id].low = low
        snapshot.registry.count_backfill(tracked.opened[split.id])
    snapshot.transaction.offset.advance(PositionAdvanced(FILE, 5, 0))
    snapshot.transaction.commit()

    assert len(snapshot.producer.state[b"offset"]) < 1000
    assert snapshot.coordinator.too_many_splits_wait()
    stored = decode(snapshot.producer.state, MySqlOffset.from_json)
    assert stored.backfill == {split.id: 2 for split in planned(table, 3000)}
