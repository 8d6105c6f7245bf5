"""The value that ADD COLUMN gives to the rows that exist: the server writes no row events for them.

The statement has the default as it was written, the catalog as the server inserts it, but possibly of a later
definition. Where both say the same, the value of the catalog is right. Otherwise the value is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

from tailrace.producer.config import ProducerConfig
from tailrace.producer.model.ddl import ColumnAction, ColumnDefinition
from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.registry import connect_field
from tailrace.producer.serialization.column_default import connect_default
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.alteration import AlterationKind, ColumnChange

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
    """Return whether the catalog has the default of the statement."""
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
