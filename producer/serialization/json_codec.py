"""Compiles a table version into its codec: the implementation of ``contract.TableCodec`` in generated Python."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from tailrace.producer.config.column_transforms import ColumnProjection
from tailrace.producer.model.codec import (
    EventEnvelope,
    EventRows,
    KeyChange,
    KeyTuple,
    PutBlock,
    SnapshotEnvelope,
    SnapshotRows,
    TableCodec,
)
from tailrace.producer.model.table import Table
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.registry import connect_field
from tailrace.producer.serialization.envelope_frame import JsonFrame
from tailrace.producer.serialization.key_change_header import header_printer
from tailrace.producer.serialization.packet_decoder import compile_rows
from tailrace.producer.serialization.row_image_decoder import RowImageDecoder, bitmap_size
from tailrace.producer.serialization.row_layout import row_layouts
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.table import TableSchema

_MALFORMED = (IndexError, KeyError, ValueError, TypeError, OverflowError, struct.error)
"""What generated code raises where bytes are not what the columns say."""
_BEFORE_ROW: Final = b'{"before":null,"after":'
_FRAME: Final = JsonFrame()


def compile_table(
    table: Table,
    topic: str,
    settings: ValueOptions,
    *,
    tombstones: bool = True,
    shape: ColumnProjection | None = None,
    skip_unchanged: bool = False,
) -> TableCodec:
    """Compile one version of a table. ``skip_unchanged`` leaves out updates whose rows are equal as they are written.

    Raises SchemaError where a column has no type.
    """
    made = SkipUnchangedCodec if skip_unchanged else GeneratedCodec
    return made(table, topic, settings, tombstones=tombstones, shape=shape)


class GeneratedCodec:
    """A table version in generated Python."""

    def __init__(
        self,
        table: Table,
        topic: str,
        settings: ValueOptions,
        *,
        tombstones: bool,
        shape: ColumnProjection | None = None,
    ) -> None:
        self._table = table
        ways = row_layouts(table, settings, shape)
        selected, logged = ways.selected, ways.logged
        self.schema = TableSchema(
            topic=topic,
            database=table.id.database,
            table=table.id.table,
            columns=tuple(connect_field(each.column, settings) for each in selected.types),
            key=ways.published_key,
        )
        self.select_list = ", ".join(t.select for t in selected.types)
        self._tombstones = tombstones
        self._rows = compile_rows(selected.types, selected.json(), _BEFORE_ROW)
        self._images = RowImageDecoder(logged.types, logged.key, logged.json(), keyed=False)
        self._keyed = RowImageDecoder(logged.types, logged.key, logged.json(), keyed=True)
        self._bitmap = bitmap_size(table.columns)
        self._header = header_printer([connect_field(column, settings) for column in table.key_columns])

    def snapshot(
        self, buffer: bytes | bytearray | memoryview, start: int, end: int, stamp: SnapshotEnvelope
    ) -> SnapshotRows:
        """See ``contract.TableCodec``."""
        view = memoryview(buffer)[start:end]
        data = bytes(view)
        with decode_errors_as_schema_error:
            records, checksum, consumed, finished = self._rows(data, str(data, "latin-1"), 0, len(data), stamp.suffix)
        return SnapshotRows(records, checksum, start + consumed, finished)

    def inserts(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        records: list[tuple[bytes, bytes | None] | KeyChange] = []
        raw_keys: list[tuple[KeyTuple | None, KeyTuple | None]] = []
        images, width = self._keyed if keys else self._images, self._bitmap
        known = images.by_bitmap.get
        head, middle, tail, row = stamp
        tail = b"%bc%b" % (middle, tail)
        event, text = slice_event(data, start, end)
        p, size = 0, len(event)
        with decode_errors_as_schema_error:
            while p < size:
                bitmap = event[p : p + width]
                image = known(bitmap) or images.find(bitmap)
                after, key, p, raw = image(event, text, p + width)
                value = b'{"before":null,"after":%b%b%d%b' % (after.encode("latin-1"), head, row, tail)
                records.append((key.encode("latin-1"), value))
                if keys:
                    raw_keys.append((None, raw))
                row += 1
        if p != size:
            raise row_mismatch(p, size)
        return EventRows(records, range(len(raw_keys)), raw_keys)

    def deletes(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        records: list[tuple[bytes, bytes | None] | KeyChange] = []
        raw_keys: list[tuple[KeyTuple | None, KeyTuple | None]] = []
        images, width = self._keyed if keys else self._images, self._bitmap
        known = images.by_bitmap.get
        head, middle, tail, row = stamp
        head = b',"after":null' + head
        tail = b"%bd%b" % (middle, tail)
        event, text = slice_event(data, start, end)
        p, size = 0, len(event)
        with decode_errors_as_schema_error:
            while p < size:
                bitmap = event[p : p + width]
                image = known(bitmap) or images.find(bitmap)
                before, key_text, p, raw = image(event, text, p + width)
                key = key_text.encode("latin-1")
                records.append((key, b'{"before":%b%b%d%b' % (before.encode("latin-1"), head, row, tail)))
                if self._tombstones:
                    records.append((key, None))
                if keys:
                    raw_keys.append((raw, None))
                row += 1
        if p != size:
            raise row_mismatch(p, size)
        each = 2 if self._tombstones else 1
        row_index = [i for i in range(len(raw_keys)) for _ in range(each)]
        return EventRows(records, row_index, raw_keys)

    def updates(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        records: list[tuple[bytes, bytes | None] | KeyChange] = []
        raw_keys: list[tuple[KeyTuple | None, KeyTuple | None]] = []
        images, width = self._keyed if keys else self._images, self._bitmap
        known = images.by_bitmap.get
        head, middle, tail, row = stamp
        updated = b"%bu%b" % (middle, tail)
        event, text = slice_event(data, start, end)
        p, size = 0, len(event)
        with decode_errors_as_schema_error:
            while p < size:
                bitmap = event[p : p + width]
                image = known(bitmap) or images.find(bitmap)
                before, old_key, p, old_raw = image(event, text, p + width)
                bitmap = event[p : p + width]
                image = known(bitmap) or images.find(bitmap)
                after, new_key, p, new_raw = image(event, text, p + width)
                if old_key == new_key:
                    change = f'{{"before":{before},"after":{after}'.encode("latin-1")
                    records.append((new_key.encode("latin-1"), b"%b%b%d%b" % (change, head, row, updated)))
                else:
                    records.append(self._key_change((before, after), (old_key, new_key), stamp, row))
                if keys:
                    raw_keys.append((old_raw, new_raw))
                row += 1
        if p != size:
            raise row_mismatch(p, size)
        return EventRows(records, range(len(raw_keys)), raw_keys)

    def numbering(self, stamp: EventEnvelope, gtid: str) -> PutBlock:
        """See ``contract.TableCodec``."""
        return _FRAME.numbering(stamp, gtid)

    def _key_change(self, rows: tuple[str, str], keys: tuple[str, str], stamp: EventEnvelope, row: int) -> KeyChange:
        before, after = rows
        head, middle, tail, _ = stamp
        old, new = (key.encode("latin-1") for key in keys)
        return KeyChange(
            old_key=old,
            new_key=new,
            delete=b'{"before":%b,"after":null%b%d%bd%b' % (before.encode("latin-1"), head, row, middle, tail),
            create=b'{"before":null,"after":%b%b%d%bc%b' % (after.encode("latin-1"), head, row, middle, tail),
            new_key_header=self._header(new),
            old_key_header=self._header(old),
        )


class SkipUnchangedCodec(GeneratedCodec):
    """Leaves out updates that show the same row before and after."""

    def updates(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        return skip_unchanged(super().updates, self._images, self._bitmap, (data, start, end), stamp, keys=keys)


def skip_unchanged(
    encode: Callable[..., EventRows],
    images: RowImageDecoder,
    width: int,
    at: tuple[bytes, int, int],
    stamp: EventEnvelope,
    *,
    keys: bool,
) -> EventRows:
    """Encode an UPDATE_ROWS event by ``encode`` and leave out the pairs of equal rows; the rest keep their numbers."""
    found = encode(*at, stamp, keys=keys)
    event, text = slice_event(*at)
    changed: list[int] = []
    known = images.by_bitmap.get
    p = 0
    with decode_errors_as_schema_error:
        for pair in range(len(found.records)):
            bitmap = event[p : p + width]
            before, _, p, _ = (known(bitmap) or images.find(bitmap))(event, text, p + width)
            bitmap = event[p : p + width]
            after, _, p, _ = (known(bitmap) or images.find(bitmap))(event, text, p + width)
            if before != after:
                changed.append(pair)
    records = [found.records[i] for i in changed]
    return EventRows(records, changed if keys else range(0), found.keys)


def slice_event(data: bytes, start: int, end: int) -> tuple[bytes, str]:
    """Return the images alone, as bytes and as text of one character per byte: nothing beyond can be read."""
    event = data if not start and end == len(data) else data[start:end]
    return event, str(event, "latin-1")


def row_mismatch(read: int, size: int) -> SchemaError:
    return SchemaError(
        "a row image does not fit the table's columns",
        hint="let the producer read the table's definition again; binlog_row_image must be FULL",
        bytes_read=read,
        bytes_present=size,
    )


class _DecodeErrors:
    """Turns what generated code raises on foreign bytes into a SchemaError; a context manager without state."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, _MALFORMED):
            raise SchemaError(
                "a row does not fit the table's columns",
                hint="let the producer read the table's definition again; binlog_row_image must be FULL",
                cause=f"{type(error).__name__}: {error}",
            ) from error


decode_errors_as_schema_error: Final = _DecodeErrors()
