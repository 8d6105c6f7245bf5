"""Snapshot reader: reads one split after another, each inside one Kafka transaction.

The order is: LOW watermark, the rows as ``op: r``, HIGH watermark, the state of the split. All of a split is in Kafka,
or nothing. The reader keeps no rows and does not wait for the binlog: the stream handles concurrent changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from tailrace.producer.errors import (
    KeysRefusedError,
    RecordTooLargeError,
    SourceError,
    SplitTooSlowError,
    TableLockedError,
    TableMissingError,
    as_definition,
)
from tailrace.producer.kafka.state_store import SplitState, split_key
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.model.codec import SnapshotEnvelope
from tailrace.producer.model.protocols import KeyRows, NotComparedError, Offset, SplitQuery, SplitReader
from tailrace.producer.model.split import KeyColumn, Split, key_changed, key_to_json
from tailrace.producer.model.table import TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.serialization.captured_tables import CapturedTable, CapturedTables
from tailrace.producer.serialization.envelope.headers import event_header
from tailrace.producer.snapshot.hooks import NO_HOOKS, SnapshotHooks
from tailrace.producer.streaming.watermark_record import high_watermark, low_watermark
from tailrace.runtime.errors import KafkaUnavailableError, SchemaError
from tailrace.schemas.names import INCREMENTAL_HEADER, SPLIT_HEADER, schemas_topic, state_topic, watermarks_topic
from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.verification import ChosenKeys
from tailrace.schemas.watermark import Watermark

log = structlog.get_logger(__name__)

BARRIER_TIMEOUT_S: Final = 60.0
"""How long the server may take to make the transactions visible that the stream has read."""

MAX_SCANNED: Final = 100_000
"""Rows of a table that may be read to find those of keys."""
_SHOWN: Final = 200
_MAX_DEFINITIONS: Final = 16
"""Tables whose compiled versions a reader keeps; it reads few tables at a time."""
_USABLE_SHARE: Final = 0.8
"""The part of the transaction timeout that the rows of a split may take; the rest is for the commit."""


@dataclass(frozen=True, slots=True)
class SplitTask:
    """A split to read, with the stream's offset when it was opened."""

    split: Split
    columns: tuple[KeyColumn, ...]
    barrier: Offset
    condition: str = ""
    """SQL condition on the rows; empty: all rows."""
    keys: ChosenKeys | None = None
    """The keys whose rows are read, and that are deleted if the table does not have them; None: all."""


