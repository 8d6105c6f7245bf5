"""The narrow interface of the hot path: bytes of a row in, bytes of an envelope out, compiled per table version.

Everything around it sees only these types, so that a natively compiled twin can replace the generated Python.
The law: a row read by SELECT and the same row read from the binlog give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import NamedTuple, Protocol

from tailrace.schemas.table import TableSchema

KeyValue = int | bytes | str | Decimal | float | None
"""A raw key column value for routing to a split, the same type from SELECT and binlog. int: integers, year, bit,
enum ordinal, set mask. Decimal: decimal. float: float and double. bytes: binary kinds and text kinds, text in the
column's own character set. str: date, datetime, timestamp as ISO text that sorts ('2024-01-02 03:04:05.000006').
TIME: int microseconds, signed."""

KeyTuple = tuple[KeyValue, ...]


PutBlock = Callable[[bytes, int, int], bytes]
"""Takes an envelope, its number in the transaction and its number there among its table's; returns it with both."""


class Record(NamedTuple):
    """One Kafka record of a row change; ``value`` None is a tombstone."""

    key: bytes
    value: bytes | None


class KeyChange(NamedTuple):
    """An update that moved a row to another key: a delete of the old key, a tombstone, an insert of the new one.

    ``delete`` and ``create`` are whole envelopes. Header ``__debezium.newkey`` (= ``new_key_header``) goes on the first
    two, ``__debezium.oldkey`` (= ``old_key_header``) on the third; both are the key struct as Connect's
    SimpleHeaderConverter prints it.
    """

    old_key: bytes
    new_key: bytes
    delete: bytes
    create: bytes
    new_key_header: bytes
    old_key_header: bytes


class SnapshotEnvelope(NamedTuple):
    """What is equal for all rows of one split: everything of the envelope but ``after``."""

    suffix: bytes
    """JSON that follows the ``after`` object: ``,"source":{…},"transaction":null,"op":"r",…}``."""


class EventEnvelope(NamedTuple):
    """What is equal for all rows of one rows event.

    A value is: ``{"before":B,"after":A`` + ``head`` + row number + ``tail`` with op spliced in:
    ``head`` ends with ``"row":``, ``middle`` runs from there to ``"op":"`` inclusive, ``tail`` from the closing quote
    of op to the end.
    """

    head: bytes
    middle: bytes
    tail: bytes
    first_row: int = 0
    """Index of the first row of this slice in its event."""


class SnapshotRows(NamedTuple):
    """Rows encoded from a stretch of the text protocol's result set."""

    records: list[tuple[bytes, bytes]]
    """(key, value) in result-set order."""
    checksum: int
    """Sum of zlib.crc32 of each ``after`` JSON object."""
    consumed: int
    """Offset in the buffer of the first byte not consumed (a packet that is not whole yet, or what follows the end)."""
    finished: bool
    """The result set's closing packet (EOF, or OK with the EOF header) was consumed."""


class EventRows(NamedTuple):
    """Rows encoded from one rows event, in order."""

    records: list[tuple[bytes, bytes | None] | KeyChange]
    """(key, value) for inserts and updates; a delete is (key, value) and, with tombstones, (key, None) after it."""
    row_index: Sequence[int]
    """For each record, the index of its row in the event; only filled when keys were asked for, else empty."""
    keys: Sequence[tuple[KeyTuple | None, KeyTuple | None]]
    """(before, after) raw key per row; only filled when asked for, else empty."""


class TableCodec(Protocol):
    """One table version, compiled."""

    @property
    def schema(self) -> TableSchema:
        """What is published for readers of the topic."""

    @property
    def select_list(self) -> str:
        """SQL select list that yields the columns in table order in the form ``snapshot`` expects."""

    def snapshot(
        self, buffer: bytes | bytearray | memoryview, start: int, end: int, stamp: SnapshotEnvelope
    ) -> SnapshotRows:
        """Encode the whole row packets in ``buffer[start:end]`` (MySQL packets with their 4-byte headers).

        Raises SourceError with the server's code and text when an ERR packet is met, SchemaError on a malformed row.
        """

    def inserts(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """Encode the row images of a WRITE_ROWS event in ``data[start:end]``."""

    def updates(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """Encode the pairs of row images of an UPDATE_ROWS event."""

    def deletes(self, data: bytes, start: int, end: int, stamp: EventEnvelope, *, keys: bool = False) -> EventRows:
        """Encode the row images of a DELETE_ROWS event."""

    def numbering(self, stamp: EventEnvelope, gtid: str) -> PutBlock:
        """Return what puts the transaction block into the envelopes of the rows event that ``stamp`` is of."""
