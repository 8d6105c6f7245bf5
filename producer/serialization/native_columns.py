"""What the compiled extension must know of the columns of a table version.

It has a decoder for each frequent type, and calls a generated Python function for the other ones. What decides the
bytes of a piece is taken from the writers and types themselves: null, a zero date, the branch of a union.

A function may be called for a row that is declined afterwards, so it must not count anything. A value that may have to
be replaced (``ColumnType.conversion``) is therefore never passed to one: the extension declines the whole row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from tailrace.producer.model.codec import KeyValue
from tailrace.producer.mysql.types.base import ColumnType, Expression, ExpressionKind, FixedWidth, Layout, RawBytes
from tailrace.producer.mysql.types.binary import BinaryType
from tailrace.producer.mysql.types.bit import BitType
from tailrace.producer.mysql.types.date import DateType
from tailrace.producer.mysql.types.datetime import DatetimeType
from tailrace.producer.mysql.types.decimal import DecimalType
from tailrace.producer.mysql.types.enum_set import EnumType, SetType
from tailrace.producer.mysql.types.floating import FloatType
from tailrace.producer.mysql.types.integer import IntegerType
from tailrace.producer.mysql.types.json import JsonType
from tailrace.producer.mysql.types.spatial import SpatialType
from tailrace.producer.mysql.types.temporal import TemporalType
from tailrace.producer.mysql.types.text import TextType, escape
from tailrace.producer.mysql.types.time import TimeType
from tailrace.producer.mysql.types.timestamp import TimestampType
from tailrace.producer.mysql.types.vector import VectorType
from tailrace.producer.mysql.types.year import YearType
from tailrace.producer.serialization.avro_encoding import union
from tailrace.producer.serialization.codegen import CodeBuilder
from tailrace.producer.serialization.projection import SkippedColumn
from tailrace.producer.serialization.record_format import RecordFormat
from tailrace.producer.serialization.row_layout import RowLayout

_EMPTY_MEMBER: Final = '{"":'
_ISO: Final = 0
_UNITS: Final = {
    "io.debezium.time.IsoTimestamp": _ISO,
    "io.debezium.time.NanoTimestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.Timestamp": 1_000_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000_000,
    "io.debezium.time.IsoTime": _ISO,
    "io.debezium.time.NanoTime": 1,
    "io.debezium.time.MicroTime": 1_000,
    "org.apache.kafka.connect.data.Time": 1_000_000,
    "io.debezium.time.IsoDate": _ISO,
    "io.debezium.time.Date": 1,
    "org.apache.kafka.connect.data.Date": 1,
    "io.debezium.time.ZonedTimestamp": _ISO,
}
"""Nanoseconds of one unit by the schema's name; DATE has whole days in each form of a number."""
_RAW: Final = RawBytes(lambda hint, _: hint, "i0", "p0")
_PARTS: Final = RawBytes(lambda hint, _: hint, parts=("f0_0", "f0_1"))
_MOST_DIGITS: Final = 18
_COPIED: Final = {
    Expression(_RAW.text, ExpressionKind.DIGITS): "digits",
    Expression(_RAW.text, ExpressionKind.TEXT): "text",
    Expression(_RAW.data, ExpressionKind.BYTES): "bytes",
}
"""Expressions that are the bytes themselves."""
_DIGITS_OF_DOUBLE: Final = 15
_TEMPORAL: Final[dict[type[ColumnType], str]] = {
    DateType: "date",
    DatetimeType: "datetime",
    TimestampType: "timestamp",
    TimeType: "time",
}
_NEVER_REPLACED: Final = frozenset(
    {
        *(IntegerType, FloatType, BitType, TextType, BinaryType, YearType),
        *(EnumType, SetType, JsonType, SpatialType, VectorType),
    }
)
"""Families whose values are written as they are, or end in an error."""


@dataclass(frozen=True, slots=True)
class NativeColumn:
    """One column, as ``native.codec.Column`` says."""

    kind: str
    """How the bytes are read, or ``call``."""
    nullable: bool
    avro: bool
    head: bytes
    """Precedes the value in a row: the member's name."""
    tag: bytes
    """Precedes a value in Avro: the branch of the union."""
    null: bytes
    zero: bytes | None = None
    """What is written for a zero date; None: the row is declined."""
    unit: int = 0
    """Nanoseconds of one unit; 0: ISO text."""
    adjust: int = 0
    """What happens to years below 100: 0 nothing, 1 they are adjusted, 2 the row is declined."""
    exact: bool = False
    """A value that the unit cuts is declined."""
    scale: int = 0
    """Digits after the point of a decimal, or of a fraction."""
    width: int = 0
    """Bytes of a value in a row image; 0: its length precedes it."""
    prefix: int = 0
    """Bytes of that length."""
    signed: bool = False
    whole_digits: int = 0
    """Digits before the point of a decimal."""
    least: int = 0
    """Bytes of BINARY(n); a shorter value is declined."""
    labels: tuple[bytes, ...] = ()
    """The pieces of an enumeration by ordinal."""
    call: Callable[[bytes], str] | None = None
    """Returns the piece of a value, as text of one character per byte."""


