"""A column's default in its Connect schema: the value that the server inserts, decoded like one of a result set.

A default that is an expression is omitted. For CURRENT_TIMESTAMP Debezium uses the epoch, unless the column is a
nullable TIMESTAMP.

ADD COLUMN gives the default to the rows that exist, without row events for them. The statement has the default as it
was written, the catalog as the server inserts it, but possibly of a later definition. Where both say the same, the
value of the catalog is right. Otherwise the value is unknown.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from tailrace.producer.config import ProducerConfig
from tailrace.producer.model.ddl import ColumnAction, ColumnDefinition
from tailrace.producer.model.table import Column
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import ValueKind
from tailrace.producer.mysql.types.registry import column_type, connect_field, family_of
from tailrace.producer.mysql.types.text import TextType
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.alteration import AlterationKind, ColumnChange
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
    if found is None:
        return None
    if kind in {ValueKind.FLOAT32, ValueKind.FLOAT64, ValueKind.BOOLEAN}:
        return found
    if kind is ValueKind.BYTES:
        return b64encode(found).decode()
    if kind in {ValueKind.PLAIN, ValueKind.TEXT}:
        return found.decode()
    return family_of(column.data_type).default_integer(column, int(found))


_IMPLICIT: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"), "0"),
    **dict.fromkeys(("char", "varchar", "text", "varbinary", "blob", "set"), ""),
}
"""What a NOT NULL column without DEFAULT gets, where it does not depend on the mode of the session."""
_NUMBERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"})
_TIMES: Final = frozenset({"date", "datetime", "timestamp", "time"})


def added_column(
    column: Column, name: str, action: ColumnAction, config: ProducerConfig, *, transformed: bool
) -> ColumnChange:
    """Return the change of an added column, which the catalog describes as ``column``, under its published name."""
    unknown = ColumnChange(AlterationKind.ADD, name)
    definition = action.definition
    if definition is None or definition.computed or column.catalog is None or column.catalog.generated:
        return unknown
    options = config.values.options
    schema = connect_field(column, options).schema
    if definition.default is None and definition.nullable and column.nullable:
        return replace(unknown, schema=schema, value=None)
    if transformed or (definition.default is None and definition.nullable):
        return unknown
    if definition.default is None:
        text = _IMPLICIT.get(definition.data_type)
        if text is None or column.data_type != definition.data_type:
            return unknown
        column = replace(column, catalog=replace(column.catalog, default=text, default_value=None))
    elif not _same(definition, column):
        return unknown
    try:
        value = connect_default(column, options)
    except SchemaError:
        return unknown
    return unknown if value is None else replace(unknown, schema=schema, value=value)


def _same(definition: ColumnDefinition, column: Column) -> bool:
    assert column.catalog is not None
    written, known = definition.default, column.catalog.default
    if written is None or known is None or column.catalog.default_is_expression:
        return False
    if written == known:
        return True
    if column.data_type in _NUMBERS:
        try:
            return Decimal(written) == Decimal(known)
        except InvalidOperation:
            return False
    # The server adds the parts of a time that a literal leaves out.
    return column.data_type in _TIMES and known.startswith(written) and not known[len(written) :].strip(" 0:.")
