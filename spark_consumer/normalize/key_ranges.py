"""Ranges of the keys of a batch: a target reads only the files that can have them.

Only cached records are read: one pass for the least and the greatest value of each key column, and one more if
the values of the first key column have gaps. Text is left out: it would be sorted, and long text has no order in file
statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.rowkind import Op
from tailrace.spark_consumer.source.types import field_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.schemas.table import TableSchema

MAX_RANGES: Final = 16
_BUCKETS: Final = 512
_SPARSE: Final = 4
"""Values for each record in a range, above which its gaps are looked for."""
_INTEGERS: Final = (tp.ShortType, tp.IntegerType, tp.LongType)
_ORDERED: Final = (*_INTEGERS, tp.DecimalType, tp.DateType, tp.TimestampNTZType)


class KeyRange(NamedTuple):
    """The values of one key column, as closed intervals."""

    column: str
    intervals: tuple[tuple[Any, Any], ...]


def key_ranges(records: DataFrame, schema: TableSchema) -> list[KeyRange]:
    """Return the ranges of the keys of decoded records, for the key columns that have an order and no NULLs."""
    columns = _ordered_columns(schema)
    if not columns:
        return []
    values = {name: _value(name) for name, _ in columns}
    bounds = [aggregate(value) for value in values.values() for aggregate in (fn.min, fn.max)]
    row = records.agg(fn.count("*"), *bounds).collect()[0]
    if row[1] is None:
        return []
    found = [KeyRange(name, ((row[1 + 2 * i], row[2 + 2 * i]),)) for i, (name, _) in enumerate(columns)]
    first, kind = columns[0]
    least, greatest = row[1], row[2]
    if first == schema.key[0] and isinstance(kind, _INTEGERS) and greatest - least > _SPARSE * row[0] + _BUCKETS:
        found[0] = KeyRange(first, _intervals(records, values[first], least, greatest))
    return found


def joined(intervals: Iterable[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Return at most ``count`` intervals that contain the given ones, with the greatest gaps left out."""
    found = sorted(intervals)
    gaps = sorted(range(1, len(found)), key=lambda at: found[at - 1][1] - found[at][0])[: count - 1]
    starts = [0, *sorted(gaps), len(found)]
    return [(found[a][0], found[b - 1][1]) for a, b in pairwise(starts)]


def predicate(ranges: Sequence[KeyRange], alias: str, quote: Any) -> str:
    """Return the SQL condition on the key columns of a table; '' if there is none."""
    parts = []
    for found in ranges:
        column = f"{alias}.{quote(found.column)}"
        each = [f"{column} BETWEEN {_literal(low)} AND {_literal(high)}" for low, high in found.intervals]
        parts.append(f"({' OR '.join(each)})")
    return " AND ".join(parts)


def _ordered_columns(schema: TableSchema) -> list[tuple[str, tp.DataType]]:
    by_name = {column.name: column for column in schema.columns}
    found: list[tuple[str, tp.DataType]] = []
    for name in schema.key:
        column = by_name[name]
        kind = field_type(column.schema, column=name, topic=schema.topic).column
        if isinstance(kind, _ORDERED) and not column.schema.optional:
            found.append((name, kind))
    return found


def _value(name: str) -> Column:
    deleted = fn.col("op") == Op.DELETE.value
    return fn.when(deleted, fn.col("before").getField(name)).otherwise(fn.col("after").getField(name))


def _intervals(records: DataFrame, value: Column, least: int, greatest: int) -> tuple[tuple[int, int], ...]:
    width = (greatest - least) // _BUCKETS + 1
    keys = records.select(value.cast(tp.DecimalType(20, 0)).alias("k"))
    bucket = fn.floor((fn.col("k") - fn.lit(least)) / fn.lit(width)).alias("bucket")
    rows = keys.groupBy(bucket).agg(fn.min("k").alias("low"), fn.max("k").alias("high")).collect()
    return tuple(joined(((int(row["low"]), int(row["high"])) for row in rows), MAX_RANGES))


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP_NTZ'{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS DECIMAL(38, {max(0, -int(value.as_tuple().exponent))}))"
    return f"CAST('{value}' AS BIGINT)"
