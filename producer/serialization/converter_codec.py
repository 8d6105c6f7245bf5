"""Records in other bytes than plain JSON: with schemas around them, or in Avro; key and value each in its own.

The rows are read by the same generated functions, put together by another writer. What stands around a row is made of
the same stamps, so that only this module knows that an envelope can have two forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.producer.config.column_transforms import ColumnProjection
from tailrace.producer.model.codec import (
    EventEnvelope,
    EventRows,
    KeyChange,
    KeyTuple,
    PutBlock,
    SnapshotEnvelope,
    SnapshotRows,
)
from tailrace.producer.model.table import Table
from tailrace.producer.model.value_options import Converter, ValueOptions
from tailrace.producer.serialization.avro_writer import AvroWriter
from tailrace.producer.serialization.codegen import CodeBuilder
from tailrace.producer.serialization.envelope.schemas import default_text
from tailrace.producer.serialization.envelope_frame import (
    AvroFrame,
    EnvelopeFrame,
    JsonFrame,
    confluent_header,
    schema_envelope,
)
from tailrace.producer.serialization.json_codec import (
    decode_errors_as_schema_error,
    row_mismatch,
    skip_unchanged,
    slice_event,
)
from tailrace.producer.serialization.json_writer import JsonWriter
from tailrace.producer.serialization.key_change_header import header_printer
from tailrace.producer.serialization.packet_decoder import compile_rows
from tailrace.producer.serialization.row_image_decoder import RowImageDecoder, bitmap_size
from tailrace.producer.serialization.row_layout import RowLayout, row_layouts
from tailrace.producer.serialization.row_writer import RowAndKey, RowWriter, WriterFactory
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.table import TableSchema


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """How the records of one table version are written; the ids are the registry's, for Avro only."""

    key: Converter
    value: Converter
    columns: tuple[ConnectField, ...]
    """Those that rows have, in table order, under the names that records have, with defaults."""
    key_schema: ConnectSchema
    value_schema: ConnectSchema
    key_id: int = 0
    value_id: int = 0
    exact_nulls: bool = False
    """Write a column's default in place of NULL, as Connect's converters do."""


def compile_converter_codec(
    table: Table,
    topic: str,
    settings: ValueOptions,
    wire: RecordFormat,
    *,
    tombstones: bool = True,
    shape: ColumnProjection | None = None,
    skip_unchanged: bool = False,
) -> ConverterCodec:
    """Compile one version of a table; see ``compile.compile_table``."""
    made = ConverterSkipUnchangedCodec if skip_unchanged else ConverterCodec
    return made(table, topic, settings, wire, tombstones=tombstones, shape=shape)


