"""FLOAT(M,D), which is written as a double: its digits are in the catalog, not in a TABLE_MAP event."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.table import CatalogTable, Column, Table, TableId
from tailrace.runtime.errors import SchemaError


def with_float_digits(columns: Iterable[Column], known: Iterable[Column]) -> tuple[Column, ...]:
    """Return columns of a TABLE_MAP event with the digits that columns of the catalog have, where both are the same."""
    digits = {column.name: column for column in known if column.data_type == "float"}
    return tuple(
        replace(column, precision=digits[column.name].precision, scale=digits[column.name].scale)
        if column.name in digits and _without_digits(digits[column.name]) == column
        else column
        for column in columns
    )


def known_definition(
    definition: CatalogTable | TableVersion, read_catalog: Callable[[TableId], CatalogTable]
) -> CatalogTable | TableVersion:
    """Return a definition with the digits of its FLOAT columns. Without a catalog entry they are written as floats."""
    if isinstance(definition, CatalogTable) or all(column.data_type != "float" for column in definition.columns):
        return definition
    try:
        known = read_catalog(definition.id).table.columns
    except SchemaError:
        return definition
    return definition._replace(columns=with_float_digits(definition.columns, known))


def float_keys(table: Table) -> Table:
    """Return a table whose key has no FLOAT(M,D) but FLOAT: the catalog of a later time must not change its bytes."""
    columns = (_without_digits(each) if each.name in table.key else each for each in table.columns)
    return replace(table, columns=tuple(columns))


def _without_digits(column: Column) -> Column:
    return replace(column, precision=0, scale=0) if column.data_type == "float" and column.precision else column
