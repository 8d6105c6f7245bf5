"""The plan of a table's rows: what both loops, the compiled one and that of Python, read for each column.

The SELECT omits the columns that are not published; a row image contains all columns, and those are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.producer.config.column_transforms import ColumnProjection, Mask
from tailrace.producer.model.codec import KeyValue
from tailrace.producer.model.table import Column, Table
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import ColumnType, Fast, Value, ValueKind
from tailrace.producer.mysql.types.conversion import Conversion, ConversionFailures
from tailrace.producer.mysql.types.registry import column_type
from tailrace.producer.serialization.envelope_frame import RecordFormat
from tailrace.producer.serialization.form import Form, Piece
from tailrace.producer.serialization.masking import mask, transform
from tailrace.schemas.connect import ConnectSchema


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """One column of a row, in the order in which the columns are read."""

    fast: Fast
    """How the extension reads the bytes; the kind is ``call`` where it calls the function, ``skip`` without one."""
    nullable: bool
    width: int = 0
    """Bytes of a value in a row image; 0: its length precedes it."""
    prefix: int = 0
    """Bytes of that length."""
    avro: bool = False
    head: bytes = b""
    """Precedes the value in a row: the member's name."""
    tag: bytes = b""
    """Precedes a value in Avro: the branch of the union."""
    null: bytes = b""
    """The piece of NULL."""
    call: Piece | None = None
    """From the bytes of a value, without their length, to its piece; None: the column is not published."""
    may_replace: bool = False
    """The function may count a replaced value, so the extension leaves such a row to Python."""
    zero: bytes | None = None
    """The piece of a zero date that is not counted."""
    labels: tuple[bytes, ...] = ()
    """The pieces of an enumeration by ordinal."""


class KeyPart(NamedTuple):
    """A column of the key."""

    head: bytes
    column: int
    piece: Piece | None
    """None: the key has the piece of the row."""
    null: bytes


class RowPlan(NamedTuple):
    """The columns of a row, those of its key, and what surrounds them."""

    columns: Sequence[PlanColumn]
    key: Sequence[KeyPart]
    raw_key: Sequence[Callable[[bytes], KeyValue]]
    """The functions of the columns of ``key`` to the raw key, from the bytes of a row image."""
    row_end: bytes
    key_start: bytes
    key_end: bytes


class RowPlans(NamedTuple):
    """The plans of a table version."""

    select_list: str
    result_set: RowPlan
    row_image: RowPlan
    plain_image: RowPlan | None
    """The plan to JSON without schema; None if ``row_image`` is that. Its functions count nothing."""


class PlanBuilder:
    """Makes the plans of one table version."""

    def __init__(
        self,
        table: Table,
        options: ValueOptions,
        projection: ColumnProjection | None,
        record_format: RecordFormat,
        failures: ConversionFailures,
    ) -> None:
        self._table = table
        self._options = options
        self._projection = projection or ColumnProjection()
        self._format = record_format
        self._failures = failures
        self._published = self._projection.visible(table.columns)
        self._fields = dict(zip((c.name for c in self._published), record_format.columns, strict=True))

    def plans(self) -> RowPlans:
        """Return the plans. Raises SchemaError for a column of an unsupported type."""
        record_format = self._format
        forms, ends = (record_format.row_form, record_format.key_form), record_format.key_ends()
        plain = Form(avro=False, exact_nulls=False)
        published, columns = self._published, self._table.columns
        return RowPlans(
            ", ".join(self._type(column, self._failures).select for column in published),
            self._plan(published, forms, ends, self._failures, is_image=False),
            self._plan(columns, forms, ends, self._failures, is_image=True),
            None if record_format.plain else self._plan(columns, (plain, plain), (b"{", b"}"), None, is_image=True),
        )

    def _plan(
        self,
        columns: Sequence[Column],
        forms: tuple[Form, Form],
        key_ends: tuple[bytes, bytes],
        failures: ConversionFailures | None,
        *,
        is_image: bool,
    ) -> RowPlan:
        row_form = forms[0]
        names = [column.name for column in columns]
        planned = [self._column(column, row_form, failures, is_image=is_image) for column in columns]
        key = [names.index(name) for name in self._table.key]
        return RowPlan(
            planned,
            [self._key_part(columns[i], i, forms, is_image=is_image) for i in key],
            [self._type(columns[i], failures).raw_key() for i in key],
            b"" if row_form.avro else b"}",
            *key_ends,
        )

    def _column(self, column: Column, form: Form, failures: ConversionFailures | None, *, is_image: bool) -> PlanColumn:
        of_type = self._type(column, failures)
        width, prefix = of_type.layout
        if column.name in self._projection.dropped:
            return PlanColumn(Fast("skip"), column.nullable, width, prefix)
        field = self._fields[column.name]
        value = of_type.from_image() if is_image else of_type.from_text()
        written, null = self._transformed(of_type, value, form), self._null(column, form, field.schema)
        call = form.piece(written, field.schema, null)
        fast = None
        if written is value:
            fast = of_type.fast_image() if is_image else of_type.fast_text()
        fast = fast or Fast("call")
        zero = None
        if fast.zero is not None:
            zero = form.piece(of_type.from_text(), field.schema, null)(fast.zero)
        return PlanColumn(
            fast,
            column.nullable,
            width,
            prefix,
            form.avro,
            form.head(field.name, "{" if column is self._published[0] else ","),
            form.tag(field.schema),
            null,
            call,
            of_type.may_replace,
            zero,
            tuple(call(ordinal.to_bytes(width, "little")) for ordinal in range(fast.labels)),
        )

    def _key_part(self, column: Column, at: int, forms: tuple[Form, Form], *, is_image: bool) -> KeyPart:
        row_form, key_form = forms
        field = self._fields[column.name]
        head = key_form.head(field.name, "" if column.name == self._table.key[0] else ",")
        if key_form == row_form and column.name not in self._projection.transforms:
            return KeyPart(head, at, None, b"")
        # A value that is replaced is counted for the row.
        of_type, null = self._type(column, None), key_form.null(field.schema)
        value = of_type.from_image() if is_image else of_type.from_text()
        return KeyPart(head, at, key_form.piece(value, field.schema, null), null)

    def _transformed(self, of_type: ColumnType, value: Value, form: Form) -> Value:
        change = self._projection.transforms.get(of_type.column.name)
        return value if change is None else transform(value, change, of_type, avro=form.avro)

    def _null(self, column: Column, form: Form, schema: ConnectSchema) -> bytes:
        change = self._projection.transforms.get(column.name)
        if not isinstance(change, Mask):
            return form.null(schema)
        text = mask(change)
        return form.piece(Value(ValueKind.PLAIN), schema, text)(text)

    def _type(self, column: Column, failures: ConversionFailures | None) -> ColumnType:
        in_key = column.name in self._table.key
        handling = self._options.conversion_failures
        return column_type(
            column, self._options, Conversion(self._table.id, column.name, handling, failures, in_key=in_key)
        )
