"""The columns of a captured table as a database stores them, and the values that Spark writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import upsert_columns
from tailrace.spark_consumer.changelog.rowkind import JSON_OPTIONS
from tailrace.spark_consumer.sink.jdbc_dialect import Role, StoredColumn
from tailrace.spark_consumer.source.conversion import convert_value
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.spark_line import VARIANT_TYPES

if TYPE_CHECKING:
    from pyspark.sql import Column

_JSON: Final = "io.debezium.data.Json"
_NESTED: Final = (tp.StructType, tp.ArrayType, tp.MapType, *VARIANT_TYPES)
_TEMPORAL: Final = (tp.DateType, tp.TimestampType, tp.TimestampNTZType)
_SEQUENCE_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column that the target should have; ``kind`` is never a nested type: those are JSON texts."""

    name: str
    kind: tp.DataType
    role: Role
    optional: bool


def target_columns(schema: TableSchema) -> list[TargetColumn]:
    """Return the columns of a captured table."""
    found = []
    for column, field in zip(schema.columns, row_type(schema).fields, strict=True):
        kind, role = field.dataType, Role.KEY if column.name in schema.key else Role.VALUE
        if isinstance(kind, _NESTED):
            kind, role = tp.StringType(), Role.JSON
        elif column.schema.name == _JSON and role is Role.VALUE:
            role = Role.JSON
        found.append(TargetColumn(column.name, kind, role, column.schema.optional and column.name not in schema.key))
    return found


def written_values(schema: TableSchema, stored: Mapping[str, StoredColumn], zone: str) -> dict[str, Column]:
    """Return, by column of the source, the values that Spark writes for the columns that are ``stored``.

    ``stored`` has lower-case names. Dates and times are texts: a driver would convert them by the time zone and the
    calendar of the Java process. A value that the target's column does not represent fails the batch.
    """
    found = {}
    values = zip(target_columns(schema), upsert_columns(schema), row_type(schema).fields, strict=True)
    for column, value, field in values:
        target = stored.get(column.name.lower())
        if target is None:
            continue
        kind = target.kind_for(column.kind) or column.kind
        named = f"column {column.name} of {schema.database}.{schema.table}"
        if isinstance(field.dataType, _NESTED):
            value = fn.to_json(value, JSON_OPTIONS)  # noqa: PLW2901 - one value in several steps
        value, lost = convert_value(value, column.kind, kind)  # noqa: PLW2901
        if lost is not None:
            failure = fn.lit(f"a value of {named} does not fit the target table, whose type is {target.declared}")
            value = fn.when(lost, fn.raise_error(failure).cast(kind)).otherwise(value)  # noqa: PLW2901
        if column.role is Role.KEY and isinstance(kind, tp.StringType) and target.pads:
            failure = fn.lit(
                f"a key in {named} ends with a space, and the target compares keys without spaces at their ends "
                f"({target.declared})"
            )
            value = fn.when(value.endswith(" "), fn.raise_error(failure).cast(kind)).otherwise(value)  # noqa: PLW2901
        if isinstance(kind, tp.FloatType):
            # A driver can print a float, with digits that a server reads as a number beyond the greatest float.
            value = value.cast("double")  # noqa: PLW2901
        found[column.name] = as_text(value, kind, zone) if isinstance(kind, _TEMPORAL) else value
    return found


def as_text(value: Column, kind: tp.DataType, zone: str) -> Column:
    """Return a value as a text that the database reads; binary is in hex."""
    if isinstance(kind, tp.BinaryType):
        return fn.hex(value)
    if isinstance(kind, tp.BooleanType):
        return value.cast("int").cast("string")
    text = value.cast("string")
    return fn.concat(text, fn.lit(zone)) if isinstance(kind, tp.TimestampType) and zone else text


def sequence_bytes(sequence: Sequence) -> bytes:
    """Return a sequence as the target stores it: five numbers of eight bytes, the first byte first."""
    return b"".join(number.to_bytes(8, "big") for number in sequence)


def sequence_binary(sequence: Column) -> Column:
    """Return the sequence of a record as the target stores it."""
    digits = (fn.lpad(fn.hex(sequence.getField(name)), _SEQUENCE_DIGITS, "0") for name in Sequence._fields)
    return fn.unhex(fn.concat(*digits))
