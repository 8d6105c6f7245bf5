"""Compiles a table version into its codec: bytes of rows in, bytes of keys and envelopes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from tailrace.producer.config.column_transforms import ColumnProjection
from tailrace.producer.model.codec import (
    EventEnvelope,
    InsertTransactionBlock,
    KeyReaders,
    RowsEncoder,
    RowsEncoders,
    SnapshotEnvelope,
    SnapshotRows,
)
from tailrace.producer.model.table import Column, Table
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.conversion import ConversionFailures
from tailrace.producer.mysql.types.registry import connect_field
from tailrace.producer.native import loader
from tailrace.producer.serialization.codegen import source_of
from tailrace.producer.serialization.envelope.schemas import envelope_schema, key_schema
from tailrace.producer.serialization.event_encoder import (
    DECODE_ERRORS,
    EventDecoders,
    EventEncoderFactory,
    decode_error,
)
from tailrace.producer.serialization.key_change_header import header_printer
from tailrace.producer.serialization.key_changes import KeyChangeFactory
from tailrace.producer.serialization.key_reader import PythonKeyReaders
from tailrace.producer.serialization.native_codec import EventEncoders, encode_packets, packet_encoder
from tailrace.producer.serialization.packet_decoder import compile_packet_decoder, compile_row_decoder
from tailrace.producer.serialization.record_format import RecordFormat
from tailrace.producer.serialization.row_image_decoder import RowImageDecoder
from tailrace.producer.serialization.row_layout import row_layouts
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.rowkind import Op
from tailrace.schemas.table import TableSchema

if TYPE_CHECKING:
    from tailrace.producer.native.codec import PacketEncoder


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
        """Return the columns of the published rows."""
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
    """One table version, compiled to generated Python."""

    def __init__(
        self,
        table: Table,
        topic: str,
        options: CodecOptions,
        record_format: RecordFormat | None = None,
    ) -> None:
        """Compile a table version. Raises SchemaError for a column of an unsupported type."""
        record_format = record_format or plain_format(table, topic, options)
        result_set, row_image = row_layouts(table, options.values, options.projection, options.failures)
        self.select_list = ", ".join(t.select for t in result_set.types)
        """The columns of the result set that ``snapshot`` decodes."""
        self._frame = record_format.frame()
        writers = record_format.writers(result_set)
        # With the extension, the generated functions encode only what it declines: in most tables nothing.
        rarely_called = loader.is_used()
        self._any_row = compile_row_decoder(result_set.types, writers, at_first_call=rarely_called)
        self._packets = compile_packet_decoder(
            result_set.types, writers, self._frame.before_insert, self._any_row, at_first_call=rarely_called
        )
        self._new_native = partial(packet_encoder, result_set, record_format, self._frame) if loader.is_used() else None
        types, key, writers = row_image.types, row_image.key, record_format.writers(row_image)
        self._new_key_readers = partial(PythonKeyReaders, types, key)
        plain = record_format.plain_rows and record_format.plain_keys
        self._decoders = EventDecoders(
            RowImageDecoder(types, key, writers, raw_keys=False),
            RowImageDecoder(types, key, writers, raw_keys=True),
            None if plain else RowImageDecoder(types, key, record_format.plain_writers(row_image), raw_keys=False),
        )
        fields = _published_fields(table, options, record_format)
        self.schema = TableSchema(
            topic=topic,
            database=table.id.database,
            table=table.id.table,
            columns=tuple(fields.values()),
            key=_published_key(table, options, fields),
        )
        print_header = header_printer([fields[name] for name in table.key])
        changes = KeyChangeFactory(self._frame, self._decoders.plain, print_header)
        encoders = EventEncoderFactory(self._frame, self._decoders, changes, at_first_call=rarely_called)
        self.inserts: RowsEncoder = encoders.inserts()
        self.updates: RowsEncoder = encoders.updates(skip_unchanged=options.skip_unchanged)
        self.deletes: RowsEncoder = encoders.deletes(tombstones=options.tombstones)
        self._generated = (self.inserts, self.updates, self.deletes)
        self.native_events: EventEncoders | None = None
        """The compiled encoders of rows events, if the extension is used."""
        if loader.is_used():
            native = self.native_events = EventEncoders(
                row_image,
                record_format,
                self._frame,
                changes,
                tombstones=options.tombstones,
                skip_unchanged=options.skip_unchanged,
            )
            self.inserts = native.wrap(Op.CREATE, self.inserts)
            self.updates = native.wrap(Op.UPDATE, self.updates)
            self.deletes = native.wrap(Op.DELETE, self.deletes)

    @cached_property
    def native(self) -> PacketEncoder | None:
        """The compiled encoder of result sets, if there is one; a codec of the binlog alone does not need it."""
        return self._new_native() if self._new_native is not None else None

    @property
    def encoders(self) -> RowsEncoders:
        """The encoders of rows events by operation."""
        return {Op.CREATE: self.inserts, Op.UPDATE: self.updates, Op.DELETE: self.deletes}

    @cached_property
    def key_readers(self) -> KeyReaders:
        """What reads the raw keys of rows events, by operation."""
        python, native = self._new_key_readers(), self.native_events
        return {
            op: python.reader(op) if native is None else native.key_reader(op, python.reader(op))
            for op in (Op.CREATE, Op.UPDATE, Op.DELETE)
        }

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
                return encode_packets(self.native, self._packets, view[:end], start, suffix)
            data = bytes(view[start:end])
            records, checksum, consumed, finished = self._packets(data, str(data, "latin-1"), 0, len(data), suffix)
        except DECODE_ERRORS as error:
            raise decode_error(error) from error
        return SnapshotRows(records, checksum, start + consumed, finished)

    def transaction_block_inserter(self, envelope: EventEnvelope, gtid: str) -> InsertTransactionBlock:
        """Return the function that inserts transaction blocks into the envelopes made with ``envelope``."""
        return self._frame.transaction_block_inserter(envelope, gtid)

    def generated_source(self) -> dict[str, str]:
        """Return the source of the generated functions, by what they do."""
        images = self._decoders.rows
        inserts, updates, deletes = self._generated
        return {
            "decode the packets of a result set": source_of(self._packets),
            "decode a row with NULLs or long values": source_of(self._any_row),
            "decode a row image without NULLs": source_of(images.compile(0)),
            "decode a row image with any NULLs": source_of(images.compile(None)),
            "encode a WRITE_ROWS event": source_of(inserts),
            "encode an UPDATE_ROWS event": source_of(updates),
            "encode a DELETE_ROWS event": source_of(deletes),
        }


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
