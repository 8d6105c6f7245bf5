"""What the codec makes of updates and deletes: tombstones, changed keys, owners and raw keys, checksums."""

from __future__ import annotations

import struct
from decimal import Decimal
from zlib import crc32

import pytest

from tailrace.producer.model.codec import EventEnvelope, KeyChange, KeyValue, SnapshotEnvelope
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.serialization.json_codec import compile_table
from tailrace.runtime.errors import SchemaError, SourceError
from tests.support.values import value_options

STAMP = EventEnvelope(b',"source":{"row":', b',"thread":1},"op":"', b'","ts_ms":1}')
ID = Column("id", "int", nullable=False)
NAME = Column("name", "varchar", length=40, charset="utf8mb4")
TABLE = Table(TableId("shop", "customers"), (ID, NAME), ("id",))


def image(number: int, name: str | None) -> bytes:
    """Return the row image of (id, name)."""
    if name is None:
        return b"\x02" + struct.pack("<i", number)
    raw = name.encode()
    return b"\x00" + struct.pack("<i", number) + bytes([len(raw)]) + raw


def test_a_delete_is_followed_by_a_tombstone() -> None:
    """Same key, null value; both belong to the same row."""
    event = image(1, "a") + image(2, None)

    rows = compile_table(TABLE, "t", value_options()).deletes(event, 0, len(event), STAMP, keys=True)

    assert rows.records == [
        (b'{"id":1}', b'{"before":{"id":1,"name":"a"},"after":null,"source":{"row":0,"thread":1},"op":"d","ts_ms":1}'),
        (b'{"id":1}', None),
        (b'{"id":2}', b'{"before":{"id":2,"name":null},"after":null,"source":{"row":1,"thread":1},"op":"d","ts_ms":1}'),
        (b'{"id":2}', None),
    ]
    assert list(rows.row_index) == [0, 0, 1, 1]
    assert rows.keys == [((1,), None), ((2,), None)]


def test_tombstones_can_be_off() -> None:
    """tombstones.on.delete=false."""
    event = image(1, "a") + image(2, None)

    rows = compile_table(TABLE, "t", value_options(), tombstones=False).deletes(event, 0, len(event), STAMP, keys=True)

    assert [record[0] for record in rows.records] == [b'{"id":1}', b'{"id":2}']
    assert list(rows.row_index) == [0, 1]


def test_an_update_keeps_its_key_or_changes_it() -> None:
    """The same key is one record; another key is a delete and a create with the same row number."""
    event = image(1, "a") + image(1, "b") + image(2, "c") + image(3, "c")

    rows = compile_table(TABLE, "t", value_options()).updates(
        event, 0, len(event), STAMP._replace(first_row=7), keys=True
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


def test_without_asking_there_are_no_keys_and_owners() -> None:
    """The common case pays nothing for them."""
    event = image(1, "a")
    rows = compile_table(TABLE, "t", value_options()).inserts(event, 0, len(event), STAMP)

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
def test_raw_keys_have_the_type_that_routing_expects(column: Column, raw: bytes, expected: KeyValue) -> None:
    """As a value, and as NULL in a key that allows it."""
    codec = compile_table(Table(TableId("d", "t"), (ID, column), ("k", "id")), "t", value_options())
    event = b"\x00" + struct.pack("<i", 5) + raw + (b"\x02" + struct.pack("<i", 6)) * 20

    keys = codec.inserts(event, 0, len(event), STAMP, keys=True).keys

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
def test_headers_of_a_changed_key_are_printed_as_connect_prints_headers(
    column: Column, raw: bytes, expected: bytes, settings: ValueOptions
) -> None:
    """Decimals and Connect's temporals bare, strings with the two escapes of that converter."""
    codec = compile_table(Table(TableId("d", "t"), (column,), ("k",)), "t", settings)
    event = b"\x01" + b"\x00" + raw

    (change,) = codec.updates(event, 0, len(event), STAMP).records

    assert isinstance(change, KeyChange)
    assert change.new_key_header == expected
    assert change.old_key_header == b'{"k":null}'


def test_the_checksum_is_the_sum_of_the_rows() -> None:
    """CRC-32 of each ``after``, whatever the order and the stamp."""
    codec = compile_table(TABLE, "t", value_options())
    packets = b"\x04\x00\x00\x00\x011\x01a" + b"\x03\x00\x00\x01\x012\xfb" + b"\x05\x00\x00\x02\xfe\x00\x00\x02\x00"

    rows = codec.snapshot(packets, 0, len(packets), SnapshotEnvelope(b"}"))

    assert rows.checksum == crc32(b'{"id":1,"name":"a"}') + crc32(b'{"id":2,"name":null}')
    assert (rows.consumed, rows.finished) == (len(packets), True)


def test_an_err_packet_is_a_source_error() -> None:
    """With the code and the text of the server."""
    codec = compile_table(TABLE, "t", value_options())
    packet = b"\xff\x15\x04#42000Query was bad"
    data = b"\x04\x00\x00\x00\x011\x01a" + len(packet).to_bytes(3, "little") + b"\x01" + packet

    with pytest.raises(SourceError, match="Query was bad") as caught:
        codec.snapshot(data, 0, len(data), SnapshotEnvelope(b"}"))

    assert caught.value.facts == {"code": 1045, "sqlstate": "42000"}


@pytest.mark.parametrize("packet", [b"\x011\x02a", b"\x011\x01ab", b"\x011", b"\x01x\x01a\x00", b"\xfb\x01a"])
def test_a_malformed_row_is_a_schema_error(packet: bytes) -> None:
    """Too long, too short, a column too few or too many, NULL where it cannot be."""
    codec = compile_table(TABLE, "t", value_options())
    data = len(packet).to_bytes(3, "little") + b"\x00" + packet + bytes(20)

    with pytest.raises(SchemaError):
        codec.snapshot(data, 0, len(data), SnapshotEnvelope(b"}"))


def test_an_enum_ordinal_beyond_the_labels_is_a_schema_error() -> None:
    """The definition is not the row's."""
    column = Column("e", "enum", enum_values=("a",), charset="utf8mb4")
    codec = compile_table(Table(TableId("d", "t"), (ID, column), ("id",)), "t", value_options())
    event = b"\x00" + struct.pack("<i", 5) + b"\x02"

    with pytest.raises(SchemaError):
        codec.inserts(event, 0, len(event), STAMP)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Column("g", "inet6"), "not supported"),
        (Column("t", "text", charset="utf8mb4"), "size"),
        (Column("t", "varchar", length=9, charset="cp037"), "decoder"),
    ],
)
def test_a_column_that_cannot_be_decoded_is_refused_when_compiled(column: Column, words: str) -> None:
    """Before a single row is read."""
    with pytest.raises(SchemaError, match=words):
        compile_table(Table(TableId("d", "t"), (ID, column), ("id",)), "t", value_options())