class ConverterCodec:
    """A table version in generated Python; see ``contract.TableCodec``."""

    def __init__(
        self,
        table: Table,
        topic: str,
        settings: ValueOptions,
        wire: RecordFormat,
        *,
        tombstones: bool,
        shape: ColumnProjection | None = None,
    ) -> None:
        ways = row_layouts(table, settings, shape)
        selected, logged = ways.selected, ways.logged
        names = [field.name for field in wire.columns]
        # Without defaults: the log does not tell them, and a version must have one fingerprint from both sides.
        bare = {
            each.column.name: ConnectField(
                name, each.connect().as_optional() if each.column.nullable else each.connect()
            )
            for name, each in zip(names, selected.types, strict=True)
        }
        self.schema = TableSchema(
            topic=topic,
            database=table.id.database,
            table=table.id.table,
            columns=tuple(bare.values()),
            key=tuple(bare[name].name for name in ways.published_key),
        )
        self.select_list = ", ".join(t.select for t in selected.types)
        self._tombstones = tombstones
        self._bitmap = bitmap_size(table.columns)
        self._frame = envelope_frame(wire)
        self._header = header_printer([bare[name] for name in table.key])
        self._rows = compile_rows(selected.types, _writers(wire, selected), self._frame.insert_open)
        self._images = RowImageDecoder(logged.types, logged.key, _writers(wire, logged), keyed=False)
        self._keyed = RowImageDecoder(logged.types, logged.key, _writers(wire, logged), keyed=True)
        self._plain = RowImageDecoder(logged.types, logged.key, logged.json(names), keyed=False)
        """For the headers of a changed key, which are printed from its plain JSON."""

    def snapshot(
        self, buffer: bytes | bytearray | memoryview, start: int, end: int, stamp: SnapshotEnvelope
    ) -> SnapshotRows:
        """See ``contract.TableCodec``."""
        data = bytes(memoryview(buffer)[start:end])
        suffix = self._frame.snapshot(stamp.suffix)
        with decode_errors_as_schema_error:
            records, checksum, consumed, finished = self._rows(data, str(data, "latin-1"), 0, len(data), suffix)
        return SnapshotRows(records, checksum, start + consumed, finished)

    def inserts(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        head, tail = self._frame.event(stamp, "c")
        before, number, row = self._frame.insert_open, self._frame.row_number, stamp.first_row
        found = _RecordCollector(keys=keys)
        event, text = slice_event(data, start, end)
        p, size = 0, len(event)
        with decode_errors_as_schema_error:
            while p < size:
                after, key, p, raw = self._read(event, text, p, keys=keys)
                value = b"".join((before, after.encode("latin-1"), head, number(row), tail))
                found.add(row - stamp.first_row, (None, raw), (key.encode("latin-1"), value))
                row += 1
        return found.whole(p, size)

    def deletes(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        head, tail = self._frame.event(stamp, "d")
        head = self._frame.delete_middle + head
        opening, number, row = self._frame.delete_open, self._frame.row_number, stamp.first_row
        found = _RecordCollector(keys=keys)
        event, text = slice_event(data, start, end)
        p, size = 0, len(event)
        with decode_errors_as_schema_error:
            while p < size:
                before, key, p, raw = self._read(event, text, p, keys=keys)
                value = b"".join((opening, before.encode("latin-1"), head, number(row), tail))
                gone: list[tuple[bytes, bytes | None]] = [(key.encode("latin-1"), value)]
                if self._tombstones:
                    gone.append((gone[0][0], None))
                found.add(row - stamp.first_row, (raw, None), *gone)
                row += 1
        return found.whole(p, size)

    def updates(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        frame = self._frame
        head, tail = frame.event(stamp, "u")
        number, row = frame.row_number, stamp.first_row
        found = _RecordCollector(keys=keys)
        event, text = slice_event(data, start, end)
        p, size = 0, len(event)
        with decode_errors_as_schema_error:
            while p < size:
                first = p
                before, old_key, p, old_raw = self._read(event, text, p, keys=keys)
                second = p
                after, new_key, p, new_raw = self._read(event, text, p, keys=keys)
                record: tuple[bytes, bytes | None] | KeyChange
                if old_key == new_key:
                    rows = (frame.update_open, before.encode("latin-1"), frame.update_middle, after.encode("latin-1"))
                    record = (new_key.encode("latin-1"), b"".join((*rows, head, number(row), tail)))
                else:
                    headers = [self._header(self._plain_key(event, text, at)) for at in (first, second)]
                    record = self._key_change((before, after), (old_key, new_key), headers, stamp, row)
                found.add(row - stamp.first_row, (old_raw, new_raw), record)
                row += 1
        return found.whole(p, size)

    def numbering(self, stamp: EventEnvelope, gtid: str) -> PutBlock:
        """See ``contract.TableCodec``."""
        return self._frame.numbering(stamp, gtid)

    def _read(self, event: bytes, text: str, p: int, *, keys: bool) -> tuple[str, str, int, KeyTuple | None]:
        images = self._keyed if keys else self._images
        bitmap = event[p : p + self._bitmap]
        return (images.by_bitmap.get(bitmap) or images.find(bitmap))(event, text, p + self._bitmap)

    def _plain_key(self, event: bytes, text: str, p: int) -> bytes:
        image = self._plain.find(event[p : p + self._bitmap])
        return image(event, text, p + self._bitmap)[1].encode("latin-1")

    def _key_change(
        self, rows: tuple[str, str], keys: tuple[str, str], headers: Sequence[bytes], stamp: EventEnvelope, row: int
    ) -> KeyChange:
        frame = self._frame
        before, after = (each.encode("latin-1") for each in rows)
        old, new = (key.encode("latin-1") for key in keys)
        number = frame.row_number(row)
        deleted, created = frame.event(stamp, "d"), frame.event(stamp, "c")
        return KeyChange(
            old_key=old,
            new_key=new,
            delete=b"".join((frame.delete_open, before, frame.delete_middle, deleted[0], number, deleted[1])),
            create=b"".join((frame.insert_open, after, created[0], number, created[1])),
            new_key_header=headers[1],
            old_key_header=headers[0],
        )


class ConverterSkipUnchangedCodec(ConverterCodec):
    """Leaves out updates that show the same row before and after."""

    def updates(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        # By the plain rows: a NULL that is written as its default is not the default.
        return skip_unchanged(super().updates, self._plain, self._bitmap, (data, start, end), stamp, keys=keys)


class _RecordCollector:
    """Collects the records of one event."""

    def __init__(self, *, keys: bool) -> None:
        self._wanted = keys
        self._records: list[tuple[bytes, bytes | None] | KeyChange] = []
        self._owners: list[int] = []
        self._keys: list[tuple[KeyTuple | None, KeyTuple | None]] = []

    def add(
        self,
        row: int,
        keys: tuple[KeyTuple | None, KeyTuple | None],
        *records: tuple[bytes, bytes | None] | KeyChange,
    ) -> None:
        self._records += records
        if self._wanted:
            self._keys.append(keys)
            self._owners += [row] * len(records)

    def whole(self, read: int, size: int) -> EventRows:
        if read != size:
            raise row_mismatch(read, size)
        return EventRows(self._records, self._owners, self._keys)


def envelope_frame(wire: RecordFormat) -> EnvelopeFrame:
    """Return what stands around the rows of a table version."""
    if wire.value == "avro":
        return AvroFrame(wire.value_schema, wire.value_id)
    return JsonFrame(*(schema_envelope(wire.value_schema) if wire.value == "json-schema" else (b"", b"")))


def _writers(wire: RecordFormat, way: RowLayout) -> WriterFactory:
    return lambda space: way.planned(_writer(wire, way, space), space, avro=wire.value == "avro")


def _writer(wire: RecordFormat, way: RowLayout, space: CodeBuilder) -> RowWriter:
    names = way.of_slots([field.name for field in wire.columns])
    schemas = way.of_slots([field.schema for field in wire.columns])
    row, key = way.projection.row, way.projection.key

    def avro() -> RowWriter:
        opening = confluent_header(wire.key_id).decode("latin-1")
        return AvroWriter(schemas, row, key, space, key_open=opening, exact=wire.exact_nulls)

    def json() -> RowWriter:
        around = (
            [part.decode("latin-1") for part in schema_envelope(wire.key_schema)]
            if wire.key == "json-schema"
            else ["", ""]
        )
        nulls = {
            i: default_text(schema).encode().decode("latin-1")
            for i, schema in enumerate(schemas)
            if wire.exact_nulls and schema.optional and schema.default is not None
        }
        return JsonWriter(names, key, space, row=row, around_key=(around[0], around[1]), nulls=nulls)

    if (wire.key == "avro") == (wire.value == "avro"):
        return avro() if wire.key == "avro" else json()
    values, keys = (avro(), json()) if wire.value == "avro" else (json(), avro())
    return RowAndKey(values, keys, key)
