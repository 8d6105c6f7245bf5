"""The one table of types: which family serves a column, in the catalog, in result sets and in the binlog.

A new type is one class in its own file and one line in ``FAMILIES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tailrace.producer.model.table import Column, SourceType
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import BinlogColumn, BinlogOption, BinlogType, ColumnType
from tailrace.producer.mysql.types.binary import BinaryType
from tailrace.producer.mysql.types.bit import BitType
from tailrace.producer.mysql.types.conversion import Conversion
from tailrace.producer.mysql.types.date import DateType
from tailrace.producer.mysql.types.datetime import DatetimeType
from tailrace.producer.mysql.types.decimal import DecimalType
from tailrace.producer.mysql.types.enum_set import EnumType, SetType, in_catalog
from tailrace.producer.mysql.types.fixed_binary import FixedBinaryType
from tailrace.producer.mysql.types.floating import FloatType
from tailrace.producer.mysql.types.integer import IntegerType
from tailrace.producer.mysql.types.json import JsonType
from tailrace.producer.mysql.types.spatial import SpatialType
from tailrace.producer.mysql.types.text import TextType
from tailrace.producer.mysql.types.time import TimeType
from tailrace.producer.mysql.types.timestamp import TimestampType
from tailrace.producer.mysql.types.vector import VectorType
from tailrace.producer.mysql.types.year import YearType
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField

FAMILIES: Final[tuple[type[ColumnType], ...]] = (
    IntegerType,
    DecimalType,
    FloatType,
    BitType,
    TextType,
    BinaryType,
    DateType,
    DatetimeType,
    TimestampType,
    TimeType,
    YearType,
    EnumType,
    SetType,
    JsonType,
    SpatialType,
    VectorType,
    FixedBinaryType,
)

_BY_DATA_TYPE: Final = {data_type: family for family in FAMILIES for data_type in family.data_types}
CATALOG_NAMES: Final[Mapping[str, str]] = {
    **{data_type: data_type for data_type in _BY_DATA_TYPE},
    **{name: data_type for family in FAMILIES for name, data_type in family.catalog_names.items()},
}
"""DATA_TYPE of information_schema.COLUMNS -> ``Column.data_type``."""
BINLOG_TYPES: Final[Mapping[int, BinlogType]] = {each.code: each for family in FAMILIES for each in family.binlog_types}
OLD_BINLOG_CODES: Final[Mapping[int, str]] = {
    code: data_type for family in FAMILIES for code, data_type in family.old_binlog_codes.items()
}


def family_of(data_type: str) -> type[ColumnType]:
    """Return the family of a supported ``Column.data_type``."""
    return _BY_DATA_TYPE[data_type]


def binlog_family(column: BinlogColumn) -> type[ColumnType]:
    """Return the family of a column in a TABLE_MAP event; strings of the character set binary are binary strings."""
    if column.type.option is BinlogOption.CHARSET and column.charset == "binary":
        return BinaryType
    return _BY_DATA_TYPE[column.type.data_type]


def source_type(column: Column) -> SourceType:
    """Return the type of a column as SHOW CREATE TABLE has it; without the catalog, as close as the binlog allows."""
    return family_of(column.data_type).source_type(column)


def known_length(column: Column) -> int | None:
    """Return the length that both catalog and binlog contain; None if there is none."""
    return family_of(column.data_type).known_length(column)


def column_type(column: Column, settings: ValueOptions, conversion: Conversion | None = None) -> ColumnType:
    """Return the type of a column. Raises SchemaError for a type that is not supported."""
    family = _BY_DATA_TYPE.get(column.data_type)
    if family is None:
        raise SchemaError(
            f"columns of type {column.data_type} are not supported",
            hint="exclude the table with table.exclude.list, or convert the column",
            column=column.name,
        )
    return family(column, settings, conversion)


def as_in_catalog(column: Column) -> Column:
    """Return a column of a TABLE_MAP event as the catalog has it."""
    return replace(column, enum_values=in_catalog(column.enum_values)) if column.enum_values else column


def connect_field(column: Column, settings: ValueOptions) -> ConnectField:
    """Return a column as a member of the row's struct."""
    schema = column_type(column, settings).connect()
    return ConnectField(column.name, schema.as_optional() if column.nullable else schema)
