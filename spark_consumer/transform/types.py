"""The Connect schema of a computed column, from its Spark type: the reverse of source/types.py."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as tp

from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.spark_consumer.source.types import PLAIN_TYPES, decimal_schema

_NAMED: Final[dict[type[tp.DataType], tuple[str, str]]] = {
    tp.DateType: ("int32", "io.debezium.time.Date"),
    tp.TimestampNTZType: ("int64", "io.debezium.time.MicroTimestamp"),
    tp.TimestampType: ("string", "io.debezium.time.ZonedTimestamp"),
}


def connect_schema(kind: tp.DataType, *, optional: bool) -> ConnectSchema | None:
    """Return the schema of a column of a type; None if no column of a target can have it."""
    if type(kind) in _NAMED:
        plain, name = _NAMED[type(kind)]
        return ConnectSchema(plain, optional=optional, name=name, version=1)
    if isinstance(kind, tp.DecimalType):
        return decimal_schema(kind, optional=optional)
    return _inner(kind, optional=optional)


def _inner(kind: tp.DataType, *, optional: bool = True) -> ConnectSchema | None:
    """Return the schema of a type that a struct, an array or a map can have inside."""
    if isinstance(kind, tp.StructType):
        members = [(each.name, _inner(each.dataType)) for each in kind]
        if any(schema is None for _, schema in members):
            return None
        fields = tuple(ConnectField(name, schema) for name, schema in members if schema is not None)
        return ConnectSchema("struct", optional=optional, fields=fields)
    if isinstance(kind, tp.ArrayType):
        items = _inner(kind.elementType)
        return None if items is None else ConnectSchema("array", optional=optional, items=items)
    if isinstance(kind, tp.MapType):
        values = _inner(kind.valueType)
        if values is None or type(kind.keyType) is not tp.StringType:
            return None
        return ConnectSchema("map", optional=optional, keys=ConnectSchema("string"), values=values)
    if isinstance(kind, tp.StringType) and kind != tp.StringType():
        return None  # it has a collation
    return ConnectSchema(PLAIN_TYPES[type(kind)], optional=optional) if type(kind) in PLAIN_TYPES else None