def result_set_columns(layout: RowLayout, record_format: RecordFormat) -> list[NativeColumn] | None:
    """Return the columns of a result set; None if only generated Python can encode them."""
    if not _is_usual(layout, record_format):
        return None
    return [_ColumnPlan(layout, record_format, i).of_result_set() for i in range(len(layout.types))]


def row_image_columns(layout: RowLayout, record_format: RecordFormat) -> list[NativeColumn] | None:
    """Return the columns of a row image; None if only generated Python can encode them."""
    if not _is_usual(layout, record_format):
        return None
    return [_ColumnPlan(layout, record_format, i).of_row_image() for i in range(len(layout.types))]


def raw_key_columns(
    layout: RowLayout, record_format: RecordFormat, columns: Sequence[NativeColumn]
) -> list[tuple[int, Callable[[bytes], KeyValue] | None]]:
    """Return the columns of the raw key, each with the function that decodes its value; None: an integer."""
    return [
        (i, None if columns[i].kind == "integer" else _ColumnPlan(layout, record_format, i).raw_key())
        for i in layout.key
    ]


def _is_usual(layout: RowLayout, record_format: RecordFormat) -> bool:
    if layout.projection.transforms or (record_format.key == "avro") != (record_format.value == "avro"):
        return False
    return all(map(_is_known, layout.types))


def member_name(name: str) -> bytes:
    """Return the name of a JSON member, as ``JsonWriter`` writes it."""
    return f'"{escape(name.encode().decode("latin-1"))}":'.encode("latin-1")


def _is_known(column: ColumnType) -> bool:
    """Return whether the extension declines each value that may have to be replaced."""
    if isinstance(column, SkippedColumn):
        return True
    if isinstance(column, DecimalType):
        cuts = column.settings.decimal_handling_mode == "double" and column.column.precision > _DIGITS_OF_DOUBLE
        return not (cuts and column.in_key)
    return type(column) in _NEVER_REPLACED or type(column) in _TEMPORAL


