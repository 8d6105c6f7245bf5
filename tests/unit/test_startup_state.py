"""What a start writes before it streams: every split that leaves the state has its END, whatever the reason."""

from __future__ import annotations

from functools import partial

import orjson

from tailrace.producer.app.startup import (
    gone_tables,
    keep_streaming,
    leave_binlog,
    request_snapshots,
    write_startup_state,
)
from tailrace.producer.kafka.state_store import (
    RangeState,
    SplitState,
    State,
    StoredOffset,
    StoredSplits,
    TableState,
    backfill_key,
    range_key,
    split_key,
    table_key,
)
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.signals.queue import IncrementalSnapshotQueue
from tailrace.producer.streaming.former_tables import former_key
from tests.support.stream import START, FakeProducer, stream_transaction

DOTTED, OTHER = TableId("my.shop", "orders"), TableId("db", "t")


def _split(table: TableId) -> SplitState:
    high = START._replace(pos=900)
    return SplitState(*table, "run", 1, [5], [9], False, START, high, rows=3, checksum=5, schema="f")


def _ended(table: TableId) -> RangeState:
    return RangeState(*table, "run", 0, 1, None, [5], closed=False, splits=1, rows=3)


def _state() -> State:
    """Both tables are under snapshot: one split of each has ended, the other has 4 backfill records."""
    state = State(StoredOffset(START), backfill={f"{table}:run:1": 4 for table in (DOTTED, OTHER)})
    for table in (DOTTED, OTHER):
        state.tables[str(table)] = TableState(TableMode.SNAPSHOT, snapshot="run", greatest=[100], key=("id",))
        state.splits[table] = StoredSplits([_split(table)], [_ended(table)])
    return state


def _ends(producer: FakeProducer) -> dict[str, int]:
    """Return the backfill counts of the END records by split."""
    records = [orjson.loads(value or b"") for topic, _, value in producer.open if topic == "p.tailrace.watermarks"]
    assert {record["kind"] for record in records} <= {"END"}
    assert all((record["rows"], record["schema"], record["topic"][:2]) == (3, "f", "p.") for record in records)
    return {record["split"]: record["backfill"] for record in records}


def _topic(table: TableId) -> str:
    return f"p.{table}"


def test_excluded_table_leaves_with_its_ends() -> None:
    """A reader that holds the keys of the split until its END would otherwise hold them for ever."""
    producer, state = FakeProducer(), _state()

    write_startup_state(stream_transaction(producer), state, readers=1, captured=[OTHER], topic_of=_topic)

    assert _ends(producer) == {f"{DOTTED}:run:1": 4}
    deleted = {key for _, key, value in producer.open if value is None}
    split = f"{DOTTED}:run:1"
    assert deleted == {range_key(f"{DOTTED}:run:0"), split_key(split), backfill_key(split), table_key(DOTTED)}
    assert list(state.tables) == [str(OTHER)]
    assert list(state.splits) == [OTHER]


def test_tables_of_a_lost_binlog_leave_with_their_ends() -> None:
    """The binlog is lost; a database whose name has a dot is read again too."""
    producer, state = FakeProducer(), _state()

    leave_binlog(stream_transaction(producer), state, captured=[OTHER, DOTTED], topic_of=_topic, reads=True)

    assert _ends(producer) == {f"{DOTTED}:run:1": 4, f"{OTHER}:run:1": 4}
    assert state.splits == {}
    assert {plan.mode for plan in state.tables.values()} == {TableMode.STREAMING}
    assert IncrementalSnapshotQueue.from_state(state).tables == (OTHER, DOTTED)


def test_only_tables_that_were_being_read_are_requested() -> None:
    """Of the others the topics keep what they have, which the operator has chosen; a pause does not hold them."""
    producer, state = FakeProducer(), _state()
    state.signals = orjson.loads(IncrementalSnapshotQueue(paused=True).to_json())
    state.tables[str(OTHER)] = TableState(TableMode.STREAMING)
    del state.splits[OTHER]

    leave_binlog(stream_transaction(producer), state, captured=[OTHER, DOTTED], topic_of=_topic, reads=False)

    assert _ends(producer) == {f"{DOTTED}:run:1": 4}
    assert {plan.mode for plan in state.tables.values()} == {TableMode.STREAMING}
    queue = IncrementalSnapshotQueue.from_state(state)
    assert (queue.tables, queue.paused) == ((DOTTED,), False)
    assert state.former == {str(DOTTED)}


def test_tables_whose_changes_are_lost_have_left() -> None:
    """A row that was deleted in the gap would stay for ever. One that is not captured any more is not read."""
    left, gone = (DOTTED, OTHER), TableId("db", "gone")
    for request in (
        partial(leave_binlog, captured=left, topic_of=_topic, reads=True),
        partial(request_snapshots, tables=left),
    ):
        producer, state = FakeProducer(), _state()
        state.tables[str(gone)] = TableState(TableMode.STREAMING)

        request(stream_transaction(producer), state)

        assert state.former == set(map(str, left))
        assert {key for _, key, _ in producer.open if (key or b"").startswith(b"former/")} == set(map(former_key, left))
        assert all(each.required for each in IncrementalSnapshotQueue.from_state(state).requests)


def test_streamed_tables_that_are_gone_stream_up_to_their_drop() -> None:
    """Not those that the filters leave out, nor those whose snapshot is not complete."""
    producer, state = FakeProducer(), _state()
    streamed, read, out = TableId("d", "streamed"), TableId("d", "read"), TableId("d", "out")
    state.tables |= {str(table): TableState(TableMode.STREAMING) for table in (streamed, out)}
    state.tables[str(read)] = TableState(TableMode.INCREMENTAL, snapshot="run", greatest=[100], key=("id",))
    state.splits[read] = StoredSplits([_split(read)], [_ended(read)])
    assert gone_tables(state, [streamed, read, out], lambda _table: True) == []

    gone = gone_tables(state, [OTHER], lambda table: table not in (out, OTHER))
    assert set(gone) == {streamed, read}
    transaction = stream_transaction(producer)
    keep_streaming(transaction, state, gone, topic_of=_topic)
    write_startup_state(transaction, state, readers=1, captured=[OTHER, *gone], topic_of=_topic)

    assert set(state.tables) == {str(OTHER), str(streamed), str(read)}
    assert {state.tables[str(table)].mode for table in gone} == {TableMode.STREAMING}
    assert set(_ends(producer)) == {f"{DOTTED}:run:1", f"{read}:run:1"}
    assert (table_key(streamed), None) not in [(key, value) for _, key, value in producer.open]
