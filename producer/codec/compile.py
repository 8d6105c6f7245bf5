"""Compiles a table version into its codec: the implementation of ``contract.TableCodec`` in generated Python."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from producer.codec.contract import (
    EventRows,
    EventStamp,
    KeyChange,
    KeyTuple,
    PutBlock,
    SnapshotRows,
    SnapshotStamp,
    TableCodec,
)
from producer.codec.frames import JsonFrame
from producer.codec.key_header import header_printer
from producer.codec.log_rows import Images, bitmap_size
from producer.codec.select_rows import compile_rows
from producer.codec.ways import ways_of
from producer.column_rules import Shape
from producer.database.table import Table
from producer.types.registry import connect_field
from producer.types.settings import ValueSettings
from schemas.errors import SchemaError
from schemas.table import TableSchema

_MALFORMED = (IndexError, KeyError, ValueError, TypeError, OverflowError, struct.error)
"""What generated code raises where bytes are not what the columns say."""
_BEFORE_ROW: Final = b'{"before":null,"after":'
_FRAME: Final = JsonFrame()


def compile_table(
    table: Table,
    topic: str,
    settings: ValueSettings,
    *,
    tombstones: bool = True,
    shape: Shape | None = None,
    skip_unchanged: bool = False,
) -> TableCodec:
    """Compile one version of a table. ``skip_unchanged`` leaves out updates whose rows are equal as they are written.

    Raises SchemaError where a column has no type.
    """
    made = ChangedOnlyCodec if skip_unchanged else GeneratedCodec
    return made(table, topic, settings, tombstones=tombstones, shape=shape)


class GeneratedCodec:
    """A table version in generated Python."""

    def __init__(
        self, table: Table, topic: str, settings: ValueSettings, *, tombstones: bool, shape: Shape | None = None
    ) -> None:
        self._table = table
        ways = ways_of(table, settings, shape)
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
        self._images = Images(logged.types, logged.key, logged.json(), keyed=False)
        self._keyed = Images(logged.types, logged.key, logged.json(), keyed=True)
        self._bitmap = bitmap_size(table.columns)
        self._header = header_printer([connect_field(column, settings) for column in table.key_columns])

    def snapshot(
        self, buffer: bytes | bytearray | memoryview, start: int, end: int, stamp: SnapshotStamp
    ) -> SnapshotRows:
        """See ``contract.TableCodec``."""
        view = memoryview(buffer)[start:end]
        data = bytes(view)
        with FITS:
            records, checksum, consumed, finished = self._rows(data, str(data, "latin-1"), 0, len(data), stamp.suffix)
        return SnapshotRows(records, checksum, start + consumed, finished)

    def inserts(self, data: bytes, start: int, end: int, stamp: EventStamp, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        records: list[tuple[bytes, bytes | None] | KeyChange] = []
        raw_keys: list[tuple[KeyTuple | None, KeyTuple | None]] = []
        images, width = self._keyed if keys else self._images, self._bitmap
        known = images.by_bitmap.get
        head, middle, tail, row = stamp
        tail = b"%bc%b" % (middle, tail)
        event, text = cut(data, start, end)
        p, size = 0, len(event)
        with FITS:
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
            raise misfit(p, size)
        return EventRows(records, range(len(raw_keys)), raw_keys)

    def deletes(self, data: bytes, start: int, end: int, stamp: EventStamp, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        records: list[tuple[bytes, bytes | None] | KeyChange] = []
        raw_keys: list[tuple[KeyTuple | None, KeyTuple | None]] = []
        images, width = self._keyed if keys else self._images, self._bitmap
        known = images.by_bitmap.get
        head, middle, tail, row = stamp
        head = b',"after":null' + head
        tail = b"%bd%b" % (middle, tail)
        event, text = cut(data, start, end)
        p, size = 0, len(event)
        with FITS:
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
            raise misfit(p, size)
        each = 2 if self._tombstones else 1
        owners = [i for i in range(len(raw_keys)) for _ in range(each)]
        return EventRows(records, owners, raw_keys)

    def updates(self, data: bytes, start: int, end: int, stamp: EventStamp, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        records: list[tuple[bytes, bytes | None] | KeyChange] = []
        raw_keys: list[tuple[KeyTuple | None, KeyTuple | None]] = []
        images, width = self._keyed if keys else self._images, self._bitmap
        known = images.by_bitmap.get
        head, middle, tail, row = stamp
        updated = b"%bu%b" % (middle, tail)
        event, text = cut(data, start, end)
        p, size = 0, len(event)
        with FITS:
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
            raise misfit(p, size)
        return EventRows(records, range(len(raw_keys)), raw_keys)

    def numbering(self, stamp: EventStamp, gtid: str) -> PutBlock:
        """See ``contract.TableCodec``."""
        return _FRAME.numbering(stamp, gtid)

    def _key_change(self, rows: tuple[str, str], keys: tuple[str, str], stamp: EventStamp, row: int) -> KeyChange:
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


class ChangedOnlyCodec(GeneratedCodec):
    """Leaves out updates that show the same row before and after."""

    def updates(self, data: bytes, start: int, end: int, stamp: EventStamp, *, keys: bool = False) -> EventRows:
        """See ``contract.TableCodec``."""
        return changed_only(super().updates, self._images, self._bitmap, (data, start, end), stamp, keys=keys)


def changed_only(
    encode: Callable[..., EventRows],
    images: Images,
    width: int,
    at: tuple[bytes, int, int],
    stamp: EventStamp,
    *,
    keys: bool,
) -> EventRows:
    """Encode an UPDATE_ROWS event by ``encode`` and leave out the pairs of equal rows; the rest keep their numbers."""
    found = encode(*at, stamp, keys=keys)
    event, text = cut(*at)
    changed: list[int] = []
    known = images.by_bitmap.get
    p = 0
    with FITS:
        for pair in range(len(found.records)):
            bitmap = event[p : p + width]
            before, _, p, _ = (known(bitmap) or images.find(bitmap))(event, text, p + width)
            bitmap = event[p : p + width]
            after, _, p, _ = (known(bitmap) or images.find(bitmap))(event, text, p + width)
            if before != after:
                changed.append(pair)
    records = [found.records[i] for i in changed]
    return EventRows(records, changed if keys else range(0), found.keys)


def cut(data: bytes, start: int, end: int) -> tuple[bytes, str]:
    """Return the images alone, as bytes and as text of one character per byte: nothing beyond can be read."""
    event = data if not start and end == len(data) else data[start:end]
    return event, str(event, "latin-1")


def misfit(read: int, size: int) -> SchemaError:
    return SchemaError(
        "a row image does not fit the table's columns",
        hint="let the producer read the table's definition again; binlog_row_image must be FULL",
        bytes_read=read,
        bytes_present=size,
    )


class _Fits:
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


FITS: Final = _Fits()
