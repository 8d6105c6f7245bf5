"""A column's default in its Connect schema: the value that the server inserts, decoded like one of a result set.

A default that is an expression is omitted. For CURRENT_TIMESTAMP Debezium uses the epoch, unless the column is a
nullable TIMESTAMP.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

from tailrace.producer.model.table import Column
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import ValueKind
from tailrace.producer.mysql.types.registry import column_type, connect_field, family_of
from tailrace.producer.mysql.types.text import TextType
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField


def field_with_default(column: Column, name: str, options: ValueOptions) -> ConnectField:
    """Return a column as a field of the row's struct, named ``name``, with the default from the catalog."""
    schema = connect_field(column, options).schema
    return ConnectField(name, replace(schema, default=connect_default(column, options)))


def connect_default(column: Column, options: ValueOptions) -> Any:
    """Return the default as int, float, bool, or text (bytes in base64); None if there is none."""
    data = _stored(column)
    if data is None:
        return None
    if family_of(column.data_type) is TextType:
        return data.decode()  # both sources of a default have UTF-8, whatever the character set of the column
    family = column_type(column, options)
    if family.connect().type in {"struct", "array"}:
        return None
    kind, decode, _ = family.from_text()
    try:
        return _plain(decode(data), kind, column)
    except (ValueError, LookupError, SchemaError) as error:
        raise SchemaError(
            f"the default of column {column.name} cannot be read",
            hint="give the column a default of its own type, or exclude the table",
            default=data.decode("utf-8", "replace"),
            cause=error,
        ) from error


def _stored(column: Column) -> bytes | None:
    """Return the default as a result set would contain it; None if there is none."""
    known = column.catalog
    if known is None or known.default is None or known.generated:
        return None
    if known.default_value is not None:
        return known.default_value
    text = known.default
    family = family_of(column.data_type)
    if known.default_is_expression:
        now = family.allows_current_timestamp and text.upper().startswith("CURRENT_TIMESTAMP")
        return family.current_timestamp(column) if now else None
    return family.default_bytes(column, text)


def _plain(found: Any, kind: ValueKind, column: Column) -> Any:
    """Return a decoded value as parsed JSON."""
    if found is None:
        return None
    if kind in {ValueKind.FLOAT32, ValueKind.FLOAT64, ValueKind.BOOLEAN}:
        return found
    if kind is ValueKind.BYTES:
        return b64encode(found).decode()
    if kind in {ValueKind.PLAIN, ValueKind.TEXT}:
        return found.decode()
    return family_of(column.data_type).default_integer(column, int(found))
