"""The one table of types: which family serves a column, for SELECT and for the binlog alike."""

from __future__ import annotations

from typing import Final

from producer.database.table import Column
from producer.types.base import ColumnType
from producer.types.binary import BinaryType
from producer.types.bit import BitType
from producer.types.decimal import DecimalType
from producer.types.enum_set import EnumType, SetType
from producer.types.floating import FloatType
from producer.types.integer import IntegerType
from producer.types.json import JsonType
from producer.types.settings import ValueSettings
from producer.types.spatial import SpatialType
from producer.types.temporal import DatetimeType, DateType, TimestampType, TimeType
from producer.types.text import TextType
from producer.types.vector import VectorType
from producer.types.year import YearType
from schemas.connect import ConnectField
from schemas.errors import SchemaError

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


def column_type(column: Column, settings: ValueSettings) -> ColumnType:
    """Return the type of a column. Raises SchemaError for a kind that is not supported."""
    family = _BY_KIND.get(column.kind)
    if family is None:
        raise SchemaError(
            f"columns of type {column.kind} are not supported",
            hint="exclude the table with table.exclude.list, or convert the column",
            column=column.name,
        )
    return family(column, settings)


def connect_field(column: Column, settings: ValueSettings) -> ConnectField:
    """Return a column as a member of the row's struct."""
    schema = column_type(column, settings).connect()
    return ConnectField(column.name, schema.as_optional() if column.nullable else schema)
