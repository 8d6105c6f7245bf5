"""The codec of a table version: bytes of rows in, bytes of keys and envelopes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tailrace.producer.config.column_transforms import ColumnProjection
from tailrace.producer.model.codec import (
    EventEnvelope,
    InsertTransactionBlock,
    KeyReaders,
    RowsEncoders,
    SnapshotEnvelope,
    SnapshotRows,
)
from tailrace.producer.model.table import Column, Table
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.conversion import ConversionFailures
from tailrace.producer.mysql.types.registry import connect_field
from tailrace.producer.native import loader
from tailrace.producer.serialization.envelope.schemas import envelope_schema, key_schema
from tailrace.producer.serialization.envelope_frame import RecordFormat
from tailrace.producer.serialization.key_changes import KeyChangeFactory, header_printer
from tailrace.producer.serialization.native_codec import NativeCodec
from tailrace.producer.serialization.plain_codec import DECODE_ERRORS, PlainCodec, decode_error
from tailrace.producer.serialization.row_plan import PlanBuilder
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.rowkind import Op
from tailrace.schemas.table import TableSchema

_OPS: Final = (Op.CREATE, Op.UPDATE, Op.DELETE)
"""The operations of rows events."""


@dataclass(frozen=True, slots=True)
class CodecOptions:
    """Options of the records of a table version."""

    values: ValueOptions
    projection: ColumnProjection | None = None
    """None: all columns, unchanged."""
    tombstones: bool = True
    skip_unchanged: bool = False
    """Omit updates whose published rows are equal."""
    failures: ConversionFailures = field(default_factory=ConversionFailures)
    """Counts the values that were replaced."""

    def published(self, table: Table) -> Sequence[Column]:
        return table.columns if self.projection is None else self.projection.visible(table.columns)


def plain_format(table: Table, topic: str, options: CodecOptions) -> RecordFormat:
    """Return the format of JSON without schemas, which needs neither defaults nor ids."""
    fields = {column.name: connect_field(column, options.values) for column in options.published(table)}
    columns = tuple(fields.values())
    return RecordFormat(
        key="json",
        value="json",
        columns=columns,
        key_schema=key_schema(topic, [fields[name] for name in table.key]),
        value_schema=envelope_schema(topic, columns),
    )


class TableCodec:
    """One table version: its plans, and the loop that reads them."""

    def __init__(
        self,
        table: Table,
        topic: str,
        options: CodecOptions,
        record_format: RecordFormat | None = None,
    ) -> None:
        """Make the plans of a table version. Raises SchemaError for a column of an unsupported type."""
        record_format = record_format or plain_format(table, topic, options)
        plans = PlanBuilder(table, options.values, options.projection, record_format, options.failures).plans()
        self.select_list = plans.select_list
        """The SELECT list of ``published``."""
        fields = _published_fields(table, options, record_format)
        self.schema = TableSchema(
            topic=topic,
            database=table.id.database,
            table=table.id.table,
            columns=tuple(fields.values()),
            key=_published_key(table, options, fields),
        )
        self.published = options.published(table)
        """The columns of the result set that ``snapshot`` decodes."""
        self._tombstones = options.tombstones
        self._frame = record_format.frame()
        changes = KeyChangeFactory(self._frame, header_printer([fields[name] for name in table.key]))
        flags = {"tombstones": options.tombstones, "skip_unchanged": options.skip_unchanged}
        self._python = PlainCodec(plans, self._frame, changes, **flags)
        self.native = NativeCodec(plans, self._frame, self._python, **flags) if loader.is_used() else None
        """The compiled loops, if the extension is used."""
        loops = self.native or self._python
        self.encoders: RowsEncoders = {op: loops.encoder(op) for op in _OPS}
        """The encoders of rows events by operation."""
        self.inserts, self.updates, self.deletes = (self.encoders[op] for op in _OPS)

    @cached_property
    def key_readers(self) -> KeyReaders:
        loops = self.native or self._python
        return {op: loops.key_reader(op) for op in _OPS}

    def snapshot(
        self, buffer: bytes | bytearray | memoryview, start: int, end: int, envelope: SnapshotEnvelope
    ) -> SnapshotRows:
        """Encode the complete row packets in ``buffer[start:end]`` (MySQL packets with their 4-byte headers).

        Raises SourceError with the server's code and text for an ERR packet, SchemaError for a malformed row.
        """
        suffix = self._frame.snapshot(envelope.suffix)
        view = memoryview(buffer)
        try:
            if self.native is not None:
                return self.native.snapshot(view[:end], start, suffix)
            rows = self._python.packets(bytes(view[start:end]), 0, end - start, suffix)
        except DECODE_ERRORS as error:
            raise decode_error(error) from error
        return rows._replace(consumed=start + rows.consumed)

    def deleted_rows(self, packets: bytes, envelope: SnapshotEnvelope) -> list[tuple[bytes, bytes | None]]:
        """Encode the rows of a result set as they were before their deletes, and tombstones."""
        frame, rows = self._frame, self.snapshot(packets, 0, len(packets), envelope)
        start, suffix = len(frame.before_insert), frame.snapshot(envelope.suffix)
        records: list[tuple[bytes, bytes | None]] = []
        for key, value in rows.records:
            row = value[start : len(value) - len(suffix)]
            records.append((key, b"".join((frame.before_update, row, frame.after_delete, suffix))))
            if self._tombstones:
                records.append((key, None))
        return records

    def transaction_block_inserter(self, envelope: EventEnvelope, gtid: str) -> InsertTransactionBlock:
        return self._frame.transaction_block_inserter(envelope, gtid)


def _published_fields(table: Table, options: CodecOptions, record_format: RecordFormat) -> dict[str, ConnectField]:
    """Return the fields of a row by column name.

    They have no defaults: the binlog does not contain them, and a version has one fingerprint from both sources.
    """
    return {
        column.name: ConnectField(field.name, connect_field(column, options.values).schema)
        for column, field in zip(options.published(table), record_format.columns, strict=True)
    }


def _published_key(table: Table, options: CodecOptions, fields: Mapping[str, ConnectField]) -> tuple[str, ...]:
    """Return the key fields; empty if a key column is transformed, since the row does not identify itself then."""
    if options.projection is not None and any(name in options.projection.transforms for name in table.key):
        return ()
    return tuple(fields[name].name for name in table.key)
