"""The type table: Connect schemas in every mode, Java's numbers, JSON's escapes, the forms of a JSON document."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.floating import java_double, java_float
from tailrace.producer.mysql.types.json import bare_double_text, compact, double_text
from tailrace.producer.mysql.types.json_binary import json_text
from tailrace.producer.mysql.types.registry import as_in_catalog, column_type, connect_field
from tailrace.producer.mysql.types.text import escape
from tailrace.runtime.errors import SchemaError
from tests.support.values import value_options

CONNECT = value_options(time_precision_mode="connect", decimal_handling_mode="double", binary_handling_mode="base64")
ISO = value_options(time_precision_mode="isostring", decimal_handling_mode="string", binary_handling_mode="hex")
MICROS = value_options(time_precision_mode="microseconds", bigint_unsigned_handling_mode="precise")
NANOS = value_options(time_precision_mode="nanoseconds", tinyint_as_int8=True)
PLAIN = value_options()


def _schema(kind: str, name: str = "", **parameters: str) -> dict[str, Any]:
    block: dict[str, Any] = {"type": kind, "optional": True}
    if name:
        block |= {"name": name, "version": 1}
    if parameters:
        block["parameters"] = parameters
    return block | {"field": "c"}


_TIME = "io.debezium.time."
_APACHE = "org.apache.kafka.connect.data."
_DECIMAL_5_2 = {"scale": "2", "connect.decimal.precision": "5"}

SCHEMAS: tuple[tuple[Column, ValueOptions, dict[str, Any]], ...] = (
    (Column("c", "tinyint"), PLAIN, _schema("int16")),
    (Column("c", "tinyint"), NANOS, _schema("int8")),
    (Column("c", "tinyint", unsigned=True), NANOS, _schema("int16")),
    (Column("c", "smallint", unsigned=True), PLAIN, _schema("int32")),
    (Column("c", "mediumint"), PLAIN, _schema("int32")),
    (Column("c", "int"), PLAIN, _schema("int32")),
    (Column("c", "int", unsigned=True), PLAIN, _schema("int64")),
    (Column("c", "bigint", unsigned=True), PLAIN, _schema("int64")),
    (
        Column("c", "bigint", unsigned=True),
        MICROS,
        _schema("bytes", _APACHE + "Decimal", **{"scale": "0", "connect.decimal.precision": "20"}),
    ),
    (Column("c", "decimal", precision=5, scale=2), PLAIN, _schema("bytes", _APACHE + "Decimal", **_DECIMAL_5_2)),
    (Column("c", "decimal", precision=5, scale=2), CONNECT, _schema("double")),
    (Column("c", "decimal", precision=5, scale=2), ISO, _schema("string")),
    (Column("c", "float"), PLAIN, _schema("float")),
    (Column("c", "double"), PLAIN, _schema("double")),
    (Column("c", "bit", length=1), PLAIN, _schema("boolean")),
    (Column("c", "bit", length=9), PLAIN, _schema("bytes", "io.debezium.data.Bits", length="9")),
    (Column("c", "varchar", length=9, charset="utf8mb4"), PLAIN, _schema("string")),
    (Column("c", "blob", length=255), PLAIN, _schema("bytes")),
    (Column("c", "blob", length=255), ISO, _schema("string")),
    (Column("c", "json"), PLAIN, _schema("string", "io.debezium.data.Json")),
    (
        Column("c", "enum", enum_values=("a,b", "c")),
        PLAIN,
        _schema("string", "io.debezium.data.Enum", allowed="a\\,b,c"),
    ),
    (Column("c", "set", enum_values=("a", "c")), PLAIN, _schema("string", "io.debezium.data.EnumSet", allowed="a,c")),
    (Column("c", "year"), PLAIN, _schema("int32", _TIME + "Year")),
    (Column("c", "date"), PLAIN, _schema("int32", _TIME + "Date")),
    (Column("c", "date"), CONNECT, _schema("int32", _APACHE + "Date")),
    (Column("c", "date"), ISO, _schema("string", _TIME + "IsoDate")),
    (Column("c", "time"), PLAIN, _schema("int64", _TIME + "MicroTime")),
    (Column("c", "time"), CONNECT, _schema("int32", _APACHE + "Time")),
    (Column("c", "time"), ISO, _schema("string", _TIME + "IsoTime")),
    (Column("c", "time"), NANOS, _schema("int64", _TIME + "NanoTime")),
    (Column("c", "datetime", fsp=3), PLAIN, _schema("int64", _TIME + "Timestamp")),
    (Column("c", "datetime", fsp=4), PLAIN, _schema("int64", _TIME + "MicroTimestamp")),
    (Column("c", "datetime", fsp=0), MICROS, _schema("int64", _TIME + "MicroTimestamp")),
    (Column("c", "datetime", fsp=6), CONNECT, _schema("int64", _APACHE + "Timestamp")),
    (Column("c", "datetime"), ISO, _schema("string", _TIME + "IsoTimestamp")),
    (Column("c", "datetime"), NANOS, _schema("int64", _TIME + "NanoTimestamp")),
    (Column("c", "timestamp"), NANOS, _schema("string", _TIME + "ZonedTimestamp")),
)


@pytest.mark.parametrize(("column", "settings", "expected"), SCHEMAS)
def test_connect_schemas_are_debeziums(column: Column, settings: ValueOptions, expected: dict[str, Any]) -> None:
    """Type, name, version and parameters, in the order the JSON converter prints."""
    assert json.dumps(connect_field(column, settings).schema.to_json("c")) == json.dumps(expected)


def test_labels_of_four_bytes_are_in_schemas_as_the_catalog_has_them() -> None:
    """A question mark, as in Debezium, so that snapshot and stream have one schema."""
    logged = Column("c", "enum", enum_values=("a", "😀é"), charset="utf8mb4")
    listed = Column("c", "enum", enum_values=("a", "?é"), charset="utf8mb4")

    assert connect_field(logged, PLAIN) == connect_field(listed, PLAIN)
    assert as_in_catalog(logged) == listed
    assert as_in_catalog(Column("c", "int")) == Column("c", "int")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1e10, "-1.0E10"),
        (1.5e300, "1.5E300"),
        (123456789.125, "1.23456789125E8"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_doubles_are_printed_as_java_prints_them(value: float, text: str) -> None:
    """Double.toString of a current JDK."""
    assert java_double(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (5.6, "5.6"),
        (0.1, "0.1"),
        (1e7, "1.0E7"),
        (16777216.0, "1.6777216E7"),
        (3.4028235e38, "3.4028235E38"),
        (1.4e-45, "1.4E-45"),
        (0.001, "0.001"),
        (-123.456, "-123.456"),
        (1e10, "1.0E10"),
    ],
)
def test_floats_are_printed_as_java_prints_them(value: float, text: str) -> None:
    """Float.toString: the fewest digits that read back as the same 32 bits."""
    assert java_float(struct.unpack("<f", struct.pack("<f", value))[0]) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_java_doubles_read_back(value: float) -> None:
    """Nothing is lost, whatever the notation; the canonical JSON text of it is plain and reads back as well."""
    assert struct.pack("<d", float(java_double(value))) == struct.pack("<d", value)
    assert float(double_text(value)) == value
    assert "e" not in double_text(value).lower()


@pytest.mark.parametrize(
    ("value", "bare", "usual"),
    [
        (1.0, "1", "1.0"),
        (-0.0, "-0", "-0.0"),
        (100.0, "100", "100.0"),
        (999999999999999.0, "999999999999999", "999999999999999.0"),
        (1e15, "1000000000000000", "1000000000000000"),
        (1e-7, "0.0000001", "0.0000001"),
        (1.5, "1.5", "1.5"),
    ],
)
def test_doubles_without_fraction_have_a_point_since_mysql_8(value: float, bare: str, usual: str) -> None:
    """Their text by SELECT cannot be told from that of an integer, so the row image has the same."""
    assert (bare_double_text(value), double_text(value)) == (bare, usual)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_java_floats_read_back(value: float) -> None:
    """The text, read as a 32-bit float, is the value."""
    assert struct.pack("<f", float(java_float(value))) == struct.pack("<f", value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_text_reads_back(text: str) -> None:
    """Any text between quotes is a JSON string of that text."""
    printed = escape(text.encode().decode("latin-1")).encode("latin-1").decode()

    assert json.loads(f'"{printed}"') == text


_NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.decimals(-1000, 1000, places=3)
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a"\\: ,é\n', max_size=4), inner, max_size=4),
    max_leaves=12,
)


def _server_text(value: Any) -> str:
    """Print a document as the server does: blanks after colons and commas, lower-case hex."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_server_text(k)}: {_server_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_server_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _canonical(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_canonical(k)}:{_canonical(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, str):
        short = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}
        chars = (f"\\{short[c]}" if c in short else f"\\u{ord(c):04X}" if c < " " else c for c in value)
        return '"' + "".join(chars) + '"'
    return _server_text(value)