@dataclass(frozen=True, slots=True)
class SplitDone:
    """A split that is in Kafka."""

    split: Split
    state: SplitState
    seconds: float
    partitions: int
    """Those of the topic that its rows were divided among."""
    bytes: int
    """What the source has sent for it."""
    values_replaced: int = 0
    """Values that the modes cannot represent."""


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The topics, and the headers of every row."""

    prefix: str
    context_headers: Headers
    values: ValueOptions
    skips_deletes: bool
    """``skipped.operations`` has deletes."""


class SnapshotReader:
    """Reads splits over one session and one transactional producer."""

    def __init__(
        self,
        session: SplitReader,
        producer: TransactionalProducer,
        tables: CapturedTables,
        settings: ReaderSettings,
        *,
        hooks: SnapshotHooks = NO_HOOKS,
    ) -> None:
        self._session = session
        self._producer = producer
        self._tables = tables
        self._settings = settings
        self._hooks = hooks
        self._definitions: dict[TableId, tuple[str, CapturedTable, tuple[str, ...]]] = {}
        """The text of the definition, the version, and what the order of the splitting columns depends on."""
        self._published: set[str] = set()

    def read(self, task: SplitTask, on_commit: Callable[[], None]) -> SplitDone:
        """Write one split to Kafka; on return it is committed. On any error its transaction is aborted.

        ``on_commit`` is called before the commit. Before that, nothing of the split can be in Kafka.
        """
        try:
            return self._read(task, on_commit)
        except BaseException as error:
            if isinstance(error, SchemaError | RecordTooLargeError):
                error.add_context(table=task.split.table, split=task.split.id)
            self._producer.abort()
            if self._producer.in_transaction and isinstance(error, TableLockedError | TableMissingError):
                # The next split would be in the same transaction.
                raise KafkaUnavailableError("the transaction of a split could not be aborted") from error
            raise

    def _read(self, task: SplitTask, on_commit: Callable[[], None]) -> SplitDone:
        started = time.monotonic()
        split, session, producer = task.split, self._session, self._producer
        self._hooks.before_low(split)
        low = session.low_watermark(task.barrier, BARRIER_TIMEOUT_S)
        self._hooks.after_low(split)
        with session.stable_definition():
            try:
                captured = self._definition(split.table, task.columns)
            except SchemaError as error:
                raise as_definition(error) from error
            producer.begin()
            schema = captured.fingerprint
            if schema not in self._published:
                self._publish_schema(captured, session.high_watermark(low))
            partitions = producer.partitions(captured.topic)
            self._write_watermark(low_watermark(split, captured.topic, low, schema, partitions=partitions))
            rows, checksum, size = self._write_rows(task, captured, low)
            self._hooks.before_high(split)
            high = session.high_watermark(low)
            self._hooks.after_high(split)
        span = split.range
        state = SplitState(
            database=split.table.database,
            table=split.table.table,
            snapshot=split.snapshot,
            number=split.number,
            lower=key_to_json(span.lower),
            upper=key_to_json(span.upper),
            closed=span.closed,
            low=low,
            high=high,
            rows=rows,
            checksum=checksum,
            schema=schema,
        )
        self._write_watermark(high_watermark(split, captured.topic, state))
        producer.send(state_topic(self._settings.prefix), split_key(split.id), state.to_json())
        on_commit()
        producer.commit()
        self._published.add(schema)
        replaced = sum(self._tables.failures.take().values())
        return SplitDone(split, state, time.monotonic() - started, partitions, size, replaced)

    def _write_rows(self, task: SplitTask, captured: CapturedTable, low: Offset) -> tuple[int, int, int]:
        split = task.split
        read_at_us = self._session.clock_us()
        # A row that is read again follows the one that was read at the same position, whatever a reader made of that.
        event = read_at_us if split.incremental else 0
        common: Headers = [
            event_header(low.epoch, event),
            captured.schema_header,
            *self._settings.context_headers,
        ]
        headers: Headers = [(INCREMENTAL_HEADER if split.incremental else SPLIT_HEADER, split.id.encode()), *common]
        envelope_of = partial(
            captured.source.snapshot_envelope, low.to_json(), read_at_us=read_at_us, incremental=split.incremental
        )
        query = SplitQuery(split.table, task.columns, split.range, task.condition)
        if task.keys is not None:
            found = self._key_rows(captured, task.keys)
            absent = [] if self._settings.skips_deletes else found.absent(query)
            self._write_deletes(captured, found, absent, envelope_of(op=Op.DELETE), common)
            query = query._replace(condition=found.condition)
        envelope = envelope_of()
        rows = checksum = size = 0
        started = time.monotonic()
        limit_s = self._producer.transaction_timeout_s * _USABLE_SHARE
        for block in self._session.read_rows(query, captured.codec, envelope):
            self._producer.send_all(captured.topic, block.records, headers)
            rows += len(block.records)
            size += block.consumed
            if time.monotonic() - started > limit_s:
                raise _too_slow(task, rows, self._producer.transaction_timeout_s)
            checksum = (checksum + block.checksum) & 0xFFFF_FFFF_FFFF_FFFF
        return rows, checksum, size

    def _key_rows(self, captured: CapturedTable, keys: ChosenKeys) -> KeyRows:
        if keys.columns != captured.codec.schema.key:
            raise KeysRefusedError(
                "the keys of a signal are not those of the table",
                hint="compare again: the key has changed since, or the signal is for another table",
                signal=", ".join(keys.columns),
                key=", ".join(captured.codec.schema.key),
            )
        try:
            found = self._session.key_rows(captured.table, self._settings.values, keys.texts)
        except NotComparedError as error:
            raise KeysRefusedError(
                f"rows are not read by their keys: {error}", hint="request a snapshot of the whole table"
            ) from error
        # Each change of the table waits meanwhile.
        if found.unbounded and (rows := self._session.estimated_size(captured.table.id).rows) > MAX_SCANNED:
            raise KeysRefusedError(
                "rows are not read by their keys: an index does not find them, and the table is large",
                hint="request a snapshot of the whole table",
                column=found.unbounded,
                estimated_rows=rows,
                most=MAX_SCANNED,
            )
        return found

    def _write_deletes(
        self, captured: CapturedTable, found: KeyRows, keys: list[str], envelope: SnapshotEnvelope, headers: Headers
    ) -> None:
        """Write a delete of each key that the table does not have.

        The changes of the keys are held, so one that is inserted since has its record behind the delete.
        """
        for key in keys:
            try:
                records = captured.codec.deleted_rows(found.packets(captured.codec.published, key), envelope)
            except (SourceError, SchemaError, ValueError) as error:  # the row is made here, and is not of the table
                log.warning("key not deleted", table=str(captured.table.id), key=key[:_SHOWN], error=str(error))
                continue
            self._producer.send_all(captured.topic, records, headers)

    def _definition(self, table: TableId, columns: tuple[KeyColumn, ...]) -> CapturedTable:
        """Return the current version of a table; compiled again only if the text of its definition changed.

        Raises SchemaError if the table can no longer be split on the columns of the plan.
        """
        text = self._session.definition_text(table)
        known = self._definitions.pop(table, None)
        if known is None or known[0] != text:
            found = self._session.describe(table)
            captured = self._tables.version_of(found)
            key = self._session.splitting_columns(found, captured.table.key)
            known = text, captured, tuple(column.definition for column in key)
        if len(self._definitions) >= _MAX_DEFINITIONS:
            del self._definitions[next(iter(self._definitions))]
        self._definitions[table] = known  # the last of the used ones
        planned = tuple(column.definition for column in columns)
        if known[2][: len(planned)] != planned:
            raise key_changed(table, planned, known[2])
        return known[1]

    def _publish_schema(self, captured: CapturedTable, offset: Offset) -> None:
        """Publish a version that the table has at ``offset``: the metadata lock is held, so it is not changed there."""
        schema, position = captured.codec.schema, offset.to_json()
        sequence = Sequence.at(offset.epoch, position["file"], position["pos"])
        topic = schemas_topic(self._settings.prefix)
        self._producer.send(topic, schema.record_key(), schema.to_json(sequence=sequence))

    def _write_watermark(self, record: Watermark) -> None:
        self._producer.send(watermarks_topic(self._settings.prefix), record.record_key(), record.to_json())


def _too_slow(task: SplitTask, rows: int, timeout_s: float) -> SplitTooSlowError:
    """Return the error for a split that would be open for longer than Kafka allows a transaction to be."""
    hint = (
        "lower incremental.snapshot.chunk.size"
        if task.columns
        else "its key cannot be split, so the table is one transaction: give it a primary key, or a "
        "unique index on the columns of message.key.columns, whose first column is a number, text or a date, or leave "
        "it out of the snapshot with snapshot.include.collection.list"
    )
    return SplitTooSlowError(
        "reading a split takes longer than a Kafka transaction may last",
        hint="raise tailrace.snapshot.transaction.timeout.ms and the brokers' transaction.max.timeout.ms; or " + hint,
        table=task.split.table,
        split=task.split.id,
        rows_read=rows,
        transaction_timeout_s=round(timeout_s),
    )
