"""Columns of all types, modes and formats, with values of both protocols: usual ones, odd ones, wrong ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tailrace.producer.model.table import Column, Table
from tailrace.producer.model.value_options import Converter, ValueOptions
from tailrace.producer.mysql.types.registry import column_type, connect_field
from tailrace.producer.serialization.envelope.schemas import envelope_schema, key_schema
from tailrace.producer.serialization.envelope_frame import RecordFormat
from tests.support.binary_json import binary_json, random_document
from tests.support.values import value_options

Form = tuple[Converter, Converter, bool]
"""Converters of key and value, and whether defaults replace NULL."""
FRACTION_BYTES: Final = (0, 1, 1, 2, 2, 3, 3)
FORMS: Final[tuple[Form, ...]] = (
    ("json", "json", False),
    ("json", "json-schema", False),
    ("json-schema", "json-schema", True),
    ("avro", "avro", False),
    ("avro", "avro", True),
    ("json", "avro", False),
)
MODES: Final = tuple(
    value_options(
        time_precision_mode=precision,
        decimal_handling_mode=decimals,
        bigint_unsigned_handling_mode=bigints,
        binary_handling_mode=binary,
        enable_time_adjuster=adjusts,
        conversion_failures=failures,
    )
    for precision, decimals, bigints, binary, adjusts, failures in (
        ("adaptive_time_microseconds", "precise", "long", "bytes", True, "warn"),
        ("adaptive_time_microseconds", "precise", "precise", "bytes", False, "fail"),
        ("connect", "double", "long", "base64", True, "warn"),
        ("isostring", "string", "precise", "hex", True, "warn"),
        ("isostring", "string", "precise", "hex", False, "fail"),
        ("microseconds", "string", "long", "base64-url-safe", False, "warn"),
        ("nanoseconds", "precise", "long", "bytes", True, "warn"),
    )
)

_INTEGER: Final = ("0", "7", "-1", "127", "4294967295", "-9223372036854775808", "18446744073709551615", "007", "0" * 30)
_TEXT: Final = ("", "abc", "it's", 'a"b', "back\\slash", "tab\t\x01\x1f\x7f", "é", "😀 and 𝄞", "x" * 251, "ü" * 40_000)
_DECIMAL: Final = (
    *("0", "0.00", "-0.01", "12.34", "-12.34", "127.99", "128", "-128", "32768.5", "-32769.0", ".5", "5."),
    *("999999999999999999", "1000000000000000000", "-9223372036854775808", "1234567890123456789012345678.901"),
)
_DAYS: Final = ("2024-02-29", "2023-02-29", "1000-01-01", "9999-12-31", "0000-00-00", "2024-00-10", "0024-03-04")
_ODD_DAYS: Final = ("2024-2-9", "20240229xx", "1969-12-31", "0099-12-31", "2024-13-01")
_DIGITS: Final = ("000000", "500000", "123456", "120000", "000100")


def _fraction(digits: str, fsp: int) -> str:
    return f".{digits[:fsp]}" if fsp else ""


def _moments(fsp: int) -> tuple[str, ...]:
    usual = tuple(f"{day} 12:34:56{_fraction('000000', fsp)}" for day in (*_DAYS, *_ODD_DAYS))
    fractions = tuple(f"1969-12-31 23:59:59{_fraction(digits, fsp)}" for digits in _DIGITS)
    odd = (f"2024-01-01 24:00:00{_fraction('000000', fsp)}", "2024-01-01 00:00:00", "2024", "x" * 26)
    return (*usual, *fractions, *odd)


_CLOCKS: Final = (
    *("00:00:00", "23:59:59", "24:00:00", "838:59:59", "100:00:00", "1:02:03", "-00:00:00", "-838:59:59", "12:34:56"),
)


def _times(fsp: int) -> tuple[str, ...]:
    clocks = (clock + _fraction("000000", fsp) for clock in _CLOCKS)
    fractions = (f"{sign}12:34:56{_fraction(digits, fsp)}" for digits in _DIGITS for sign in ("", "-"))
    return (*clocks, *fractions, "x")


_JSON: Final = (
    '{"a": 1, "b": [true, false, null]}',
    '"a \\" b"',
    "1e5",
    "[1.5e-10, 2]",
    '{"é": "😀", "x y": "1e5"}',
    '"tail\\u00e9"',
    "[]",
)
_FLOAT: Final = ("0", "-0", "1.5", "1e10", "0.001", "123456.75", "9999999.5", "1.7976931348623157e308")
_LABELS: Final = tuple(f"label {i}" for i in range(300))
_POINT: Final = struct.pack("<IBIdd", 0, 1, 1, 1.0, -2.5)
_SHAPES: Final = (_POINT, b"\xe6\x10\0\0" + _POINT[4:], _POINT[:-1], b"", b"\1")
_BYTES: Final = (b"\1", b"", b"\0", b"\0\1\2", bytes(range(256)), b"\xff" * 8)

Values = tuple[bytes, ...]


def _encoded(*texts: str) -> Values:
    return tuple(text.encode() for text in texts)


COLUMNS: Final[tuple[tuple[Column, Values], ...]] = (
    *(
        (Column("", kind, unsigned=unsigned), _encoded(*_INTEGER))
        for kind in ("tinyint", "smallint", "mediumint", "int", "bigint")
        for unsigned in (False, True)
    ),
    (Column("", "varchar", length=400, charset="utf8mb4"), _encoded(*_TEXT)),
    (Column("", "char", length=10, charset="latin1"), _encoded(*_TEXT)),
    (Column("", "text", length=65535, charset="utf16"), tuple(text.encode("utf-16-be") for text in _TEXT)),
    *((Column("", "decimal", precision=p, scale=s), _encoded(*_DECIMAL)) for p, s in ((10, 2), (9, 0), (40, 20))),
    (Column("", "date"), _encoded(*_DAYS, *_ODD_DAYS)),
    *((Column("", "datetime", fsp=fsp), _encoded(*_moments(fsp))) for fsp in (0, 1, 3, 6)),
    *((Column("", "timestamp", fsp=fsp), _encoded(*_moments(fsp))) for fsp in (0, 3, 6)),
    *((Column("", "time", fsp=fsp), _encoded(*_times(fsp))) for fsp in (0, 2, 6)),
    (Column("", "year"), _encoded("1901", "0000", "0", "2155", "70")),
    (Column("", "json"), _encoded(*_JSON)),
    (Column("", "json", bare_doubles=True), _encoded(*_JSON)),
    (Column("", "double"), _encoded(*_FLOAT)),
    (Column("", "float"), _encoded(*_FLOAT[:-1])),
    (Column("", "enum", charset="utf8mb4", enum_values=("a", 'q"', "é")), _encoded("a", 'q"', "é", "")),
    (Column("", "set", charset="utf8mb4", enum_values=("a", "b")), _encoded("a", "a,b", "")),
    (Column("", "varbinary", length=300, charset="binary"), _BYTES),
    (Column("", "binary", length=3, charset="binary"), _BYTES),
    (Column("", "bit", length=1), _BYTES),
    (Column("", "bit", length=20), _BYTES),
    (Column("", "blob", length=0xFFFFFF, charset="binary"), _BYTES),
    (Column("", "geometry"), _SHAPES),
    (Column("", "point"), _SHAPES),
    (Column("", "vector"), (struct.pack("<2f", 1.5, -0.0), b"", b"\0\0\x80\x7f", b"\1")),
    (Column("", "uuid"), _encoded("6ccd780c-baba-1026-9564-5b8c656024db", "00000000-0000-0000-0000-000000000000")),
    (Column("", "inet6"), _encoded("::ffff:1.2.3.4", "2001:db8::1")),
    (Column("", "inet4"), _encoded("10.0.0.1", "255.0.0.0")),
    (Column("", "enum", charset="utf8mb4", enum_values=_LABELS), _encoded(_LABELS[299], "", "none")),
)
"""Columns of each family with texts that a server sends, and such that it does not. The first is a usual one."""


def record_format(
    table: Table, options: ValueOptions, form: Form, dropped: frozenset[str] = frozenset()
) -> RecordFormat:
    """Return a format; optional columns of text and numbers have a default."""
    key, value, exact_nulls = form
    fields = tuple(connect_field(column, options) for column in table.columns if column.name not in dropped)
    defaults: dict[str, Any] = {"string": "d'\"é", "int32": 5, "int64": 6, "int16": 7}
    fields = tuple(
        replace(each, schema=replace(each.schema, default=defaults[each.schema.type]))
        if each.schema.optional and each.schema.type in defaults and each.name.endswith(tuple("02468"))
        else each
        for each in fields
    )
    named = {each.name: each for each in fields}
    return RecordFormat(
        key=key,
        value=value,
        columns=fields,
        key_schema=key_schema("topic", [named[name] for name in table.key]),
        value_schema=envelope_schema("topic", fields),
        key_id=3,
        value_id=4,
        exact_nulls=exact_nulls,
    )


def cell(value: bytes | None) -> bytes:
    """Return a value of the text protocol behind its length; None is NULL."""
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes([size]) + value
    return (b"\xfc" + size.to_bytes(2, "little") if size < 65536 else b"\xfd" + size.to_bytes(3, "little")) + value


def packet(*values: bytes | None) -> bytes:
    """Return a row packet."""
    body = b"".join(map(cell, values))
    return len(body).to_bytes(3, "little") + b"\x09" + body


def image_values(column: Column, pick: random.Random) -> Iterator[bytes]:
    """Yield images of a value: random bytes, extremes, and plausible dates and times."""
    width, prefix = column_type(column, value_options()).layout
    if prefix:
        of_type: tuple[bytes, ...] = ()
        if column.data_type == "json":
            of_type = (b"", *(binary_json(random_document(pick)) for _ in range(6)))
        elif column.data_type in {"geometry", "point", "vector"}:
            of_type = next(values for each, values in COLUMNS if each.data_type == column.data_type)
        for body in of_type:
            yield len(body).to_bytes(prefix, "little") + body
        for text in (b"", b"abc", b'a"\\\n\x01', "é😀".encode(), pick.randbytes(20), b"x" * 200, bytes(3)):
            yield len(text).to_bytes(prefix, "little") + text
        yield b"\xff" * prefix + b"short"
        return
    yield from (bytes(width), b"\xff" * width, b"\1" + bytes(width - 1), b"\x80" + bytes(width - 1), b"\x7f" * width)
    fraction = FRACTION_BYTES[column.fsp]
    for _ in range(8):
        yield pick.randbytes(width)
        year, month, day = pick.choice((0, 24, 99, 1970, 2024, 9999)), pick.randrange(14), pick.randrange(33)
        clock = pick.randrange(26) << 12 | pick.randrange(62) << 6 | pick.randrange(62)
        part = pick.choice((0, 10, 50, 99, pick.randrange(1 << 24))).to_bytes(3, "big")[3 - fraction :]
        if column.data_type == "date":
            yield (year << 9 | month << 5 | day).to_bytes(3, "little")
        elif column.data_type == "datetime":
            yield (((year * 13 + month) << 5 | day) << 17 | clock | 1 << 39).to_bytes(5, "big") + part
        elif column.data_type == "time":
            yield (0x800000 + pick.choice((1, -1)) * clock).to_bytes(3, "big") + part
        elif column.data_type == "timestamp":
            yield pick.choice((0, 1, 951_782_400, 1_709_164_800, pick.randrange(1 << 32))).to_bytes(4, "big") + part
        elif column.data_type == "decimal":
            yield bytes([pick.choice((127, 128)), *pick.choices((0, 1, 5, 254, 255), k=width - 1)])
