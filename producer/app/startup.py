"""Startup: fences older instances, restores the state, and brings it in line with the configuration and the source.

The order matters: the state topic is complete only when every producer that may have an open transaction is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import orjson
import structlog

from tailrace.producer.errors import RecordTooLargeError, TableAccessError
from tailrace.producer.kafka import generation, state_store
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.generation import Generation, GenerationFence
from tailrace.producer.kafka.moved_position import REPLAY_KEY, ReplayedPart
from tailrace.producer.kafka.state_store import State, TableState
from tailrace.producer.kafka.topics import Topics
from tailrace.producer.kafka.transactional_producer import TransactionalProducer, reader_transactional_id
from tailrace.producer.model.binlog_events import TransactionPrepared
from tailrace.producer.model.protocols import Offset, ReadOffset, SnapshotSession
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault, TableMode
from tailrace.producer.signals.queue import IncrementalSnapshotQueue, SnapshotRequest
from tailrace.producer.streaming.former_tables import forget_without_topic, former_key
from tailrace.producer.streaming.new_tables import access_error
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.producer.streaming.topics import CaptureTopics
from tailrace.producer.streaming.watermark_record import ends_of_stored_splits
from tailrace.schemas.names import state_topic, watermarks_topic

log = structlog.get_logger(__name__)

_FENCED_TOGETHER: Final = 8
_STREAMED: Final = frozenset({TableMode.STREAMING, TableMode.INCREMENTAL})


@dataclass(frozen=True, slots=True)
class Acquired:
    """The state of a prefix, which no other instance can change any more."""

    state: State
    fence: GenerationFence


def acquire_state(
    kafka: KafkaSettings,
    producer: TransactionalProducer,
    read_offset: ReadOffset,
    announce: Callable[[], Generation],
    *,
    prefix: str,
    readers: int,
) -> Acquired:
    """Fence older instances and read the state; ``producer`` is the stream's, and ``announce`` tells the others."""
    topic = state_topic(prefix)
    # Before anything is fenced: a program that cannot read the state must not end one that can.
    state_store.read(kafka, topic, read_offset)
    own = announce()
    producer.init_transactions()
    # The number of readers of an older instance was committed before any of them started.
    state = state_store.read(kafka, topic, read_offset)
    # A reader of an older instance that registers after its id was fenced here finds this generation, and ends.
    fence = generation.claim(producer, topic, own, state.generation)
    with ThreadPoolExecutor(_FENCED_TOGETHER, "fence") as pool:
        ids = (reader_transactional_id(prefix, worker) for worker in range(max(state.readers, readers)))
        list(pool.map(partial(_fence, kafka), ids))
    return Acquired(state_store.read(kafka, topic, read_offset) if state.readers else state, fence)


def _fence(kafka: KafkaSettings, transactional_id: str) -> None:
    producer = TransactionalProducer(kafka, transactional_id)
    producer.init_transactions()
    producer.close()


def captured_before(kafka: KafkaSettings, read_offset: ReadOffset, *, prefix: str) -> set[str] | None:
    """Return the tables that are captured according to the state, which may be written meanwhile; None: no state."""
    topic = state_topic(prefix)
    if Topics(kafka).missing([topic]):
        return None
    state = state_store.read(kafka, topic, read_offset)
    if state.offset is None:
        return None
    return state.captured


def relocate_splits(transaction: StreamTransaction, state: State, end: Offset) -> None:
    """Continue with splits that were read in an older epoch: their high watermark is now the end of the binlog.

    Positions of two epochs do not compare. The end is after everything that the rows can contain, because the source
    has executed all of it; a later high watermark only makes more changes part of the split.
    """
    for stored in state.splits.values():
        stored.splits[:] = [replace(split, high=end) for split in stored.splits]
        for split in stored.splits:
            transaction.store(split.key, split.to_json())


def gone_tables(state: State, captured: Iterable[TableId], includes: Callable[[TableId], bool]) -> list[TableId]:
    """Return the streamed tables that the source does not have any more: their DROP is ahead in the binlog.

    Their changes up to there are still to be written, whether a table gets the name again or not.
    """
    unlisted = unlisted_tables(state, captured, includes)
    return [table for table in unlisted if state.tables[str(table)].mode in _STREAMED]


