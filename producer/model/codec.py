"""Values between the codec and its callers: what encloses the rows of an event or a split, and the encoded rows.

A row read by SELECT and the same row read from the binlog give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple, Protocol

from tailrace.schemas.table import TableSchema

KeyValue = int | bytes | str | Decimal | float | None
"""A raw key column value that selects the split of a row; the same type from SELECT and binlog. int: integers, year,
bit, enum ordinal, set mask. Decimal: decimal. float: float and double. bytes: binary types and text types, text in the
column's own character set. str: date, datetime, timestamp as ISO text that sorts ('2024-01-02 03:04:05.000006').
TIME: int microseconds, signed."""

KeyTuple = tuple[KeyValue, ...]

InsertTransactionBlock = Callable[[bytes, int, int], bytes]
"""``(envelope, total_order, data_collection_order)`` -> the envelope with its transaction block."""


class KeyChange(NamedTuple):
    """An update that changes the key of a row: a delete of the old key, a tombstone, an insert of the new key.

    ``delete`` and ``create`` are whole envelopes. The header ``__debezium.newkey`` (= ``new_key_header``) goes on the
    first two, ``__debezium.oldkey`` (= ``old_key_header``) on the third; both are the key struct as Connect's
    SimpleHeaderConverter prints it.
    """

    old_key: bytes
    new_key: bytes
    delete: bytes
    create: bytes
    new_key_header: bytes
    old_key_header: bytes


class SnapshotEnvelope(NamedTuple):
    """The part of the envelope that all rows of one split share."""

    suffix: bytes
    """JSON that follows the ``after`` object: ``,"source":{…},"transaction":null,"op":"r",…}``."""


class EventEnvelope(NamedTuple):
    """The parts of the envelope that all rows of one rows event share, as JSON.

    An envelope is ``{"before":B,"after":A`` + ``before_row`` + row number + ``before_op`` + op + ``after_op``.
    """

    before_row: bytes
    """Ends with ``"row":``."""
    before_op: bytes
    """Ends with ``"op":"``."""
    after_op: bytes
    """Starts with the closing quote of op."""
    first_row: int = 0
    """Index of the first encoded row in its event."""


class SnapshotRows(NamedTuple):
    """Rows encoded from a part of a text protocol result set."""

    records: Sequence[tuple[bytes, bytes]]
    """(key, value) in result-set order."""
    checksum: int
    """Sum of zlib.crc32 of each ``after`` value."""
    consumed: int
    """Offset in the buffer of the first byte not consumed: an incomplete packet, or data after the result set."""
    finished: bool
    """The final packet of the result set (EOF, or OK with the EOF header) was consumed."""


class EventRows(NamedTuple):
    """Rows encoded from one rows event, in order."""

    records: Sequence[tuple[bytes, bytes | None] | KeyChange]
    """(key, value) for inserts and updates; a delete is (key, value) and, with tombstones, (key, None) after it."""
    row_index: Sequence[int]
    """For each record, the index of its row in the event; empty unless keys were requested."""
    keys: RowKeys
    """Empty unless keys were requested."""
    row_count: int = 0
    """Number of rows in the event."""

    def skip_rows(self, count: int, *, repeat_key_change: bool = False) -> EventRows:
        """Return the event without the records of its first ``count`` rows; the keys must have been requested.

        With ``repeat_key_change`` the last one of them stays if its key changes: a part of its records may be missing.
        """
        if repeat_key_change and any(
            index == count - 1 and isinstance(record, KeyChange)
            for record, index in zip(self.records, self.row_index, strict=True)
        ):
            count -= 1
        if not count:
            return self
        kept = [
            (record, index - count)
            for record, index in zip(self.records, self.row_index, strict=True)
            if index >= count
        ]
        records, row_index = [record for record, _ in kept], [index for _, index in kept]
        return EventRows(records, row_index, self.keys[count:], self.row_count)


class SnapshotEncoder(Protocol):
    """Encodes the result of a SELECT of one table version."""

    @property
    def schema(self) -> TableSchema:
        """The published columns."""

    @property
    def select_list(self) -> str:
        """The SELECT list, in the language of the source."""

    def snapshot(
        self, buffer: bytes | bytearray | memoryview, start: int, end: int, envelope: SnapshotEnvelope
    ) -> SnapshotRows:
        """Encode the complete rows in ``buffer[start:end]``."""


class RowsEncoder(Protocol):
    """Encodes the row images of one rows event."""

    def __call__(self, data: bytes, start: int, end: int, envelope: EventEnvelope, *, keys: bool = False) -> EventRows:
        """Encode the row images in ``data[start:end]``; ``keys`` requests raw keys and row indexes.

        Raises SchemaError if the images do not match the columns of the table.
        """


RowsEncoders = Mapping[str, RowsEncoder]
"""The encoders of one table version by ``Op``: CREATE, UPDATE (pairs of images) and DELETE."""

RowKeys = Sequence[tuple[KeyTuple | None, KeyTuple | None]]
"""(before, after) raw key per row of an event: None before an insert and after a delete."""

KeyReader = Callable[[bytes, int, int], RowKeys | None]
"""Returns the raw keys of the row images in ``data[start:end]``; None: ``RowsEncoder`` raises the error.

A value outside the key that cannot be written is no error: the change may be one that is skipped."""

KeyReaders = Mapping[str, KeyReader]
"""The key readers of one table version by ``Op``, as ``RowsEncoders``."""
