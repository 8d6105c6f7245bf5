"""What DDL statements in the binlog do to the snapshot of a table; no servers."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from tailrace.producer.config import load
from tailrace.producer.errors import SourceUnavailableError, TableFailedError
from tailrace.producer.kafka.state_store import (
    SplitState,
    State,
    StoredOffset,
    StoredSplits,
    TableState,
    backfill_key,
    decode,
    table_key,
)
from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.protocols import TableSize
from tailrace.producer.model.split import WHOLE, Range, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql.text.ddl import ddl_effects
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.envelope.topic_names import TopicOwners
from tailrace.producer.snapshot.enumerator import Enumerator
from tailrace.producer.snapshot.policy import InitialSnapshot
from tailrace.producer.snapshot.table_planner import PlanInput
from tailrace.producer.streaming.context import StreamContext, StreamSettings
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.new_tables import NewTables
from tailrace.producer.streaming.refused_changes import RefusedChanges
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.table_lifecycle import TableLifecycle
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.watermark import Watermark, WatermarkKind, read_position
from tests.support.stream import FILE, NO_SOURCE, SERVER, START, FakeListener, FakeProducer, stream_transaction
from tests.unit.test_config_load import BASE

TABLE = TableId("db", "t")
PLAN = TableState(TableMode.SNAPSHOT, snapshot="s", greatest=[100], key=("id",))
SPLIT = Split(TABLE, "s", 0, Range((0,), (10,), False), (0,), (10,))


class Stream:
    """A coordinator and a lifecycle on one registry."""

    def __init__(self) -> None:
        self.producer, self.registry, self.listener = FakeProducer(), SplitRegistry(), FakeListener()
        filters: Any = SimpleNamespace(includes=lambda table: table == TABLE)
        settings = StreamSettings(
            "p",
            filters,
            [],
            skipped_operations=frozenset(),
            tombstones=True,
            include_query=False,
            max_waiting_splits=256,
        )
        tables: Any = SimpleNamespace(
            topics=TopicOwners(load(None, {}, {**BASE, "topic.prefix": "p"})),
            topic=str,
            forget=lambda _table: None,
            read_catalog=lambda _table: None,
            truncate_envelope=lambda _table, _envelope: b"truncate",
        )
        topics: Any = SimpleNamespace(ensure_tables=lambda _tables: None)
        self.mailbox = Mailbox(lambda: None, threading.Event())
        context = StreamContext(
            settings,
            stream_transaction(self.producer, self.registry),
            self.registry,
            tables,
            self.mailbox,
            Status(),
        )
        versions: Any = SimpleNamespace(
            forget_definitions=lambda _tables: None,
            forget=lambda _table: None,
            on_statement=lambda *_: None,
            statement_headers=lambda _table, _event: [],
        )
        self.coordinator = SnapshotCoordinator(context, versions, self.listener)
        self.new_tables = NewTables(context, topics, self.listener, NO_SOURCE, reads=lambda _table: True)
        refused = RefusedChanges(context, versions, self.listener)
        self.lifecycle = TableLifecycle(
            context, self.coordinator, None, versions=versions, new_tables=self.new_tables, refused=refused
        )

    def ddl(self, change: Change) -> list[TableId]:
        """Apply a statement; return the tables whose snapshots restart."""
        event = QueryEvent(f"{SERVER}:9", "db", change.value, FILE, 1, 2, 3, 1, None)
        return self.lifecycle.apply(
            event, [DdlEffect(change, TABLE, None, change.value, removes_rows_silently=change is Change.TRUNCATE)]
        )

    def start_snapshot(self) -> None:
        """Bring the table into its initial snapshot with one open split."""
        self.registry.track(TABLE, TableMode.WAITING)
        self.coordinator.start_table(TABLE, SimpleNamespace())
        self.coordinator.set_range(TABLE, PLAN, (100,), None, low=START)
        assert self.coordinator.open_split(SPLIT) is not None

    def commit_split(self) -> None:
        """Commit the open split."""
        high = START._replace(pos=500)
        state = SplitState("db", "t", "s", 0, [0], [10], False, START, high, rows=3, checksum=0, schema="f")
        self.coordinator.commit_split(SPLIT, state, partitions=1)

    @property
    def mode(self) -> TableMode | None:
        """The mode of the table; None: it is not tracked."""
        tracked = self.registry.tables.get(TABLE)
        return None if tracked is None else tracked.mode

    @property
    def removed(self) -> bool:
        """Whether the table left the state, and the listener knows it."""
        return (
            self.mode is None
            and ("p.tailrace.state", table_key(TABLE), None) in self.producer.open
            and self.listener.reports[-1] == ("removed", TABLE, False)
        )


def test_a_missing_table_is_removed_when_the_binlog_brings_its_drop() -> None:
    stream = Stream()
    stream.start_snapshot()

    assert stream.coordinator.abandon_split(SPLIT)
    assert stream.coordinator.abandon_table(TABLE)
    assert stream.mode is TableMode.SNAPSHOT
    assert not stream.coordinator.initial_snapshot_running
    assert stream.ddl(Change.DROP) == []

    assert stream.removed


def test_a_dropped_table_is_removed_when_the_readers_do_not_find_it() -> None:
    stream = Stream()
    stream.start_snapshot()

    stream.ddl(Change.DROP)
    assert stream.mode is TableMode.SNAPSHOT
    assert stream.coordinator.abandon_split(SPLIT)
    assert stream.coordinator.abandon_table(TABLE)

    assert stream.removed


def test_a_recreated_table_must_be_read() -> None:
    """Changes of the new table were skipped because the plan covers them, so its splits may not be abandoned."""
    stream = Stream()
    stream.start_snapshot()

    stream.ddl(Change.DROP)
    stream.ddl(Change.CREATE)

    assert not stream.coordinator.abandon_split(SPLIT)
    assert not stream.coordinator.abandon_table(TABLE)
    assert stream.mode is TableMode.SNAPSHOT


def test_a_start_between_drop_and_create_knows_that_the_table_is_another_one() -> None:
    """The presence of a table is not stored, and CREATE TABLE IF NOT EXISTS is logged also for one that is there."""
    stream = Stream()
    stream.start_snapshot()
    stream.ddl(Change.DROP)
    state = decode({key: value for _, key, value in stream.producer.open if key and value}, lambda _: START)

    restarted = Stream()
    restarted.registry.former = state.former
    restarted.registry.track(TABLE, TableMode.WAITING)
    restarted.coordinator.resume_table(TABLE, SimpleNamespace(), PLAN, (100,))
    restarted.ddl(Change.CREATE)
    [records] = [*restarted.producer.committed, *([restarted.producer.open] * restarted.producer.in_transaction)]
    assert [key for topic, key, _ in records if topic == "p.tailrace.watermarks"] == [b"db.t"]
    assert ("requested", TABLE, True) in restarted.listener.reports, "splits that ended have rows of the former one"


def test_first_change_of_a_created_table_is_preceded_by_a_record_for_readers() -> None:
    """Readers remove what an earlier table of that name left, also if the new one arrives with rows and is read."""
    stream = Stream()
    stream.ddl(Change.CREATE)
    assert not stream.producer.open, "the table may turn out not to be captured"
    stream.new_tables.capture(TABLE)

    [value] = [
        value for topic, key, value in stream.producer.open if (topic, key) == ("p.tailrace.watermarks", b"db.t")
    ]
    created = Watermark.from_json(value or b"")
    assert (created.kind, created.topic, created.position) == (
        WatermarkKind.CREATED,
        "db.t",
        read_position(START.to_json()),
    )

    stream = Stream()
    stream.new_tables.capture(TABLE)
    assert [topic for topic, _, _ in stream.producer.open if topic == "p.tailrace.watermarks"]


def test_truncate_during_the_snapshot_waits_for_open_splits_and_restarts_it() -> None:
    stream = Stream()
    stream.start_snapshot()
    modes = []

    def commit() -> None:
        modes.append(stream.mode)
        assert stream.coordinator.open_split(SPLIT) is None
        stream.commit_split()

    stream.mailbox.submit(commit)
    restarting = stream.ddl(Change.TRUNCATE)

    assert modes == [TableMode.RESTARTING]
    assert restarting == [TABLE]
    assert (str(TABLE), None, b"truncate") in stream.producer.open
    assert stream.removed


@pytest.mark.parametrize("mode", [TableMode.WAITING, TableMode.STREAMING])
def test_truncate_outside_the_snapshot_does_not_restart_it(mode: TableMode) -> None:
    """No row of a waiting table is in the topic yet, so the record is not needed."""
    stream = Stream()
    stream.registry.track(TABLE, mode)

    assert stream.ddl(Change.TRUNCATE) == []

    written = [record for record in stream.producer.open if record[2] == b"truncate"]
    assert len(written) == (mode is TableMode.STREAMING)
    assert stream.mode is mode


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("what", ["DROP PARTITION p", "TRUNCATE PARTITION p", "EXCHANGE PARTITION p WITH TABLE x"])
def test_rows_that_leave_with_their_partition_are_warned_of_or_read(what: str, reads: bool) -> None:
    stream, sql = Stream(), f"ALTER TABLE t {what}"
    stream.registry.track(TABLE, TableMode.STREAMING)
    context = stream.lifecycle._context
    stream.lifecycle._context = replace(context, settings=replace(context.settings, reads_after_alter=reads))
    event = QueryEvent(f"{SERVER}:9", "db", sql, FILE, 1, 2, 3, 1, None)

    with capture_logs() as logs:
        stream.lifecycle.apply(event, [each for each in ddl_effects(sql, "db") if each.table == TABLE])

    warned = [each for each in logs if each["event"].startswith("a statement removed rows without row events")]
    assert len(warned) == (not reads)
    assert all("tailrace.snapshot.altered.tables=true" in each["hint"] for each in warned)
    left = b"former/db.t" in {key for _, key, _ in stream.producer.open}
    assert left == reads


def test_a_dropped_table_is_not_read_by_an_incremental_snapshot() -> None:
    """The enumerator found the table, and the stream then read its DROP: the readers would not find it."""
    stream = Stream()
    stream.registry.track(TABLE, TableMode.STREAMING)
    stream.ddl(Change.DROP)

    plan = TableState(TableMode.INCREMENTAL, snapshot="s")
    assert not stream.coordinator.start_incremental(TABLE, SimpleNamespace(), plan)

    assert stream.removed


def test_splits_of_a_cancelled_incremental_snapshot_have_their_end() -> None:
    """The rows of a committed split are in the topic; its certificate says how many."""
    stream = Stream()
    stream.registry.track(TABLE, TableMode.STREAMING)
    stream.coordinator.start_incremental(TABLE, SimpleNamespace(), TableState(TableMode.INCREMENTAL, snapshot="s"))
    stream.coordinator.open_split(SPLIT)
    stream.commit_split()

    stream.coordinator.cancel_incremental(TABLE)

    written = [record for commit in stream.producer.committed for record in commit]
    marks = [orjson.loads(value or b"") for topic, _, value in written if topic == "p.tailrace.watermarks"]
    assert [(mark["kind"], mark["split"], mark["rows"]) for mark in marks] == [("END", SPLIT.id, 3)]
    assert not stream.registry.waiting_for_end


def test_a_cancelled_incremental_snapshot_streams() -> None:
    stream = Stream()
    stream.registry.track(TABLE, TableMode.STREAMING)
    plan = TableState(TableMode.INCREMENTAL, snapshot="s")
    stream.coordinator.start_incremental(TABLE, SimpleNamespace(), plan)
    stream.coordinator.open_split(SPLIT)

    stream.coordinator.cancel_incremental(TABLE)

    assert stream.mode is TableMode.STREAMING
    assert stream.registry.tables[TABLE].order is None
    assert not stream.registry.waiting_for_end
    assert stream.listener.reports == [("started", TABLE, True), ("removed", TABLE, True)]


def test_an_incremental_snapshot_that_is_not_resumed_leaves_with_its_ends() -> None:
    """The source is another server, or the key was altered: a reader may wait for the certificates of what is read."""
    stream = Stream()
    stream.registry.track(TABLE, TableMode.STREAMING)
    high = START._replace(pos=500)
    split = SplitState("db", "t", "s", 0, [0], [10], False, START, high, rows=3, checksum=7, schema="f")
    state = State(StoredOffset(START), backfill={split.id: 2})
    state.tables[str(TABLE)] = TableState(TableMode.INCREMENTAL, snapshot="s", greatest=[100], key=("id",))
    state.splits[TABLE] = StoredSplits([split])
    policy: Any = SimpleNamespace(can_resume=lambda *_: False)
    enumerator = Enumerator(SimpleNamespace(), stream.coordinator, policy, [TABLE], state=state, status=Status())  # type: ignore[arg-type]

    enumerator.restore()

    records = {(topic, key): value for topic, key, value in stream.producer.open}
    end = orjson.loads(records["p.tailrace.watermarks", split.id.encode()] or b"")
    assert (end["kind"], end["rows"], end["backfill"], end["incremental"]) == ("END", 3, 2, True)
    deleted = {key for (topic, key), value in records.items() if topic == "p.tailrace.state" and value is None}
    assert deleted == {split.key, backfill_key(split.id)}
    stored = records["p.tailrace.state", table_key(TABLE)]
    assert orjson.loads(stored or b"")["mode"] == TableMode.STREAMING
    assert stream.mode is TableMode.STREAMING


@pytest.mark.parametrize("exists", [False, True])
def test_a_table_that_is_dropped_while_its_snapshot_resumes(exists: bool) -> None:
    """The next session does not have it, so that the capture goes on; a table that cannot be read is in error."""
    stream = Stream()
    state = State(StoredOffset(START))
    state.tables[str(TABLE)] = TableState(TableMode.SNAPSHOT, snapshot="s", greatest=[100], key=("id",))

    def plan_input(_table: TableId) -> None:
        raise SchemaError("the table cannot be described")

    planner = SimpleNamespace(plan_input=plan_input, session=SimpleNamespace(exists=lambda _table: exists))
    policy = InitialSnapshot(planner, stream.coordinator)  # type: ignore[arg-type]
    enumerator = Enumerator(planner, stream.coordinator, policy, [TABLE], state=state, status=Status())  # type: ignore[arg-type]

    with pytest.raises(TableFailedError if exists else SourceUnavailableError):
        enumerator.restore()


def test_a_table_that_was_in_error_is_planned_when_it_can_be_captured() -> None:
    """It got a key while the producer was down: its state has no plan, which would be a single split."""
    stream = Stream()
    stream.registry.track(TABLE, TableMode.WAITING)
    state = State(StoredOffset(START))
    state.tables[str(TABLE)] = TableState(TableMode.ERROR)
    planner: Any = SimpleNamespace(plan_input=lambda _table: PlanInput((), TableSize(0, 0)))
    planner.splitter = lambda *_: SimpleNamespace(
        sort_key=lambda _: None, unread_ranges=lambda *_: [WHOLE], sort_keys=list
    )
    planner.stream_order = lambda _columns: SimpleNamespace()
    policy = InitialSnapshot(planner, stream.coordinator)
    enumerator = Enumerator(planner, stream.coordinator, policy, [TABLE], state=state, status=Status())

    enumerator.restore()

    assert stream.mode is TableMode.WAITING
