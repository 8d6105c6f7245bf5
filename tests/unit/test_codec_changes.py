"""Records of updates and deletes: tombstones, changed keys, row indexes, raw keys, checksums."""

from __future__ import annotations

import struct
from decimal import Decimal
from zlib import crc32

import pytest

from tailrace.producer.errors import SourceError
from tailrace.producer.model.codec import EventEnvelope, KeyChange, KeyValue, SnapshotEnvelope
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.runtime.errors import SchemaError
from tests.support.values import DEFAULT_CODEC, value_options

ENVELOPE = EventEnvelope(b',"source":{"row":', b',"thread":1},"op":"', b'","ts_ms":1}')
ID = Column("id", "int", nullable=False)
NAME = Column("name", "varchar", length=40, charset="utf8mb4")
TABLE = Table(TableId("shop", "customers"), (ID, NAME), ("id",))


def image(number: int, name: str | None) -> bytes:
    """Return the row image of (id, name)."""
    if name is None:
        return b"\x02" + struct.pack("<i", number)
    raw = name.encode()
    return b"\x00" + struct.pack("<i", number) + bytes([len(raw)]) + raw


def test_delete_is_followed_by_tombstone() -> None:
    """Same key, null value, same row index."""
    event = image(1, "a") + image(2, None)

    rows = TableCodec(TABLE, "t", DEFAULT_CODEC).deletes(event, 0, len(event), ENVELOPE, keys=True)

    assert rows.records == [
        (b'{"id":1}', b'{"before":{"id":1,"name":"a"},"after":null,"source":{"row":0,"thread":1},"op":"d","ts_ms":1}'),
        (b'{"id":1}', None),
        (b'{"id":2}', b'{"before":{"id":2,"name":null},"after":null,"source":{"row":1,"thread":1},"op":"d","ts_ms":1}'),
        (b'{"id":2}', None),
    ]
    assert list(rows.row_index) == [0, 0, 1, 1]
    assert rows.keys == [((1,), None), ((2,), None)]


def test_tombstones_can_be_disabled() -> None:
    """tombstones.on.delete=false."""
    event = image(1, "a") + image(2, None)

    rows = TableCodec(TABLE, "t", CodecOptions(value_options(), tombstones=False)).deletes(
        event, 0, len(event), ENVELOPE, keys=True
    )

    assert [record[0] for record in rows.records] == [b'{"id":1}', b'{"id":2}']
    assert list(rows.row_index) == [0, 1]


def test_update_keeps_or_changes_its_key() -> None:
    """An unchanged key gives one record; a changed key gives a delete and a create with the same row number."""
    event = image(1, "a") + image(1, "b") + image(2, "c") + image(3, "c")

    rows = TableCodec(TABLE, "t", DEFAULT_CODEC).updates(
        event, 0, len(event), ENVELOPE._replace(first_row=7), keys=True
    )

    assert rows.records == [
        (
            b'{"id":1}',
            b'{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},"source":{"row":7,"thread":1},"op":"u","ts_ms":1}',
        ),
        KeyChange(
            old_key=b'{"id":2}',
            new_key=b'{"id":3}',
            delete=b'{"before":{"id":2,"name":"c"},"after":null,"source":{"row":8,"thread":1},"op":"d","ts_ms":1}',
            create=b'{"before":null,"after":{"id":3,"name":"c"},"source":{"row":8,"thread":1},"op":"c","ts_ms":1}',
            new_key_header=b'{"id":3}',
            old_key_header=b'{"id":2}',
        ),
    ]
    assert list(rows.row_index) == [0, 1]
    assert rows.keys == [((1,), (1,)), ((2,), (3,))]


def test_raw_keys_and_row_indexes_are_optional() -> None:
    """Streaming does not need them."""
    event = image(1, "a")
    rows = TableCodec(TABLE, "t", DEFAULT_CODEC).inserts(event, 0, len(event), ENVELOPE)

    assert rows.records == [
        (b'{"id":1}', b'{"before":null,"after":{"id":1,"name":"a"},"source":{"row":0,"thread":1},"op":"c","ts_ms":1}')
    ]
    assert (list(rows.row_index), list(rows.keys)) == ([], [])


