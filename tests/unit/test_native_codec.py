"""The compiled extension against generated Python: equal records or the same error, for any types, modes and bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.producer.model.codec import SnapshotRows
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import Converter, ValueOptions
from tailrace.producer.mysql.types.conversion import ConversionFailures
from tailrace.producer.mysql.types.registry import connect_field
from tailrace.producer.native import loader
from tailrace.producer.serialization.envelope.schemas import envelope_schema, key_schema
from tailrace.producer.serialization.record_format import RecordFormat
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.runtime.errors import TailraceError
from tests.bench.codec_speed import SNAPSHOT
from tests.support.values import value_options

pytestmark = pytest.mark.skipif(
    not loader.is_used(), reason=f"the compiled extension is not used: {loader.unused_because()}"
)

Form = tuple[Converter, Converter, bool]
"""Converters of key and value, and whether defaults replace NULL."""
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
    (Column("", "double"), _encoded(*_FLOAT)),
    (Column("", "float"), _encoded(*_FLOAT[:-1])),
    (Column("", "enum", charset="utf8mb4", enum_values=("a", 'q"', "é")), _encoded("a", 'q"', "é", "")),
    (Column("", "set", charset="utf8mb4", enum_values=("a", "b")), _encoded("a", "a,b", "")),
    (Column("", "varbinary", length=300, charset="binary"), _BYTES),
    (Column("", "binary", length=3, charset="binary"), _BYTES),
    (Column("", "bit", length=1), _BYTES),
    (Column("", "bit", length=20), _BYTES),
)
"""Columns of each family with texts that a server sends, and such that it does not. The first is a usual one."""


def record_format(table: Table, options: ValueOptions, form: Form) -> RecordFormat:
    """Return a format; optional columns of text and numbers have a default."""
    key, value, exact_nulls = form
    fields = tuple(connect_field(column, options) for column in table.columns)
    defaults: dict[str, Any] = {"string": "d'\"é", "int32": 5, "int64": 6, "int16": 7}
    fields = tuple(
        replace(each, schema=replace(each.schema, default=defaults[each.schema.type]))
        if each.schema.optional and each.schema.type in defaults and each.name[-1] in "02468"
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


def outcome(read: Callable[[], SnapshotRows], failures: ConversionFailures) -> tuple[Any, ...]:
    """Return what a call returns, or the error that it raises, and the values that were replaced."""
    try:
        rows = read()
    except TailraceError as error:
        return type(error), error.message, error.hint, error.context
    return (*rows, failures.take())


class Both:
    """A table's codecs: generated Python alone, and with the extension."""

    def __init__(self, table: Table, options: ValueOptions, form: Form) -> None:
        self._codecs = []
        for switch in ("0", "1"):
            failures = ConversionFailures()
            codec_options = CodecOptions(options, failures=failures)
            with mock.patch.dict(os.environ, {loader.SWITCH: switch}):
                codec = TableCodec(table, "topic", codec_options, record_format(table, options, form))
            self._codecs.append((codec, failures))

    def snapshot(self, packets: bytes, *, stop: int = 0) -> tuple[Any, ...]:
        """Return the outcome, which is the same for both."""
        python, native = (
            outcome(partial(codec.snapshot, packets, len(NOISE), stop or len(packets), SNAPSHOT), failures)
            for codec, failures in self._codecs
        )
        assert native == python
        return python


def _cell(value: bytes | None) -> bytes:
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes([size]) + value
    return (b"\xfc" + size.to_bytes(2, "little") if size < 65536 else b"\xfd" + size.to_bytes(3, "little")) + value


def packet(*values: bytes | None) -> bytes:
    """Return a row packet."""
    body = b"".join(map(_cell, values))
    return len(body).to_bytes(3, "little") + b"\x09" + body


NOISE: Final = b"\xff\xff\xff"
"""Precedes the packets: the codec must start where it is told to."""
END: Final = b"\x05\0\0\x09\xfe\0\0\2\0"


def _table(columns: list[Column], key: tuple[str, ...] = ("id",)) -> Table:
    return Table(TableId("d", "t"), (Column("id", "int", nullable=False), *columns), key)


