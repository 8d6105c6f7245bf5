"""Where a capture starts: takes the transactional ids over, reads the state, checks that the log has what follows.

The order matters: only when every producer that may hold an open transaction is fenced is the state topic's end
its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import orjson
import structlog
from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError
from tailrace.producer.kafka import state_store as states
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.state_store import State, StoredOffset, TableState
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset, mysql_offset
from tailrace.producer.mysql.watermark import current_offset
from tailrace.producer.signals.queue import IncrementalSnapshotQueue, SnapshotRequest
from tailrace.schemas.names import state_topic

log = structlog.get_logger(__name__)


def stream_transactional_id(prefix: str) -> str:
    """Return the transactional id of the log reader."""
    return f"{prefix}-tailrace-log"


def reader_transactional_id(prefix: str, worker: int) -> str:
    """Return the transactional id of a snapshot reader."""
    return f"{prefix}-tailrace-snapshot-{worker}"


@dataclass(frozen=True, slots=True)
class StartupState:
    """The state a capture goes on from, and the publisher of its log."""

    state: State
    log: StoredOffset
    publisher: TransactionalProducer


def acquire_and_restore(
    kafka: KafkaSettings,
    session: Connection,
    *,
    prefix: str,
    workers: int,
    captured: Iterable[TableId],
    renew: bool = False,
    beside: Callable[[TransactionalProducer, State, Offset], None] | None = None,
) -> StartupState:
    """Fence older instances and return the state to go on from; on the first start that is the log's end now.

    ``beside`` writes what else belongs into the Kafka transaction of the takeover.
    Raises LogError where the source no longer has the log that follows the stored position, or is another source. With
    ``renew`` the log is then taken up at its end, and every table is to be read again.
    """
    topic = state_topic(prefix)
    publisher = TransactionalProducer(kafka, stream_transactional_id(prefix))
    publisher.fence()
    # The number of readers of an older instance was committed before any of them started.
    known = states.read(kafka, topic, MySqlOffset.from_json)
    for worker in range(max(known.readers, workers)):
        other = TransactionalProducer(kafka, reader_transactional_id(prefix, worker))
        other.fence()
        other.close()
    state = states.read(kafka, topic, MySqlOffset.from_json) if known.readers else known
    publisher.begin()
    position = _position(session, state, publisher, topic, renew=renew)
    publisher.send(topic, states.READERS_KEY, orjson.dumps({"count": workers}))
    publisher.send(topic, states.OFFSET_KEY, position.to_json())
    _forget_others(state, publisher, topic, {str(table) for table in captured})
    if beside is not None:
        beside(publisher, state, position.position)
    publisher.commit()
    publisher.sent = 0
    return StartupState(state, position, publisher)


def _position(
    session: Connection, state: State, publisher: TransactionalProducer, topic: str, *, renew: bool
) -> StoredOffset:
    if state.log is None:
        return _first(session)
    try:
        return _checked(session, state, state.log)
    except BinlogError as error:
        if not renew:
            raise
        log.warning(
            "the log cannot be followed from where it was left: what lies between is lost, tables are read again",
            reason=str(error),
            hint="rows that were deleted meanwhile stay with readers of the topics",
        )
    begin = _first(session)
    _read_all_again(state, publisher, topic)
    # The epoch grows: whatever is read from now on is later than all that was read before.
    return replace(begin, position=mysql_offset(begin.position)._replace(epoch=state.log.position.epoch + 1))


def _read_all_again(state: State, publisher: TransactionalProducer, topic: str) -> None:
    """Have every table that was followed or read before read again, beside the log."""
    for split_id in state.splits:
        publisher.send(topic, states.split_key(split_id), None)
    state.splits.clear()
    for name in state.tables:
        state.tables[name] = TableState(phase="log")
        publisher.send(topic, states.table_key(name), state.tables[name].to_json())
    before = IncrementalSnapshotQueue.from_state(state.signals)
    tables = sorted(TableId(*name.split(".", 1)) for name in state.tables)
    control = IncrementalSnapshotQueue(tuple(SnapshotRequest(table) for table in tables), marks=before.marks)
    value = control.to_json()
    publisher.send(topic, states.SIGNALS_KEY, value)
    state.signals = orjson.loads(value)


_FILE_START = 4
"""Offset of the first event in a binlog file."""


def _first(session: Connection) -> StoredOffset:
    """Return the log's end now, as a GTID set.

    The offset is the start of the file, not its end: transactions that stand in the log but are not executed yet are to
    be read, and until they are, no split may count as passed. The stream's first events tell the true place.
    """
    end = current_offset(session)
    log.info("first start: reading the binlog from its end", file=end.file, pos=end.pos, gtids=str(end.gtids))
    return StoredOffset(end._replace(pos=_FILE_START))


def _checked(session: Connection, state: State, stored: StoredOffset) -> StoredOffset:
    """Return the stored position, its epoch grown when the server is another one."""
    position = mysql_offset(stored.position)
    seen = position.gtids
    executed = GtidSet.parse(database.executed_gtids(session))
    purged = GtidSet.parse(database.purged_gtids(session))
    if not seen.contains(purged):
        raise BinlogError(
            "the source has purged binlog that was not read yet",
            hint="take a new snapshot under another topic.prefix, and keep the binlog longer "
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
    if any(table.phase == "snapshot" for table in state.tables.values()):
        raise BinlogError(
            "the source is another server while a snapshot is under way: positions of two servers do not compare",
            hint="point database.hostname at the former server until the snapshot is done, "
            "or take a new snapshot under another topic.prefix",
            was=position.server_uuid,
            now=server,
        )
    log.warning("the source is another server of the same history", was=position.server_uuid, now=server)
    file, _, _ = database.log_position(session)
    moved = MySqlOffset(position.epoch + 1, file, _FILE_START, seen, server)
    return replace(stored, position=moved)


def _forget_others(state: State, publisher: TransactionalProducer, topic: str, captured: set[str]) -> None:
    """Drop the state of tables that are not captured now: their changes pass by, so later they begin anew."""
    for name in set(state.tables) - captured:
        log.warning("table is no longer captured", table=name)
        publisher.send(topic, f"table/{name}".encode(), None)
        del state.tables[name]
    for split_id, split in list(state.splits.items()):
        if f"{split.database}.{split.table}" not in state.tables:
            publisher.send(topic, states.split_key(split_id), None)
            del state.splits[split_id]
