"""The loops over rows in Python: the fallback of the compiled extension, and the reference for its bytes and errors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NoReturn
from zlib import crc32

from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.model.codec import (
    EventEnvelope,
    EventRows,
    KeyChange,
    KeyReader,
    KeyTuple,
    RowKeys,
    RowsEncoder,
    SnapshotRows,
)
from tailrace.producer.serialization.envelope_frame import EnvelopeFrame
from tailrace.producer.serialization.key_changes import KeyChangeFactory, Pair
from tailrace.producer.serialization.row_plan import RowPlans
from tailrace.producer.serialization.row_writer import MOST_PATTERNS, RowWriter, Values
from tailrace.runtime.errors import SchemaError, TailraceError
from tailrace.schemas.rowkind import Op

WHOLE_PACKET: Final = 0xFFFFFF
"""A packet of this length continues in the next one."""
HEADER: Final = 4
"""Bytes of a packet's header."""
END_OF_ROWS: Final = 0xFE
"""Precedes the end of a result set at the start of a packet; 0xFF an error."""

DECODE_ERRORS: Final = (
    AssertionError,
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    struct.error,
)
"""Raised by the functions of columns if the bytes do not match them."""
_RETRIABLE_ERRORS: Final = frozenset({1053, 1077, 1159, 1161, 1205, 1213, 1317, 3024, 3032, 3169, 4031})
"""Shutdown, kill, timeouts, deadlock: a retry may succeed."""
_LONG: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""What precedes a length of more than one byte in the text protocol, with its bytes."""
_RESTART: Final = "restart the producer to read the table's definition again"
_RESTART_FULL: Final = f"{_RESTART}; binlog_row_image must be FULL"

_Image = tuple[Values, int]
"""The values, and the bits of the NULLs."""
_Run = tuple[Callable[[bytes, int], tuple[bytes, ...]], int, int]
"""What reads adjacent values of fixed width, their size, and the bytes of the length of the value that follows."""


class PlainCodec:
    """The loops of one table version."""

    def __init__(
        self,
        plans: RowPlans,
        frame: EnvelopeFrame,
        changes: KeyChangeFactory,
        *,
        tombstones: bool,
        skip_unchanged: bool,
    ) -> None:
        self._frame = frame
        self._changes = changes
        self._tombstones = tombstones
        self._skip_unchanged = skip_unchanged
        self._nullable = [column.nullable for column in plans.result_set.columns]
        self._rows, self._images = RowWriter(plans.result_set), RowWriter(plans.row_image)
        self._plain = None if plans.plain_image is None else RowWriter(plans.plain_image)
        columns = plans.row_image.columns
        self._layout = [(column.width, column.prefix) for column in columns]
        self._all_columns = (1 << len(columns)) - 1
        self._runs: dict[int, list[_Run]] = {}
        """By the bits of the NULLs."""
        self._bitmap = (len(columns) + 7) // 8
        self._required = sum(1 << i for i, column in enumerate(columns) if not column.nullable)

    def packets(self, data: bytes, p: int, end: int, suffix: bytes) -> SnapshotRows:
        """Encode the complete row packets in ``data[p:end]``; ``suffix`` follows each row."""
        records: list[tuple[bytes, bytes]] = []
        checksum, prefix = 0, self._frame.before_insert
        while end - p >= HEADER:
            size = int.from_bytes(data[p : p + 3], "little")
            start = p + HEADER
            stop = start + size
            if stop > end:
                break
            if size == WHOLE_PACKET:
                payload, stop = _big_row(data, p, end)
                if payload is None:
                    break
                values, nulls = self._row_values(payload, 0, len(payload))
            elif size and data[start] >= END_OF_ROWS:
                if data[start] > END_OF_ROWS:
                    _raise_server_error(data[start:stop])
                return SnapshotRows(records, checksum, stop, finished=True)
            else:
                values, nulls = self._row_values(data, start, stop)
            row, key = self._rows.write(values, nulls)
            checksum += crc32(row)
            records.append((key, b"".join((prefix, row, suffix))))
            p = stop
        return SnapshotRows(records, checksum, p, finished=False)

    def _row_values(self, data: bytes, p: int, end: int) -> tuple[Values, int]:
        """Return the values of a row packet, each of which follows its length, and the bits of its NULLs (0xFB)."""
        values: Values = []
        add, nulls = values.append, 0
        try:
            for i, nullable in enumerate(self._nullable):
                size = data[p]
                start = p + 1
                if size > 250:
                    if size == 251 and nullable:
                        nulls |= 1 << i
                        p = start
                        continue
                    start, size = _long_size(data, p)
                p = start + size
                add(data[start:p])
            if p != end:
                raise SchemaError(
                    "a row of the result set does not match the table's columns",
                    hint=_RESTART,
                    bytes_too_many=end - p,
                )
        except (IndexError, SchemaError):
            self._rows.check(values, nulls)
            raise
        return values, nulls

    def _image_values(self, data: bytes, p: int) -> tuple[Values, int, int]:
        """Return the values of the row image at ``p``, which begins with the bitmap of its NULLs; NULLs; its end."""
        start = p + self._bitmap
        nulls = int.from_bytes(data[p:start], "little") & self._all_columns
        if nulls & self._required:
            raise SchemaError("a column declared NOT NULL is NULL", hint=_RESTART, bitmap=data[p:start].hex())
        values: Values = []
        try:
            return values, nulls, self._read_image(data, start, nulls, values)
        except (IndexError, SchemaError, struct.error):
            self._images.check(values, nulls)
            raise

    def _read_image(self, data: bytes, p: int, nulls: int, values: Values) -> int:
        """Append the values that follow the bitmap; return their end."""
        start, prefix = p, 0
        for unpack, size, prefix in self._runs.get(nulls) or self._new_runs(nulls):
            if size:
                values += unpack(data, p)
                p += size
            if prefix:
                start = p + prefix
                p = start + (data[p] if prefix == 1 else int.from_bytes(data[p:start], "little"))
                values.append(data[start:p])
        if p > len(data):
            if start > len(data):
                raise IndexError(f"a value begins {start - len(data)} bytes after its event")
            raise SchemaError(
                "a row image does not match the table's columns",
                hint=_RESTART_FULL,
                bytes_read=p,
                bytes_present=len(data),
            )
        return p

    def _new_runs(self, nulls: int) -> list[_Run]:
        if len(self._runs) >= MOST_PATTERNS:
            self._runs.clear()
        layout = [each for i, each in enumerate(self._layout) if not nulls >> i & 1]
        found = self._runs[nulls] = _runs(layout)
        return found

    def encoder(self, op: Op) -> RowsEncoder:
        frame, read, write, raw_key = self._frame, self._image_values, self._images.write, self._images.raw_key
        before = frame.before_insert if op is Op.CREATE else frame.before_update
        between = {Op.UPDATE: frame.between_rows, Op.DELETE: frame.after_delete}.get(op, b"")
        pairs, deletes = op is Op.UPDATE, op is Op.DELETE
        tombstones, skips = deletes and self._tombstones, pairs and self._skip_unchanged
        changes = self._changes

        def encode(data: bytes, start: int, end: int, envelope: EventEnvelope, *, keys: bool = False) -> EventRows:
            records: list[tuple[bytes, bytes | None] | KeyChange] = []
            raw_keys: list[tuple[KeyTuple | None, KeyTuple | None]] = []
            row_index: list[int] = []
            head, tail = frame.event(envelope, op)
            # Bytes beyond the images must not be readable.
            event = data if not start and end == len(data) else data[start:end]
            p, size, first_row = 0, len(event), envelope.first_row
            number = first_row - 1
            try:
                while p < size:
                    number += 1
                    values, nulls, p = read(event, p)
                    row, key = write(values, nulls)
                    if not pairs:
                        row_number = frame.row_number(number)
                        records.append((key, b"".join((before, row, between, head, row_number, tail))))
                        if tombstones:
                            records.append((key, None))
                        if keys:
                            raw = raw_key(values, nulls)
                            raw_keys.append((raw, None) if deletes else (None, raw))
                            row_index += [number - first_row] * (1 + tombstones)
                        continue
                    new_values, new_nulls, p = read(event, p)
                    new_row, new_key = write(new_values, new_nulls)
                    images = (values, nulls), (new_values, new_nulls)
                    if keys:
                        raw_keys.append((raw_key(*images[0]), raw_key(*images[1])))
                    if skips and self._are_equal(images, (row, new_row)):
                        continue
                    if keys:
                        row_index.append(number - first_row)
                    if key == new_key:
                        row_number = frame.row_number(number)
                        records.append((key, b"".join((before, row, between, new_row, head, row_number, tail))))
                    else:
                        plain = self._plain_keys(images, (key, new_key))
                        records.append(changes.record((row, new_row), (key, new_key), plain, envelope, number))
            except DECODE_ERRORS as error:
                raise decode_error(error) from error
            return EventRows(records, row_index, raw_keys, number + 1 - first_row)

        return encode

    def key_change(
        self, rows: Pair, keys: Pair, envelope: EventEnvelope, row: int, images: tuple[bytes, int, int, int]
    ) -> KeyChange:
        """Return the record of a changed key; ``images``: the event, the offsets of both images and of their end."""
        plain = keys
        if self._plain is not None:
            event, first, second, end = images
            old, new = self._image_values(event[first:second], 0), self._image_values(event[second:end], 0)
            plain = self._plain_keys((old[:2], new[:2]), keys)
        return self._changes.record(rows, keys, plain, envelope, row)

    def _plain_keys(self, images: tuple[_Image, _Image], keys: Pair) -> Pair:
        if self._plain is None:
            return keys
        old, new = (self._plain.write(*image) for image in images)
        return old[1], new[1]

    def _are_equal(self, images: tuple[_Image, _Image], rows: Pair) -> bool:
        """Return whether the rows are equal in JSON: a NULL that is written as a default differs from the default."""
        if self._plain is None:
            return rows[0] == rows[1]
        old, new = (self._plain.write(*image) for image in images)
        return old[0] == new[0]

    def key_reader(self, op: Op) -> KeyReader:
        pairs, deletes, raw_key = op is Op.UPDATE, op is Op.DELETE, self._images.raw_key

        def read(data: bytes, start: int, end: int) -> RowKeys | None:
            event, p, keys = data[start:end], 0, []
            try:
                while p < len(event):
                    values, nulls, p = self._image_values(event, p)
                    keys.append(raw_key(values, nulls))
            except (*DECODE_ERRORS, TailraceError):
                return None  # the encoder raises the error
            if pairs:
                return list(zip(keys[::2], keys[1::2], strict=True)) if not len(keys) % 2 else None
            return [(key, None) if deletes else (None, key) for key in keys]

        return read


def _runs(layout: Sequence[tuple[int, int]]) -> list[_Run]:
    """Return how values of these widths and prefixes are read."""
    runs: list[_Run] = []
    codes = ""
    for width, prefix in (*layout, (0, 0)):
        if width:
            codes += f"{width}s"
            continue
        of_codes = struct.Struct(codes)
        runs.append((of_codes.unpack_from, of_codes.size, prefix))
        codes = ""
    return runs


def _long_size(data: bytes, p: int) -> tuple[int, int]:
    """Return the start and the size of a value whose length has more than one byte."""
    width = _LONG.get(data[p])
    if width is None:
        raise SchemaError("a column declared NOT NULL is NULL", hint=_RESTART, offset=p)
    start = p + 1 + width
    return start, int.from_bytes(data[p + 1 : start], "little")


def _big_row(data: bytes, p: int, end: int) -> tuple[bytes | None, int]:
    """Return the payload of a row in several packets, whose first header is at ``p``, and the offset after it.

    The payload is None if the buffer does not contain the whole row.
    """
    parts = []
    while end - p >= HEADER:
        start = p + HEADER
        size = int.from_bytes(data[p : p + 3], "little")
        p = start + size
        if p > end:
            break
        parts.append(data[start:p])
        if size < WHOLE_PACKET:
            return b"".join(parts), p
    return None, p


def _raise_server_error(packet: bytes) -> NoReturn:
    """Raise the error of an ERR packet: code, SQL state after '#', text."""
    text = packet[3:].decode("utf-8", "replace")
    code = int.from_bytes(packet[1:3], "little")
    state, text = (text[1:6], text[6:]) if text.startswith("#") else ("", text)
    kind = SourceUnavailableError if code in _RETRIABLE_ERRORS else SourceError
    raise kind(f"the server ended a query: {text}", code=code, sqlstate=state)


def decode_error(error: Exception) -> SchemaError:
    return SchemaError(
        "a row does not match the table's columns",
        hint=_RESTART_FULL,
        cause=f"{type(error).__name__}: {error}",
    )
