"""The one table of types: which family serves a column, for SELECT and for the binlog alike."""

from __future__ import annotations

from typing import Final

from tailrace.producer.model.table import Column
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.base import ColumnType
from tailrace.producer.mysql.types.binary import BinaryType
from tailrace.producer.mysql.types.bit import BitType
from tailrace.producer.mysql.types.decimal import DecimalType
from tailrace.producer.mysql.types.enum_set import EnumType, SetType
from tailrace.producer.mysql.types.floating import FloatType
from tailrace.producer.mysql.types.integer import IntegerType
from tailrace.producer.mysql.types.json import JsonType
from tailrace.producer.mysql.types.spatial import SpatialType
from tailrace.producer.mysql.types.temporal import DatetimeType, DateType, TimestampType, TimeType
from tailrace.producer.mysql.types.text import TextType
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
)

_BY_KIND: Final = {kind: family for family in FAMILIES for kind in family.kinds}


def column_type(column: Column, settings: ValueOptions) -> ColumnType:
    """Return the type of a column. Raises SchemaError for a kind that is not supported."""
    family = _BY_KIND.get(column.data_type)
    if family is None:
        raise SchemaError(
            f"columns of type {column.data_type} are not supported",
            hint="exclude the table with table.exclude.list, or convert the column",
            column=column.name,
        )
    return family(column, settings)


def connect_field(column: Column, settings: ValueOptions) -> ConnectField:
    """Return a column as a member of the row's struct."""
    schema = column_type(column, settings).connect()
    return ConnectField(column.name, schema.as_optional() if column.nullable else schema)