RAW_KEYS: tuple[tuple[Column, bytes, KeyValue], ...] = (
    (Column("k", "tinyint", unsigned=True), b"\xff", 255),
    (Column("k", "mediumint"), b"\xff\xff\xff", -1),
    (Column("k", "bigint", unsigned=True), b"\xff" * 8, 2**64 - 1),
    (Column("k", "decimal", precision=5, scale=2), b"\x80\x01\x32", Decimal("1.50")),
    (Column("k", "decimal", precision=5, scale=2), b"\x7f\xfe\xcd", Decimal("-1.50")),
    (Column("k", "float"), struct.pack("<f", 1.5), 1.5),
    (Column("k", "double"), struct.pack("<d", -0.1), -0.1),
    (Column("k", "year"), b"\x7c", 2024),
    (Column("k", "year"), b"\x00", 0),
    (Column("k", "bit", length=9), b"\x01\x02", 258),
    (Column("k", "enum", enum_values=("a", "b"), charset="utf8mb4"), b"\x02", 2),
    (Column("k", "set", enum_values=("a", "b"), charset="utf8mb4"), b"\x03", 3),
    (Column("k", "varchar", length=20, charset="latin1"), b"\x01\xe9", b"\xe9"),
    (Column("k", "binary", length=3, charset="binary"), b"\x01\x61", b"a\0\0"),
    (Column("k", "date"), (2024 << 9 | 1 << 5 | 2).to_bytes(3, "little"), "2024-01-02"),
    (Column("k", "date"), bytes(3), "0000-00-00"),
    (Column("k", "timestamp"), (86_401).to_bytes(4, "big"), "1970-01-02 00:00:01"),
    (Column("k", "timestamp", fsp=3), (86_401).to_bytes(4, "big") + b"\x00\x32", "1970-01-02 00:00:01.005"),
    (Column("k", "timestamp", fsp=1), bytes(5), "0000-00-00 00:00:00.0"),
    (
        Column("k", "datetime", fsp=6),
        ((((2024 * 13 + 1) << 5 | 2) << 17 | 3 << 12 | 4 << 6 | 5) + (1 << 39)).to_bytes(5, "big") + b"\x00\x00\x06",
        "2024-01-02 03:04:05.000006",
    ),
    (Column("k", "time", fsp=2), (0x80000000 - 50).to_bytes(4, "big"), -500_000),
)


@pytest.mark.parametrize(("column", "raw", "expected"), RAW_KEYS)
def test_raw_keys_have_the_documented_type(column: Column, raw: bytes, expected: KeyValue) -> None:
    """For a value, and for NULL in a nullable key."""
    options = CodecOptions(value_options(conversion_failures="warn"))
    codec = TableCodec(Table(TableId("d", "t"), (ID, column), ("k", "id")), "t", options)
    event = b"\x00" + struct.pack("<i", 5) + raw + (b"\x02" + struct.pack("<i", 6)) * 20

    keys = codec.inserts(event, 0, len(event), ENVELOPE, keys=True).keys

    assert keys[0] == (None, (expected, 5))
    found = keys[0][1]
    assert found is not None
    assert type(found[0]) is type(expected)
    assert set(keys[1:]) == {(None, (None, 6))}


HEADERS = (
    (Column("k", "decimal", precision=6, scale=2), b"\x80\x01\x32", b'{"k":1.50}', value_options()),
    (Column("k", "decimal", precision=9, scale=9), b"\x80\x00\x00\x01", b'{"k":1E-9}', value_options()),
    (Column("k", "varchar", length=9, charset="utf8mb4"), b'\x04"\\\n\x01', b'{"k":"\\"\\\\\n\x01"}', value_options()),
    (
        Column("k", "date"),
        (2020 << 9 | 2 << 5 | 29).to_bytes(3, "little"),
        b'{"k":2020-02-29}',
        value_options(time_precision_mode="connect"),
    ),
    (
        Column("k", "time", fsp=3),
        ((1 << 12 | 2 << 6 | 3) + 0x800000).to_bytes(3, "big") + b"\x00\x28",
        b'{"k":01:02:03.004Z}',
        value_options(time_precision_mode="connect"),
    ),
    (Column("k", "double"), struct.pack("<d", 1e21), b'{"k":1.0E21}', value_options()),
)