@given(_DOCUMENTS)
def test_the_servers_json_becomes_canonical(document: Any) -> None:
    """Blanks go outside strings only; escapes keep their meaning."""
    assert compact(_server_text(document)) == _canonical(document)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e20", "100000000000000000000"),
        ("[1e-7, -1.5e300]", None),
        ('{"e": "1e20, x: y", "true": true}', '{"e":"1e20, x: y","true":true}'),
        (r'"\\u001f"', r'"\\u001f"'),
        (r'"\u001f\\\u000b"', r'"\u001F\\\u000B"'),
    ],
)
def test_exponents_go_and_hex_is_upper_case(text: str, expected: str | None) -> None:
    """Doubles with an exponent are printed plainly, with all their digits; strings keep what looks like numbers."""
    found = compact(text)

    assert "e-" not in found
    assert expected is None or found == expected


@pytest.mark.parametrize("data", [b"\x0d\x00", b"\x00\x01\x00", b"\x0c\x7fab", b"\x0c\x80", b"\x04\x03"])
def test_a_damaged_json_document_is_an_error(data: bytes) -> None:
    """An unknown type, a cut object, a string beyond the end, an endless length, an unknown literal."""
    with pytest.raises((SchemaError, IndexError, struct.error)):
        json_text(data, double_text)


def test_an_empty_json_document_is_the_literal_null() -> None:
    """What INSERT IGNORE may leave behind reads as the server's text does."""
    assert json_text(b"", double_text) == "null"


def test_a_table_as_wide_as_can_be_compiles() -> None:
    """1,017 columns, InnoDB's limit."""
    from tailrace.producer.model.codec import EventEnvelope  # noqa: PLC0415
    from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec  # noqa: PLC0415

    columns = (Column("id", "int", nullable=False), *(Column(f"c{i}", "int") for i in range(1016)))
    codec = TableCodec(Table(TableId("d", "t"), columns, ("id",)), "t", CodecOptions(PLAIN))
    event = bytes(128) + struct.pack("<1017i", *range(1017))

    (record,) = codec.inserts(event, 0, len(event), EventEnvelope(b"", b"", b"")).records

    assert isinstance(record, tuple)
    assert record[1] is not None
    assert record[1].endswith(b'"c1014":1015,"c1015":1016}0c')


def test_an_unknown_kind_is_refused() -> None:
    """With the column's name."""
    with pytest.raises(SchemaError, match=r"(?s)interval.*column: address.*table.exclude.list, or convert the column"):
        column_type(Column("address", "interval"), PLAIN)
