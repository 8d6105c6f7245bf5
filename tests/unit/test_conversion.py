"""Values that have no exact form: both sources stop at them, or write what Debezium writes and count it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from tailrace.producer.model.codec import EventEnvelope, SnapshotEnvelope
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.conversion import ConversionFailures
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.runtime.errors import SchemaError
from tests.support.values import value_options

CONNECT = value_options(time_precision_mode="connect", decimal_handling_mode="double")
ISO = value_options(time_precision_mode="isostring")
NANOS = value_options(time_precision_mode="nanoseconds")
PLAIN = value_options()
TABLE = TableId("shop", "orders")
ENVELOPE = EventEnvelope(b',"source":{"row":', b'},"op":"', b'"}')


def _date(year: int, month: int, day: int) -> bytes:
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def _datetime(year: int, month: int, day: int, fraction: bytes = b"") -> bytes:
    return (((year * 13 + month) << 5 | day) << 17 | 1 << 39).to_bytes(5, "big") + fraction


def _time(micros: int) -> bytes:
    """Return TIME(6)."""
    seconds, fraction = divmod(abs(micros), 1_000_000)
    packed = (seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60) << 24 | fraction
    return (packed * (-1 if micros < 0 else 1) + (1 << 47)).to_bytes(6, "big")


Source = Callable[[TableCodec, "Case"], tuple[bytes, bytes]]


class Case(NamedTuple):
    """A value in both sources, and what Debezium writes in a nullable and in a NOT NULL column (None: it stops)."""

    column: Column
    options: ValueOptions
    text: str
    image: bytes
    nullable: str
    not_null: str | None


_DATE, _DATETIME, _DATETIME6, _TIME6 = (
    Column("v", "date"),
    Column("v", "datetime"),
    Column("v", "datetime", fsp=6),
    Column("v", "time", fsp=6),
)
ANYWHERE = (
    Case(_TIME6, CONNECT, "-01:00:00.000000", _time(-3_600_000_000), "null", None),
    Case(_TIME6, CONNECT, "101:00:00.000000", _time(101 * 3_600_000_000), "null", None),
    Case(_TIME6, ISO, "-00:00:00.000001", _time(-1), "null", None),
    Case(_TIME6, ISO, "24:00:00.000000", _time(86_400_000_000), '"00:00:00Z"', '"00:00:00Z"'),
    Case(_DATETIME, NANOS, "9999-12-31 00:00:00", _datetime(9999, 12, 31), "null", None),
    Case(_DATETIME, NANOS, "1000-01-01 00:00:00", _datetime(1000, 1, 1), "null", None),
    Case(_DATETIME, PLAIN, "2021-11-31 00:00:00", _datetime(2021, 11, 31), "null", None),
    Case(_DATETIME6, ISO, "2021-11-31 00:00:00.000001", _datetime(2021, 11, 31, b"\0\0\1"), "null", None),
    Case(_DATE, PLAIN, "2020-02-30", _date(2020, 2, 30), "null", None),
    Case(_DATE, ISO, "2021-02-29", _date(2021, 2, 29), "null", None),
)
"""Inexact in rows and keys."""
IN_KEYS = (
    Case(_DATE, PLAIN, "0000-00-00", _date(0, 0, 0), "null", "0"),
    Case(_DATE, ISO, "2010-00-01", _date(2010, 0, 1), "null", '"1970-01-01Z"'),
    Case(_DATE, PLAIN, "0018-04-01", _date(18, 4, 1), "17622", "17622"),
    Case(_DATETIME, PLAIN, "0000-00-00 00:00:00", _datetime(0, 0, 0), "null", "0"),
    Case(_DATETIME, PLAIN, "0099-12-31 00:00:00", _datetime(99, 12, 31), "946598400000", "946598400000"),
    Case(_DATETIME6, CONNECT, "1970-01-01 00:00:00.001002", _datetime(1970, 1, 1, b"\0\3\xea"), "1", "1"),
    Case(_TIME6, CONNECT, "00:00:00.001002", _time(1002), "1", "1"),
    Case(Column("v", "timestamp"), PLAIN, "0000-00-00 00:00:00", bytes(4), "null", '"1970-01-01T00:00:00Z"'),
    Case(
        Column("v", "decimal", precision=18, scale=0),
        CONNECT,
        "123456789012345679",
        (123456789 << 32 | 12345679 | 1 << 63).to_bytes(8, "big"),
        "1.2345678901234568E17",
        "1.2345678901234568E17",
    ),
)
"""Inexact in keys only."""


def _rows(case: Case, *, nullable: bool, in_key: bool, warn: bool) -> tuple[list[str], ConversionFailures]:
    """Return the JSON of the value from a result set and from a row image."""
    options = replace(case.options, conversion_failures="warn" if warn else "fail")
    columns = (Column("id", "int", nullable=False), replace(case.column, nullable=nullable))
    failures = ConversionFailures()
    codec = TableCodec(
        Table(TABLE, columns, ("id", "v") if in_key else ("id",)), "t", CodecOptions(options, failures=failures)
    )
    found = []
    for source in (_from_result_set, _from_row_image):
        key, value = source(codec, case)
        json = value.decode()
        found.append(json[json.index('"v":') + 4 : json.index("}")])
        if in_key:
            assert key.decode().endswith(f'"v":{found[-1]}}}')
    return found, failures


def _from_result_set(codec: TableCodec, case: Case) -> tuple[bytes, bytes]:
    row = b"\x017" + bytes([len(case.text)]) + case.text.encode()
    packet = len(row).to_bytes(3, "little") + b"\x01" + row
    (record,) = codec.snapshot(packet, 0, len(packet), SnapshotEnvelope(b',"op":"r"}')).records
    return record


def _from_row_image(codec: TableCodec, case: Case) -> tuple[bytes, bytes]:
    image = b"\x00" + struct.pack("<i", 7) + case.image
    (record,) = codec.inserts(image, 0, len(image), ENVELOPE).records
    assert isinstance(record, tuple)
    assert record[1] is not None
    return record[0], record[1]


@pytest.mark.parametrize("source", [_from_result_set, _from_row_image])
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize(
    ("case", "in_key"),
    [*((case, False) for case in ANYWHERE), *((case, True) for case in (*ANYWHERE, *IN_KEYS))],
)
def test_the_producer_stops_at_an_inexact_value(case: Case, *, in_key: bool, nullable: bool, source: Source) -> None:
    """The error names table, column and value; both sources show the same value."""
    columns = (Column("id", "int", nullable=False), replace(case.column, nullable=nullable))
    codec = TableCodec(Table(TABLE, columns, ("id", "v") if in_key else ("id",)), "t", CodecOptions(case.options))

    with pytest.raises(SchemaError) as caught:
        source(codec, case)

    assert caught.value.context == {"table": TABLE, "column": "v", "value": case.text}
    replaced = "set event.converting.failure.handling.mode=warn to write what Debezium writes" in caught.value.hint
    assert replaced == (nullable or case.not_null is not None), "the next test does it"


@pytest.mark.parametrize("case", [*ANYWHERE, *IN_KEYS])
def test_debeziums_value_is_written_and_counted_on_request(case: Case) -> None:
    """Every replaced value counts once, also one of a key; the first of a column is logged."""
    with capture_logs() as logs:
        found, failures = _rows(case, nullable=True, in_key=True, warn=True)

    assert found == [case.nullable] * 2
    assert failures.take()[TABLE] == 2
    assert failures.take() == {}
    assert [(each["log_level"], each["table"], each["column"], each["value"]) for each in logs] == [
        ("warning", "shop.orders", "v", case.text)
    ]


@pytest.mark.parametrize("case", [*ANYWHERE, *IN_KEYS])
def test_a_column_that_is_not_null_stops_where_debezium_stops(case: Case) -> None:
    """Only null would be left, and the column has none."""
    if case.not_null is None:
        with pytest.raises(SchemaError, match=r"shop\.orders"):
            _rows(case, nullable=False, in_key=False, warn=True)
    else:
        found, failures = _rows(case, nullable=False, in_key=True, warn=True)
        assert found == [case.not_null] * 2
        assert failures.take()[TABLE] == 2


@pytest.mark.parametrize("case", IN_KEYS)
def test_values_outside_keys_are_written_as_debezium_writes_them(case: Case) -> None:
    """Zero dates, adjusted years, the precision of the mode: no failure."""
    for nullable, expected in ((True, case.nullable), (False, case.not_null)):
        found, failures = _rows(case, nullable=nullable, in_key=False, warn=False)

        assert found == [expected] * 2
        assert failures.take() == {}


def test_each_of_many_equal_values_counts() -> None:
    """No cache hides a replaced value."""
    failures = ConversionFailures()
    options = CodecOptions(value_options(conversion_failures="warn"), failures=failures)
    table = Table(TABLE, (Column("id", "int", nullable=False), _DATE), ("id",))
    codec = TableCodec(table, "t", options)
    images = b"".join(b"\x00" + struct.pack("<i", number) + _date(2020, 2, 30) for number in range(50))

    codec.inserts(images, 0, len(images), ENVELOPE)

    assert failures.take() == {TABLE: 50}