class _ColumnPlan:
    """Describes one column."""

    def __init__(self, layout: RowLayout, record_format: RecordFormat, i: int) -> None:
        self._type = layout.types[i]
        self._avro = record_format.value == "avro"
        self._writers = record_format.column_writers(layout, i)
        self._schema = record_format.column_schemas(layout)[i]
        names = layout.by_slot([field.name for field in record_format.columns])
        self._head = b"" if self._avro else (b"," if i != layout.projection.row[0] else b"{") + member_name(names[i])

    def of_result_set(self) -> NativeColumn:
        column, settings = self._type, self._type.settings
        expression = column.from_result_set(_RAW)
        if expression in _COPIED:
            return self._column(_COPIED[expression])
        if isinstance(column, IntegerType):
            wraps = column.column.data_type == "bigint"
            is_decimal = expression.kind is ExpressionKind.BYTES
            return self._column("call" if is_decimal else "wrapped" if wraps else "unsigned")
        if isinstance(column, TemporalType):
            return self._temporal(column)
        if isinstance(column, DecimalType) and settings.decimal_handling_mode != "double":
            kind = "decimal" if settings.decimal_handling_mode == "precise" else "decimal-text"
            return self._column(kind, scale=column.column.scale)
        if isinstance(column, BitType):
            return self._column("boolean" if column.column.length == 1 else "bits")
        if isinstance(column, BinaryType):
            return self._column(settings.binary_handling_mode)
        if isinstance(column, YearType):
            return self._column("year")
        return self._column("json" if isinstance(column, JsonType) else "call")

    def of_row_image(self) -> NativeColumn:
        column, layout = self._type, self._type.layout
        width = Struct(f"<{''.join(layout.codes)}").size if isinstance(layout, FixedWidth) else 0
        prefix = 0 if isinstance(layout, FixedWidth) else layout.width
        if isinstance(column, SkippedColumn):
            nullable = column.column.nullable
            return NativeColumn("skip", nullable, self._avro, b"", b"", b"", width=width, prefix=prefix)
        if isinstance(column, TemporalType):
            return replace(self._temporal(column), width=width)
        settings, of_column = column.settings, column.column
        function = self._image_function()
        described = replace(self._column("call"), width=width, prefix=prefix, call=function)
        if isinstance(column, IntegerType) and column.from_row_image(_PARTS).kind is ExpressionKind.INT:
            return replace(described, kind="integer", signed=not of_column.unsigned)
        if isinstance(column, TextType) and column.from_row_image(_RAW).expr == _RAW.text:
            is_utf8 = column.from_row_image(_RAW).kind is ExpressionKind.TEXT
            return replace(described, kind="text" if is_utf8 else "ascii")
        if isinstance(column, DecimalType) and settings.decimal_handling_mode != "double":
            kind = "decimal" if settings.decimal_handling_mode == "precise" else "decimal-text"
            whole = of_column.precision - of_column.scale
            usual = of_column.precision <= _MOST_DIGITS
            return replace(described, kind=kind if usual else "call", whole_digits=whole, scale=of_column.scale)
        if isinstance(column, BinaryType):
            least = of_column.length if of_column.data_type == "binary" else 0
            return replace(described, kind=settings.binary_handling_mode, least=least)
        if isinstance(column, EnumType):
            ordinals = range(len(of_column.enum_values) + 1)
            labels = (function(ordinal.to_bytes(width, "little")).encode("latin-1") for ordinal in ordinals)
            return replace(described, kind="label", labels=tuple(labels))
        if isinstance(column, BitType):
            return replace(described, kind="boolean" if of_column.length == 1 else "bits")
        if isinstance(column, YearType):
            return replace(described, kind="year")
        if isinstance(column, JsonType):
            return replace(described, kind="json")
        return replace(described, kind="double" if of_column.data_type == "double" else "call")

    def _column(self, kind: str, *, scale: int = 0) -> NativeColumn:
        return NativeColumn(
            kind,
            nullable=self._type.column.nullable,
            avro=self._avro,
            head=self._head,
            tag=union(self._schema)[0].encode("latin-1") if self._avro else b"",
            null=self._null(),
            scale=scale,
            call=self._function(),
        )

    def _temporal(self, column: TemporalType) -> NativeColumn:
        """Return a column of dates or times. Its odd values are counted, so that their rows must be declined."""
        settings, fsp = column.settings, column.column.fsp
        unit = _UNITS[column.connect().name or ""]
        fraction = f".{'0' * fsp}" if fsp else ""
        zeros = {DateType: "0000-00-00", DatetimeType: f"0000-00-00 00:00:00{fraction}"}
        zeros[TimestampType] = zeros[DatetimeType]
        zero = zeros.get(type(column))
        return NativeColumn(
            _TEMPORAL[type(column)],
            nullable=column.column.nullable,
            avro=self._avro,
            head=self._head,
            tag=union(self._schema)[0].encode("latin-1") if self._avro else b"",
            null=self._null(),
            zero=None if zero is None or column.in_key else self._function()(zero.encode()).encode("latin-1"),
            unit=unit,
            adjust=(2 if column.in_key else 1) if settings.enable_time_adjuster else 0,
            exact=column.in_key and unit != _ISO,
            scale=fsp,
        )

    def _null(self) -> bytes:
        builder = CodeBuilder()
        writer = self._writers(builder)
        writer.null(0)
        piece: str = builder.compile("null", "", [*writer.escapes(), f"return {writer.row()}"])()
        return self._piece(piece).encode("latin-1")

    def _function(self) -> Callable[[bytes], str]:
        """Return the generated function from the bytes of a value to its piece."""
        builder = CodeBuilder()
        writer = self._writers(builder)
        value = self._type.from_result_set(RawBytes(builder.bind, "i0", "p0"))
        lines = ["S, i0, p0 = str(B, 'latin-1'), 0, len(B)", *writer.value(0, value), *writer.escapes()]
        row = writer.row()
        return builder.compile("piece", "B", [*lines, f"return {self._piece_of(row)}"])

    def raw_key(self) -> Callable[[bytes], KeyValue]:
        """Return the generated function from the bytes of a row image, with their length, to the raw key value."""
        builder = CodeBuilder()
        lines, raw = _bytes_of_image(builder, self._type.layout)
        return builder.compile("raw_key", "B", [*lines, f"return {self._type.key_from_row_image(raw)}"])

    def _image_function(self) -> Callable[[bytes], str]:
        """Return the generated function from the bytes of a row image, with their length, to the piece."""
        builder = CodeBuilder()
        writer = self._writers(builder)
        lines, raw = _bytes_of_image(builder, self._type.layout)
        lines += [*writer.value(0, self._type.from_row_image(raw)), *writer.escapes()]
        row = writer.row()
        return builder.compile("piece", "B", [*lines, f"return {self._piece_of(row)}"])

    def _piece(self, row: str) -> str:
        return row if self._avro else row[len(_EMPTY_MEMBER) : -1]

    def _piece_of(self, row: str) -> str:
        return row if self._avro else f"{row}[{len(_EMPTY_MEMBER)}:-1]"


def _bytes_of_image(builder: CodeBuilder, layout: Layout) -> tuple[list[str], RawBytes]:
    """Return the lines that take the bytes of a value ``B`` apart, and their names."""
    if isinstance(layout, FixedWidth):
        parts = tuple(f"f0_{k}" for k in range(len(layout.codes)))
        unpack = builder.bind("unpack", Struct(f"<{''.join(layout.codes)}").unpack)
        return [f"{', '.join(parts)}, = {unpack}(B)"], RawBytes(builder.bind, parts=parts)
    return [f"S, i0, p0 = str(B, 'latin-1'), {layout.width}, len(B)"], RawBytes(builder.bind, "i0", "p0")