def unlisted_tables(state: State, captured: Iterable[TableId], includes: Callable[[TableId], bool]) -> list[TableId]:
    """Return the tables of the state that the source does not list: they are gone, or the account may not see them."""
    # A name with more dots has several readings; such a table is captured again with its first change.
    names = [name for name in state.tables.keys() - set(map(str, captured)) if name.count(".") == 1]
    return sorted(table for name in names if includes(table := TableId(*name.split("."))))


def hidden_tables(session: SnapshotSession, unlisted: Iterable[TableId]) -> dict[TableId, TableAccessError]:
    """Return the tables that the source does not list because the account may not read them."""
    errors = ((table, access_error(session.describe, table)) for table in unlisted)
    return {table: error for table, error in errors if error is not None}


def prepared_transactions(state: State, settings: str) -> list[TransactionPrepared]:
    """Return the prepared transactions; under other ``settings`` other tables of them may be captured, or the first."""
    return [
        each if each.settings == settings else each._replace(tables=(), captured=True)
        for each in state.prepared.values()
    ]


def keep_streaming(
    transaction: StreamTransaction, state: State, gone: Iterable[TableId], *, topic_of: Callable[[TableId], str]
) -> None:
    """Let the tables that are gone stream up to their DROP; an incremental snapshot of them ends."""
    ending = [table for table in gone if state.tables[str(table)].mode is TableMode.INCREMENTAL]
    _remove_splits(transaction, state, topic_of, lambda table: table in ending)
    for table in ending:
        _store_table(transaction, state, table, TableMode.STREAMING, state.tables[str(table)].fault)


def fail_tables(
    transaction: StreamTransaction,
    state: State,
    failed: Mapping[TableId, TableFault],
    *,
    topic_of: Callable[[TableId], str],
) -> None:
    """Put tables in error that ended the last session, and update ``state``; readers of it are fenced."""
    _remove_splits(transaction, state, topic_of, lambda table: table in failed)
    _leave(transaction, state, failed)
    for table in failed:
        _store_table(transaction, state, table, TableMode.ERROR, failed[table])
    stored = IncrementalSnapshotQueue.from_state(state)
    kept = tuple(request for request in stored.requests if request.table not in failed)
    if kept != stored.requests:
        _store_queue(transaction, state, stored, replace(stored, requests=kept) if kept else stored.emptied())


def write_startup_state(
    transaction: StreamTransaction,
    state: State,
    *,
    readers: int,
    captured: Iterable[TableId],
    topic_of: Callable[[TableId], str],
) -> None:
    """Store the format and the number of readers, and remove the state of tables that are not captured any more."""
    transaction.store(state_store.FORMAT_KEY, state_store.format_value())
    transaction.store(state_store.READERS_KEY, orjson.dumps({"count": readers}))
    names = {str(table) for table in captured}
    # The changes of the others are not read any more, so a later capture of them starts from scratch.
    _remove_splits(transaction, state, topic_of, lambda table: str(table) not in names)
    for name in set(state.tables) - names:
        log.warning("table is no longer captured", table=name)
        if state.tables[name].mode is not TableMode.ERROR:
            state.former.add(name)
            transaction.store(former_key(name), b"{}")
        transaction.store(state_store.table_key(name), None)
        del state.tables[name]
    _remove_keys(transaction, state, set(state.keys) - names)


def find_former_tables(
    transaction: StreamTransaction,
    state: State,
    topics: CaptureTopics,
    captured: Iterable[TableId],
    *,
    reads: Callable[[str], bool],
) -> None:
    """Complete ``state.former``: the topic of a table that an initial snapshot will read may have records all the same.

    It has if the state was lost, or is that of a version that did not keep former tables. A former table whose topic
    does not exist any more is forgotten.
    """
    forget_without_topic(transaction, state.former, topics)
    known = state.captured | {name for name, stored in state.tables.items() if stored.fault is not None}  # in error
    new = [table for table in captured if str(table) not in known and reads(str(table))]
    state.former.update(map(str, topics.with_records(new)))