@pytest.mark.parametrize(("column", "raw", "expected", "settings"), HEADERS)
def test_headers_of_changed_key_are_printed_as_in_connect(
    column: Column, raw: bytes, expected: bytes, settings: ValueOptions
) -> None:
    """Decimals and Connect's temporal types are not quoted; strings have the two escapes of SimpleHeaderConverter."""
    codec = TableCodec(Table(TableId("d", "t"), (column,), ("k",)), "t", CodecOptions(settings))
    event = b"\x01" + b"\x00" + raw

    (change,) = codec.updates(event, 0, len(event), ENVELOPE).records

    assert isinstance(change, KeyChange)
    assert change.new_key_header == expected
    assert change.old_key_header == b'{"k":null}'


def test_checksum_is_sum_over_rows() -> None:
    """CRC-32 of each ``after``, independent of the order and of the envelope."""
    codec = TableCodec(TABLE, "t", DEFAULT_CODEC)
    packets = b"\x04\x00\x00\x00\x011\x01a" + b"\x03\x00\x00\x01\x012\xfb" + b"\x05\x00\x00\x02\xfe\x00\x00\x02\x00"

    rows = codec.snapshot(packets, 0, len(packets), SnapshotEnvelope(b"}"))

    assert rows.checksum == crc32(b'{"id":1,"name":"a"}') + crc32(b'{"id":2,"name":null}')
    assert (rows.consumed, rows.finished) == (len(packets), True)


def test_err_packet_is_source_error() -> None:
    """The error has the code and the text of the server."""
    codec = TableCodec(TABLE, "t", DEFAULT_CODEC)
    packet = b"\xff\x15\x04#42000Query was bad"
    data = b"\x04\x00\x00\x00\x011\x01a" + len(packet).to_bytes(3, "little") + b"\x01" + packet

    with pytest.raises(SourceError, match="Query was bad") as caught:
        codec.snapshot(data, 0, len(data), SnapshotEnvelope(b"}"))

    assert caught.value.context == {"code": 1045, "sqlstate": "42000"}


@pytest.mark.parametrize("packet", [b"\x011\x02a", b"\x011\x01ab", b"\x011", b"\x01x\x01a\x00", b"\xfb\x01a"])
def test_malformed_row_is_schema_error(packet: bytes) -> None:
    """Too long, too short, a column too few or too many, NULL in a NOT NULL column."""
    codec = TableCodec(TABLE, "t", DEFAULT_CODEC)
    data = len(packet).to_bytes(3, "little") + b"\x00" + packet + bytes(20)

    with pytest.raises(SchemaError, match="hint: restart the producer to read the table's definition again"):
        codec.snapshot(data, 0, len(data), SnapshotEnvelope(b"}"))


def test_unknown_enum_ordinal_is_schema_error() -> None:
    """The row belongs to another definition."""
    column = Column("e", "enum", enum_values=("a",), charset="utf8mb4")
    codec = TableCodec(Table(TableId("d", "t"), (ID, column), ("id",)), "t", DEFAULT_CODEC)
    event = b"\x00" + struct.pack("<i", 5) + b"\x02"

    with pytest.raises(SchemaError, match="definition again; binlog_row_image must be FULL"):
        codec.inserts(event, 0, len(event), ENVELOPE)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column("g", "interval"), "not supported.*exclude the table with table.exclude.list, or convert"),
        (Column("t", "text", charset="utf8mb4"), "size.*hint: set Column.length to 255, 65535, 16777215 or 4294967295"),
        (Column("t", "varchar", length=9, charset="cp037"), "decoder.*hint: convert the column to utf8mb4, or excl"),
    ],
)
def test_unsupported_column_is_rejected_at_compilation(column: Column, message: str) -> None:
    """No row is read before."""
    with pytest.raises(SchemaError, match=f"(?s){message}"):
        TableCodec(Table(TableId("d", "t"), (ID, column), ("id",)), "t", DEFAULT_CODEC)
