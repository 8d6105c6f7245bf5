"""The columns of a captured table as a database stores them, and how Spark writes and reads their values.

Rows are written to a staging table, and read as texts, so that no driver converts their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.sequence import Sequence as Position
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS
from tailrace.spark_consumer.sink.jdbc_dialect import Role, StoredColumn
from tailrace.spark_consumer.sink.shape import RECORD, SEEN, SEEN_AT, UNTIL, Layout
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.source.common_type import convert_value, failing
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE
from tailrace.spark_consumer.spark_line import VARIANT_TYPES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tailrace.spark_consumer.sink.jdbc_table import JdbcTable

_JSON: Final = "io.debezium.data.Json"
_NESTED: Final = (tp.StructType, tp.ArrayType, tp.MapType, *VARIANT_TYPES)
_TEMPORAL: Final = (tp.DateType, tp.TimestampType, tp.TimestampNTZType)
_SEQUENCE_DIGITS: Final = 16
_FETCHED: Final = "10000"
"""Rows that an executor gets at a time."""
DELETED: Final = "deleted"
"""Column of a staging table: whether the row of the key is removed."""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column that the target should have; ``kind`` is never a nested type: those are JSON texts."""

    name: str
    kind: tp.DataType
    role: Role
    optional: bool


@dataclass(frozen=True)
class TargetForm:
    """The columns of the target of a captured table: those of the source, the sequence, and those of the layout."""

    schema: TableSchema
    layout: Layout

    @cached_property
    def source(self) -> list[TargetColumn]:
        """The columns of the captured table."""
        found = []
        for column, field in zip(self.schema.columns, row_type(self.schema).fields, strict=True):
            kind, role = field.dataType, Role.KEY if column.name in self.schema.key else Role.VALUE
            if isinstance(kind, _NESTED):
                kind, role = tp.StringType(), Role.JSON
            elif column.schema.name == _JSON and role is Role.VALUE:
                role = Role.JSON
            if role is Role.JSON and self.layout.shape == "scd2":
                role = Role.VALUE  # databases change JSON texts, and values are compared with those that are stored
            optional = column.schema.optional and column.name not in self.schema.key
            found.append(TargetColumn(column.name, kind, role, optional))
        return found

    @cached_property
    def added(self) -> list[TargetColumn]:
        """The columns of the layout."""
        return [column for field in self.layout.columns for column in _of_layout(field)]

    @cached_property
    def own(self) -> list[TargetColumn]:
        """The columns that the shape needs."""
        return [column for field in self.layout.own_columns for column in _of_layout(field)]

    @property
    def added_names(self) -> list[str]:
        """The names of the columns of the layout."""
        return [column.name for column in self.added]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that no two rows have alike."""
        if self.layout.shape == "history":
            return RECORD
        return (*self.schema.key, SEQUENCE_COLUMN) if self.layout.shape == "scd2" else tuple(self.schema.key)

    @property
    def keys(self) -> int:
        """The number of columns that share the length of an index."""
        return len(self.schema.key) + (self.layout.shape == "scd2")


def _of_layout(field: tp.StructField) -> list[TargetColumn]:
    """Return the columns for one of a layout; structs are several."""
    if field.name == SEEN:
        sequence = TargetColumn(SEEN, tp.BinaryType(), Role.SEQUENCE, optional=True)
        return [sequence, TargetColumn(SEEN_AT, tp.TimestampType(), Role.VALUE, optional=True)]
    if field.dataType == SEQUENCE_TYPE:
        return [TargetColumn(field.name, tp.BinaryType(), Role.SEQUENCE, optional=True)]
    if field.name in RECORD:
        return [TargetColumn(field.name, field.dataType, Role.KEY, optional=False)]
    return [TargetColumn(field.name, field.dataType, Role.VALUE, optional=True)]


def converted_values(
    form: TargetForm,
    stored: Mapping[str, StoredColumn],
    values: Iterable[Column],
    *,
    holds_nul: bool,
) -> list[Column]:
    """Return the values of the columns of the source that are ``stored``, in the types of the target.

    ``stored`` has lower-case names; ``values`` has one for each column of the schema. A value that the target's column
    does not represent fails the batch.
    """
    found = []
    schema = form.schema
    for column, value, field in zip(form.source, values, row_type(schema).fields, strict=True):
        target = stored.get(column.name.lower())
        if target is None:
            continue
        kind = target.written_as(column.kind)
        named = f"column {column.name} of {schema.database}.{schema.table}"
        if isinstance(field.dataType, _NESTED):
            value = fn.to_json(value, JSON_OPTIONS)  # noqa: PLW2901 - one value in several steps
        failure = f"a value of {named} does not fit the target table, whose type is {target.declared}"
        value = failing(*convert_value(value, column.kind, kind), kind, failure)  # noqa: PLW2901
        if not holds_nul and isinstance(kind, tp.StringType):
            failure = (
                f"a value of {named} has the character U+0000, which no text of the target database can have; a "
                f"transform can replace it with replace({quote(column.name)}, char(0), '')"
            )
            value = failing(value, value.contains("\0"), kind, failure)  # noqa: PLW2901
        if column.role is Role.KEY and isinstance(kind, tp.StringType) and target.pads:
            failure = (
                f"a key in {named} ends with a space, and the target compares keys without spaces at their ends "
                f"({target.declared})"
            )
            value = failing(value, value.endswith(" "), kind, failure)  # noqa: PLW2901
        found.append(value.alias(column.name))
    return found


def staged_value(value: Column, kind: tp.DataType, zone: str) -> Column:
    """Return a value of a type of the target as Spark writes it.

    Dates and times are texts: a driver would convert them by the time zone and the calendar of the Java process.
    """
    if isinstance(kind, tp.FloatType):
        # A driver can print a float, with digits that a server reads as a number beyond the greatest float.
        return value.cast("double")
    return as_text(value, kind, zone) if isinstance(kind, _TEMPORAL) else value


def layout_value(column: TargetColumn, zone: str) -> Column:
    """Return the value of a column of the layout as Spark writes it, from a row with the columns of the layout."""
    if column.name == SEEN_AT:
        return staged_value(fn.col(SEEN).getField("at"), column.kind, zone)
    if column.role is Role.SEQUENCE:
        return sequence_binary(fn.col(SEEN).getField("seq") if column.name == SEEN else fn.col(column.name))
    return staged_value(fn.col(quote(column.name)), column.kind, zone)


def read_value(text: Column, kind: tp.DataType) -> Column:
    """Return the value of a text that the target has given (``Dialect.text_of``)."""
    if isinstance(kind, tp.BinaryType):
        return fn.unhex(text)
    return fn.concat(text, fn.lit("Z")).cast(kind) if isinstance(kind, tp.TimestampType) else text.cast(kind)


def read_sequence(text: Column) -> Column:
    """Return the sequence of a text that the target has given."""
    parts = (
        fn.conv(fn.substring(text, 1 + number * _SEQUENCE_DIGITS, _SEQUENCE_DIGITS), 16, 10).cast("bigint").alias(name)
        for number, name in enumerate(Position._fields)
    )
    return fn.when(text.isNotNull(), fn.struct(*parts))


def as_text(value: Column, kind: tp.DataType, zone: str) -> Column:
    """Return a value as a text that the database reads; binary is in hex."""
    if isinstance(kind, tp.BinaryType):
        return fn.hex(value)
    if isinstance(kind, tp.BooleanType):
        return value.cast("int").cast("string")
    text = value.cast("string")
    return fn.concat(text, fn.lit(zone)) if isinstance(kind, tp.TimestampType) and zone else text


def parameter_of(value: str, kind: tp.DataType, zone: str) -> str:
    """Return the text of a value, as Spark shows it, for ``Dialect.text_value``."""
    if isinstance(kind, tp.BooleanType):
        return "1" if value == "true" else "0"
    if isinstance(kind, tp.BinaryType):
        return value.encode().hex()
    return f"{value}{zone}" if isinstance(kind, tp.TimestampType) else value


def sequence_bytes(sequence: Position) -> bytes:
    """Return a sequence as the target stores it: five numbers of eight bytes, the first byte first."""
    return b"".join(number.to_bytes(8, "big") for number in sequence)


def sequence_binary(sequence: Column) -> Column:
    """Return the sequence of a record as the target stores it."""
    digits = (fn.lpad(fn.hex(sequence.getField(name)), _SEQUENCE_DIGITS, "0") for name in Position._fields)
    return fn.unhex(fn.concat(*digits))


@dataclass(frozen=True, slots=True)
class StagedColumn:
    """A column of a staging table; the columns of one are named by their place: c0, c1, …"""

    name: str
    """The column of the target."""
    value: Column
    declared: str


def staged(rows: DataFrame, columns: Sequence[StagedColumn], sequence: Column, deleted: Column) -> DataFrame:
    """Return rows as a staging table has them."""
    values = [each.value.alias(f"c{number}") for number, each in enumerate(columns)]
    return rows.select(*values, sequence_binary(sequence).alias(SEQUENCE_COLUMN), deleted.alias(DELETED))


def stored_kinds(table: JdbcTable, columns: Iterable[TargetColumn]) -> dict[str, tp.DataType]:
    """Return the types of those columns that the table has, by name."""
    stored = table.present
    found = ((column, stored.column(column.name)) for column in columns)
    return {column.name: each.written_as(column.kind) for column, each in found if each is not None}


def _column(table: JdbcTable, name: str) -> str:
    """Return a column of the table ``t``."""
    return f"t.{table.dialect.quote(table.present.spelled(name))}"


def read_texts(
    spark: SparkSession,
    options: Mapping[str, str],
    table: JdbcTable,
    kinds: Mapping[str, tp.DataType],
    rest: str = "",
) -> DataFrame:
    """Return columns of a table, which the query calls ``t``, as texts: so no driver converts them (``read_value``).

    ``options`` are those of Spark's reader; ``rest`` is the end of the query, with joins and conditions.
    """
    dialect, names = table.dialect, {name: f"c{number}" for number, name in enumerate(kinds)}
    shown = (f"{dialect.text_of(_column(table, name), kind)} AS {names[name]}" for name, kind in kinds.items())
    frame = (
        spark.read.format("jdbc")
        .options(**{**options, **dialect.reading, "fetchsize": _FETCHED, "pushDownPredicate": "false"})
        .option("query", f"SELECT {', '.join(shown)} FROM {table.name} AS t{rest}")
        .option("customSchema", ", ".join(f"{name} STRING" for name in names.values()))
        .load()
    )
    return frame.select(*(fn.col(own).alias(name) for name, own in names.items()))


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """The stored versions (versions.py) of one table, as Spark reads them; ``options`` are those of its reader.

    Only the versions that a write concerns are read: the keys of the batch are in a staging table, and the database
    finds their versions by the unique index. All values are read as texts, so that no driver converts them.
    """

    spark: SparkSession
    options: Mapping[str, str]
    table: JdbcTable
    source: Sequence[str]
    """The columns of the source that the table has."""

    def valid_at(self, sequence: Position) -> DataFrame:
        """Return the versions that begin before a sequence and end behind it."""
        bound, until = self.table.dialect.binary(sequence_bytes(sequence)), _column(self.table, UNTIL)
        return self._read(
            f"{_column(self.table, SEQUENCE_COLUMN)} < {bound} AND ({until} IS NULL OR {until} > {bound})"
        )

    def ending_behind(self, stage: str) -> DataFrame:
        """Return the versions of the keys in a staging table that end behind the sequence there, or have no end."""
        quote, until = self.table.dialect.quote, _column(self.table, UNTIL)
        key = {name: quote(f"c{number}") for number, name in enumerate(self.table.form.schema.key)}
        sequence = quote(SEQUENCE_COLUMN)
        same = (f"{_column(self.table, name)} = s.{own}" for name, own in key.items())
        concerned = " AND ".join((*same, f"({until} IS NULL OR {until} >= s.{sequence})"))
        # A task that ran again has staged its keys twice.
        keys = f"SELECT DISTINCT {', '.join((*key.values(), sequence))} FROM {stage}"
        return self._read("TRUE", f" JOIN ({keys}) AS s ON {concerned}")

    def _kinds(self) -> dict[str, tp.DataType]:
        """Return the types of the columns that are read, by name."""
        names = {*self.source, *self.table.form.added_names}
        columns = (column for column in (*self.table.form.source, *self.table.form.added) if column.name in names)
        return {SEQUENCE_COLUMN: tp.BinaryType(), **stored_kinds(self.table, columns)}

    def _read(self, condition: str, join: str = "") -> DataFrame:
        kinds = self._kinds()
        frame = read_texts(self.spark, self.options, self.table, kinds, f"{join} WHERE {condition}")
        texts = {name: fn.col(quote(name)) for name in kinds}
        added = self.table.form.added
        sequences = {SEQUENCE_COLUMN, *(column.name for column in added if column.role is Role.SEQUENCE)}
        values: dict[str, Column] = {
            name: read_sequence(text) if name in sequences else read_value(text, kinds[name])
            for name, text in texts.items()
        }
        seen = fn.struct(values.pop(SEEN).alias("seq"), values.pop(SEEN_AT).alias("at"))
        columns = [value.alias(name) for name, value in values.items()]
        return frame.select(*columns, fn.when(texts[SEEN].isNotNull(), seen).alias(SEEN))
