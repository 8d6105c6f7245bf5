"""Startup: fences older instances, restores the state, and checks that the binlog still has what follows.

The order matters: the state topic is complete only when every producer that may have an open transaction is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import orjson
import structlog
from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError
from tailrace.producer.kafka import state_store
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.state_store import State, StoredOffset, TableState
from tailrace.producer.kafka.transactional_ids import reader_transactional_id
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset, mysql_offset
from tailrace.producer.mysql.watermark import current_offset
from tailrace.producer.signals.queue import IncrementalSnapshotQueue, SnapshotRequest
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.schemas.names import state_topic

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where the stream starts."""

    offset: StoredOffset
    binlog_lost: bool = False
    """The binlog behind the stored offset is gone: every table must be read again."""


def acquire_state(kafka: KafkaSettings, producer: TransactionalProducer, *, prefix: str, readers: int) -> State:
    """Fence older instances and read the state; ``producer`` is the stream's."""
    topic = state_topic(prefix)
    producer.fence()
    # The number of readers of an older instance was committed before any of them started.
    state = state_store.read(kafka, topic, MySqlOffset.from_json)
    for worker in range(max(state.readers, readers)):
        reader = TransactionalProducer(kafka, reader_transactional_id(prefix, worker))
        reader.fence()
        reader.close()
    return state_store.read(kafka, topic, MySqlOffset.from_json) if state.readers else state


def resume_point(session: Connection, state: State, *, resnapshot_if_lost: bool) -> ResumePoint:
    """Return the stored offset, or the end of the binlog on the first start.

    Raises BinlogError if the source no longer has the binlog behind the stored offset, or is another source. With
    ``resnapshot_if_lost`` the stream then starts at the end of the binlog.
    """
    if state.offset is None:
        return ResumePoint(_end_of_binlog(session))
    try:
        return ResumePoint(_checked(session, state, state.offset))
    except BinlogError as error:
        if not resnapshot_if_lost:
            raise
        log.warning(
            "the stored offset cannot be resumed: changes since then are lost, all tables are read again",
            reason=str(error),
            hint="rows deleted in between stay in the topics",
        )
    end = _end_of_binlog(session)
    # The epoch grows, so that everything read from here on sorts after everything read before.
    offset = replace(end, position=mysql_offset(end.position)._replace(epoch=state.offset.position.epoch + 1))
    return ResumePoint(offset, binlog_lost=True)


def write_startup_state(
    transaction: StreamTransaction, state: State, *, readers: int, captured: Iterable[TableId]
) -> None:
    """Store the number of readers, and remove the state of tables that are not captured any more."""
    transaction.store(state_store.READERS_KEY, orjson.dumps({"count": readers}))
    _forget_others(transaction, state, {str(table) for table in captured})


def request_full_resnapshot(transaction: StreamTransaction, state: State) -> None:
    """Request an incremental snapshot of every table in the state, and update ``state``."""
    for split_id in state.splits:
        transaction.store(state_store.split_key(split_id), None)
    state.splits.clear()
    for name in state.tables:
        state.tables[name] = TableState(TableMode.STREAMING)
        transaction.store(state_store.table_key(name), state.tables[name].to_json())
    offsets = IncrementalSnapshotQueue.from_state(state.signals).marks
    tables = sorted(TableId(*name.split(".", 1)) for name in state.tables)
    queue = IncrementalSnapshotQueue(tuple(SnapshotRequest(table) for table in tables), marks=offsets).to_json()
    transaction.store(state_store.SIGNALS_KEY, queue)
    state.signals = orjson.loads(queue)


_FILE_START = 4
"""Offset of the first event in a binlog file."""


def _end_of_binlog(session: Connection) -> StoredOffset:
    """Return the current end of the binlog, as a GTID set.

    The position is the start of the file, not its end: transactions that are logged but not executed yet must be read,
    and until then no split may count as passed. The first events of the stream correct the position.
    """
    end = current_offset(session)
    log.info(
        "first start: the stream starts at the end of the binlog", file=end.file, pos=end.pos, gtids=str(end.gtids)
    )
    return StoredOffset(end._replace(pos=_FILE_START))


def _checked(session: Connection, state: State, stored: StoredOffset) -> StoredOffset:
    """Return the stored offset, with the next epoch if the server changed."""
    position = mysql_offset(stored.position)
    seen = position.gtids
    executed = GtidSet.parse(database.executed_gtids(session))
    purged = GtidSet.parse(database.purged_gtids(session))
    if not seen.contains(purged):
        raise BinlogError(
            "the source has purged binlog files that were not read yet",
            hint="take a new snapshot under another topic.prefix, and keep binlog files longer "
            "(binlog_expire_logs_seconds)",
            read=str(seen),
            purged=str(purged),
        )
    if not executed.contains(seen):
        raise BinlogError(
            "the source has not executed transactions that were read before: it is another server, or lost data",
            hint="point database.hostname at a server of the same cluster that has all transactions, "
            "or take a new snapshot under another topic.prefix",
            read=str(seen),
            executed=str(executed),
        )
    server = database.server_uuid(session)
    log.info("resuming", file=position.file, pos=position.pos, gtids=str(seen))
    if server == position.server_uuid:
        return stored
    if any(table.mode is TableMode.SNAPSHOT for table in state.tables.values()):
        raise BinlogError(
            "the source server changed during a snapshot: positions of two servers cannot be compared",
            hint="point database.hostname at the former server until the snapshot is complete, "
            "or take a new snapshot under another topic.prefix",
            was=position.server_uuid,
            now=server,
        )
    log.warning("the source server changed; it has the same transactions", was=position.server_uuid, now=server)
    file, _, _ = database.log_position(session)
    moved = MySqlOffset(position.epoch + 1, file, _FILE_START, seen, server)
    return replace(stored, position=moved)


def _forget_others(transaction: StreamTransaction, state: State, captured: set[str]) -> None:
    """Remove tables that are not captured now: their changes are not read, so a later capture starts from scratch."""
    for name in set(state.tables) - captured:
        log.warning("table is no longer captured", table=name)
        transaction.store(state_store.table_key(name), None)
        del state.tables[name]
    for split_id, split in list(state.splits.items()):
        if str(split.table_id) not in state.tables:
            transaction.store(state_store.split_key(split_id), None)
            del state.splits[split_id]
