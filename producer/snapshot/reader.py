"""Snapshot reader: one split, inside one Kafka transaction.

Written in this order: LOW, the rows as ``op: r``, HIGH, the split's state. A split is in Kafka wholly or not at all.
The reader keeps no rows and waits for nobody; what changes meanwhile is the log reader's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pymysql import MySQLError
from pymysql.connections import Connection

from tailrace.producer.kafka.state_store import SplitState, split_key
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.split import Split
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql import split_sql
from tailrace.producer.mysql.catalog import read_table
from tailrace.producer.mysql.key_order import KeyColumn, key_changed, to_json
from tailrace.producer.mysql.offset import mysql_offset
from tailrace.producer.mysql.watermark import take_high, take_low
from tailrace.producer.serialization.captured_tables import CapturedTable, CapturedTables
from tailrace.producer.serialization.envelope.headers import event_header
from tailrace.producer.serialization.result_stream import read_rows
from tailrace.producer.snapshot.hooks import NO_HOOKS, SnapshotHooks
from tailrace.schemas.names import INCREMENTAL_HEADER, SPLIT_HEADER, schemas_topic, state_topic, watermarks_topic
from tailrace.schemas.watermark import BinlogPosition, Watermark, WatermarkKind


@dataclass(frozen=True, slots=True)
class SplitTask:
    """A split to read, with the barrier the log reader gave when it opened it."""

    split: Split
    columns: tuple[KeyColumn, ...]
    barrier: Offset
    condition: str = ""
    """SQL that the rows must meet besides; empty: all rows."""


@dataclass(frozen=True, slots=True)
class SplitDone:
    """A split that is in Kafka."""

    split: Split
    low: Offset
    high: Offset
    rows: int
    checksum: int
    schema: str
    seconds: float


class SnapshotReader:
    """Reads splits one after another over one session and one transactional producer."""

    def __init__(
        self,
        session: Connection,
        publisher: TransactionalProducer,
        tables: CapturedTables,
        *,
        prefix: str,
        context_headers: Headers,
        barrier_timeout_s: float = 60.0,
        hooks: SnapshotHooks = NO_HOOKS,
        on_rows: Callable[[Split, int], None] | None = None,
    ) -> None:
        self._session = session
        self._publisher = publisher
        self._tables = tables
        self._prefix = prefix
        self._context_headers = context_headers
        self._barrier_timeout_s = barrier_timeout_s
        self._hooks = hooks
        self._on_rows = on_rows
        self._definitions: dict[TableId, tuple[str, CapturedTable]] = {}
        self._published: set[str] = set()

    def read(self, task: SplitTask) -> SplitDone:
        """Read one split into Kafka; on return it is committed. On any error its transaction is aborted."""
        try:
            return self._read(task)
        except BaseException:
            self._publisher.abort()
            raise

    def _read(self, task: SplitTask) -> SplitDone:
        started = time.monotonic()
        split, session, publisher = task.split, self._session, self._publisher
        self._hooks.before_low(split)
        low = take_low(session, mysql_offset(task.barrier), self._barrier_timeout_s)
        self._hooks.after_low(split)
        with _definition_held(session):
            captured = self._definition(split.table, task.columns)
            publisher.begin()
            self._publish_schema(captured)
            schema = captured.codec.schema.fingerprint
            self._watermark(WatermarkKind.LOW, split, captured, low)
            rows, checksum = self._copy(task, captured, low)
            self._hooks.before_high(split)
            high = take_high(session, low)
            self._hooks.after_high(split)
        self._watermark(WatermarkKind.HIGH, split, captured, high, rows=rows, checksum=checksum)
        span = split.range
        state = SplitState(
            database=split.table.database,
            table=split.table.table,
            snapshot=split.snapshot,
            number=split.number,
            lower=to_json(span.lower),
            upper=to_json(span.upper),
            closed=span.closed,
            low=low,
            high=high,
            rows=rows,
            checksum=checksum,
            schema=schema,
        )
        publisher.send(state_topic(self._prefix), split_key(split.id), state.to_json())
        publisher.commit()
        self._published.add(schema)
        return SplitDone(split, low, high, rows, checksum, schema, time.monotonic() - started)

    def _copy(self, task: SplitTask, captured: CapturedTable, low: Offset) -> tuple[int, int]:
        split = task.split
        headers: Headers = [
            (INCREMENTAL_HEADER if split.incremental else SPLIT_HEADER, split.id.encode()),
            event_header(low.epoch, 0),
            *self._context_headers,
        ]
        now = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"
        read_at_us = int(database.query(self._session, now)[0][0])
        stamp = captured.source.snapshot_envelope(low.to_json(), read_at_us=read_at_us, incremental=split.incremental)
        sql = (
            f"SELECT {captured.codec.select_list} FROM {split.table.quoted} "
            f"WHERE {split_sql.predicate(task.columns, split.range)}"
            f"{f' AND ({task.condition})' if task.condition else ''}"
        )
        rows = checksum = 0
        for block in read_rows(self._session, sql, captured.codec, stamp):
            self._publisher.send_all(captured.topic, block.records, headers)
            rows += len(block.records)
            checksum = (checksum + block.checksum) & 0xFFFF_FFFF_FFFF_FFFF
            if self._on_rows is not None:
                self._on_rows(split, len(block.records))
        return rows, checksum

    def _definition(self, table: TableId, columns: tuple[KeyColumn, ...]) -> CapturedTable:
        """Return the table as it is now; compiled anew only when its definition text has changed.

        Raises SchemaError where it can no longer be split on the columns that its bounds belong to.
        """
        database.query(self._session, f"SELECT 1 FROM {table.quoted} LIMIT 0")
        text = str(database.query(self._session, f"SHOW CREATE TABLE {table.quoted}")[0][1])
        known = self._definitions.get(table)
        if known is not None and known[0] == text:
            return known[1]
        found = read_table(self._session, table)
        captured = self._tables.version_of(found)
        if self._tables.split_columns(found)[: len(columns)] != columns:
            raise key_changed(table, [c.column.name for c in columns], captured.table.key)
        self._definitions[table] = (text, captured)
        return captured

    def _publish_schema(self, captured: CapturedTable) -> None:
        schema = captured.codec.schema
        if schema.fingerprint not in self._published:
            now_us = time.time_ns() // 1000
            self._publisher.send(schemas_topic(self._prefix), schema.record_key(), schema.to_json(version=now_us))

    def _watermark(
        self,
        kind: WatermarkKind,
        split: Split,
        captured: CapturedTable,
        position: Offset,
        *,
        rows: int = 0,
        checksum: int = 0,
    ) -> None:
        schema = captured.codec.schema.fingerprint
        record = watermark_record(kind, split, captured.topic, position, schema, rows=rows, checksum=checksum)
        self._publisher.send(watermarks_topic(self._prefix), record.record_key(), record.to_json())


@contextmanager
def _definition_held(session: Connection) -> Iterator[None]:
    """Keep DDL of the tables read inside away until the end: one definition holds for all rows of a split."""
    database.query(session, "START TRANSACTION")
    try:
        yield
    except BaseException:
        with suppress(MySQLError, OSError):  # the session may be what broke
            session.rollback()
        raise
    session.rollback()


def watermark_record(
    kind: WatermarkKind,
    split: Split,
    topic: str,
    position: Offset,
    schema: str,
    *,
    rows: int,
    checksum: int,
    backfill: int = 0,
) -> Watermark:
    """Return the watermark record of a split."""
    return Watermark(
        kind=kind,
        split=split.id,
        snapshot=split.snapshot,
        topic=topic,
        database=split.table.database,
        table=split.table.table,
        number=split.number,
        lower=to_json(split.range.lower),
        upper=to_json(split.range.upper),
        closed=split.range.closed,
        position=BinlogPosition.from_json(position.to_json()),
        rows=rows,
        checksum=checksum,
        backfill=backfill,
        schema=schema,
        ts_us=time.time_ns() // 1000,
        incremental=split.incremental,
    )