def leave_binlog(
    transaction: StreamTransaction,
    state: State,
    *,
    captured: Iterable[TableId],
    topic_of: Callable[[TableId], str],
    reads: bool,
) -> None:
    """Remove what waits for a part of the binlog that is not read, request snapshots, and update ``state``.

    ``reads``: of all tables; else only of those that were being read. What the topics have of these tables from before
    the gap may be gone: they leave (``former_tables.py``).
    """
    for xid in state.prepared:
        # Its end may be in the binlog that is lost; if not, its XA PREPARE is searched for at its XA COMMIT.
        transaction.store(state_store.prepared_key(xid), None)
    state.prepared.clear()
    _remove_splits(transaction, state, topic_of, lambda _table: True)
    _remove_keys(transaction, state, set(state.keys))
    known = state.captured
    tables = sorted(
        table
        for table in captured
        if str(table) in known and (reads or state.tables[str(table)].mode is not TableMode.STREAMING)
    )
    for table in tables:
        _store_table(transaction, state, table, TableMode.STREAMING, state.tables[str(table)].fault)
    if tables and not reads:
        log.warning("tables that were being read are read as a whole", tables=", ".join(map(str, tables)))
    _leave(transaction, state, tables)
    stored = IncrementalSnapshotQueue.from_state(state)
    if reads:
        queue = stored.emptied().adding(SnapshotRequest(table, required=True) for table in tables)
    else:
        # For readers their rows are gone, so no pause may hold them.
        queue = replace(stored, paused=stored.paused and not tables).requiring(tables, lambda _table: False)
    _store_queue(transaction, state, stored, queue)


def begin_replay(transaction: StreamTransaction, state: State, position: Offset | None) -> None:
    """Keep up to where the binlog was read that follows where a signal has set it, and update ``state``.

    See ``replay.py``. None: what follows the offset is lost, and all tables are read if a part was being read again.
    """
    assert state.offset is not None, "a first start reads nothing again"
    until = state.offset.position
    replay = None if position is None or position.reaches(until) else ReplayedPart(until)
    if replay != state.replay:
        transaction.store(REPLAY_KEY, None if replay is None else replay.to_json())
        state.replay = replay


def request_snapshots(transaction: StreamTransaction, state: State, tables: Iterable[TableId]) -> None:
    """Request an incremental snapshot of tables whose topics were deleted, and update ``state``.

    Readers may have rows of such a topic which are deleted by now, so these tables leave too.
    """
    tables = list(tables)
    _leave(transaction, state, tables)
    stored = IncrementalSnapshotQueue.from_state(state)

    def is_running(table: TableId) -> bool:
        known = state.tables.get(str(table))
        return known is not None and known.mode is TableMode.INCREMENTAL

    _store_queue(transaction, state, stored, stored.requiring(tables, is_running))


def _leave(transaction: StreamTransaction, state: State, tables: Iterable[TableId]) -> None:
    for table in tables:
        state.former.add(str(table))
        transaction.store(former_key(table), b"{}")


def _store_table(
    transaction: StreamTransaction, state: State, table: TableId, mode: TableMode, fault: TableFault | None
) -> None:
    stored = state.tables[str(table)] = TableState(mode, fault=fault)
    transaction.store(state_store.table_key(table), stored.to_json())


def _store_queue(
    transaction: StreamTransaction, state: State, stored: IncrementalSnapshotQueue, queue: IncrementalSnapshotQueue
) -> None:
    if queue is stored:
        return
    for key, value in queue.records(stored):
        transaction.store(key, value)
    state.signals = orjson.loads(queue.to_json())
    state.requests = queue.stored_requests


def _remove_keys(transaction: StreamTransaction, state: State, tables: Iterable[str]) -> None:
    """Remove what is known of the keys of tables whose statements were not read."""
    for name in tables:
        transaction.store(state_store.known_key_key(name), None)
        del state.keys[name]


def _remove_splits(
    transaction: StreamTransaction,
    state: State,
    topic_of: Callable[[TableId], str],
    leaves: Callable[[TableId], bool],
) -> None:
    for end in ends_of_stored_splits(state, topic_of, leaves):
        try:
            transaction.send(watermarks_topic(transaction.prefix), end.record_key(), end.to_json())
        except RecordTooLargeError as error:  # readers hold the changes of the split until they have it
            error.add_context(table=TableId(end.database, end.table))
            raise
    for table in [table for table in state.splits if leaves(table)]:
        for key in state.splits.pop(table).record_keys():
            transaction.store(key, None)