@pytest.mark.parametrize(
    ("options", "form"),
    [(options, form) for form in FORMS for options in (MODES if form == FORMS[0] else MODES[::3])],
    ids=lambda each: each.time_precision_mode if isinstance(each, ValueOptions) else "-".join(map(str, each)),
)
@pytest.mark.parametrize("use", ["nullable", "required", "key"])
def test_each_value_of_each_type_is_equal(use: str, options: ValueOptions, form: Form) -> None:
    """One result set a value, so that an error hides no other value; in rows, with and without NULL, and in keys."""
    columns = [replace(column, name=f"c{i}", nullable=use == "nullable") for i, (column, _) in enumerate(COLUMNS)]
    names = tuple(column.name for column in columns)
    codecs = Both(_table(columns, ("id", *names) if use == "key" else ("id",)), options, form)
    usual: list[bytes | None] = [None if use == "nullable" else values[0] for _, values in COLUMNS]
    assert len(codecs.snapshot(NOISE + packet(b"1", *usual) + END)[0]) == 1
    for i, (_, values) in enumerate(COLUMNS):
        for value in (*values, None):
            codecs.snapshot(NOISE + packet(b"1", *usual[:i], value, *usual[i + 1 :]) + END)


@st.composite
def _results(draw: st.DrawFn) -> tuple[Table, bytes]:
    """Draw a table and a result set; some values are of another type, or are damaged."""
    chosen = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=8))
    columns = [
        replace(column, name=f"c{i}" if i else 'é"\n', nullable=draw(st.booleans()))
        for i, (column, _) in enumerate(chosen)
    ]
    row = st.tuples(
        *(
            st.one_of(st.sampled_from(values), st.sampled_from(values), st.none(), st.binary(max_size=12))
            for _, values in chosen
        )
    )
    rows = draw(st.lists(row, max_size=6))
    data = b"".join(packet(b"%d" % i, *values) for i, values in enumerate(rows))
    key = draw(st.sampled_from(("id", *(column.name for column in columns))))
    error = b"\x0d\0\0\3\xff\x15\4#08S01gone"
    tail = draw(st.sampled_from((b"", END, b"\x09", b"\xff\xff\xff\1\1", error, b"\0\0\0\1")))
    return _table(columns, tuple(dict.fromkeys((key, "id")))), NOISE + data + tail


@settings(max_examples=200)
@given(_results(), st.sampled_from(MODES), st.sampled_from(FORMS), st.data())
def test_any_result_set_is_equal(
    drawn: tuple[Table, bytes], options: ValueOptions, form: Form, data: st.DataObject
) -> None:
    """Whole, cut off anywhere, or with one byte changed."""
    table, packets = drawn
    stop = data.draw(st.integers(3, len(packets)))
    damage = data.draw(st.sampled_from(("none", "cut", "byte")))
    if damage == "byte" and stop < len(packets):
        packets = packets[:stop] + data.draw(st.binary(min_size=1, max_size=1)) + packets[stop + 1 :]
    Both(table, options, form).snapshot(packets, stop=stop if damage == "cut" else 0)


def test_usual_rows_are_not_declined() -> None:
    """The extension alone encodes them, so the tests above do not compare Python with itself."""
    table = _table([replace(column, name=f"c{i}") for i, (column, _) in enumerate(COLUMNS)])
    codec = TableCodec(table, "topic", CodecOptions(value_options()))
    data = packet(b"1", *(values[0] for _, values in COLUMNS)) * 2
    assert codec.native is not None
    records: list[tuple[bytes, bytes]] = []
    assert codec.native.encode(data, 0, len(data), b"}", records)[::2] == (len(data), 0)
    assert len(records) == 2


def test_row_of_several_packets_is_equal() -> None:
    """A value of 16 MB and more, whole and cut off, between other rows."""
    table = _table([Column("c", "text", length=0xFFFFFFFF, charset="utf8mb4")])
    value = b"x" * 0xFFFFFF
    body = _cell(b"2") + b"\xfe" + len(value).to_bytes(8, "little") + value
    big = b"\xff\xff\xff\2" + body[:0xFFFFFF] + (len(body) - 0xFFFFFF).to_bytes(3, "little") + b"\3" + body[0xFFFFFF:]
    data = NOISE + packet(b"1", b"a") + big + packet(b"3", b"b") + END
    codecs = Both(table, value_options(), FORMS[0])
    assert len(codecs.snapshot(data)[0]) == 3
    for stop in (len(NOISE + packet(b"1", b"a")) + 50, len(data) - 20):
        codecs.snapshot(data, stop=stop)


def test_switch_is_named() -> None:
    """TAILRACE_NATIVE=0 switches the extension off, and the reason says so."""
    with mock.patch.dict(os.environ, {loader.SWITCH: "0"}):
        assert loader.unused_because() == "TAILRACE_NATIVE=0"
