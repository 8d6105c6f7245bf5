"""Converts decoded rows of one schema to the columns and types of the merged schema of their batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import orjson
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.alteration import UNKNOWN, ColumnChange
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.source.common_type import checked_cast, common_type, exact_cast
from tailrace.spark_consumer.source.json_decoder import failure_prefix, image_fields
from tailrace.spark_consumer.source.lineage import Lineages, Origin
from tailrace.spark_consumer.source.sequence import sequence_literal
from tailrace.spark_consumer.source.types import field_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.schemas.connect import ConnectSchema
    from tailrace.schemas.sequence import Sequence as Position
    from tailrace.schemas.table import TableSchema


def convert(decoded: DataFrame, schema: TableSchema, merged: TableSchema, images: Images, found: Lineages) -> DataFrame:
    """Return decoded rows in the columns and types of the merged schema.

    A renamed column keeps its values. A column that was added later has the value that existing rows got, or NULL.
    ``found`` are the lineages of the rows.
    """
    names = [column.name for column in schema.columns]
    if schema == merged and [lineage for _, lineage in found] == [{name.lower(): Origin(name) for name in names}]:
        return decoded
    problem = fn.when(fn.lit(False), fn.lit(""))
    converted: dict[str, Column] = {}
    for image in ("before", "after"):
        known = {column.name: column.schema for column in image_fields(schema, image, images)}
        members = []
        for field in image_fields(merged, image, images):
            target = field_type(field.schema, column=field.name, topic=schema.topic).column
            origins = [(start, lineage.get(field.name.lower(), Origin())) for start, lineage in found]
            values = [_value(image, origin, known, target, schema.topic) for _, origin in origins]
            members.append(_by_position(origins, [value for value, _ in values]).alias(field.name))
            if any(lost is not None for _, lost in values):
                losses = [fn.lit(False) if lost is None else lost for _, lost in values]
                text = f"{image}.{field.name} does not fit {target.simpleString()}, its type after ALTER TABLE"
                problem = problem.when(_by_position(origins, losses), fn.lit(text))
        row = fn.struct(*members) if members else fn.lit(None).cast("struct<>")
        converted[image] = fn.when(fn.col(image).isNotNull(), row)
    failure = fn.raise_error(fn.concat(failure_prefix(schema), problem))
    return decoded.withColumns({**converted, "op": fn.when(problem.isNotNull(), failure).otherwise(fn.col("op"))})


def of_rows(rows: DataFrame, found: Lineages) -> Lineages:
    """Return those of the lineages that rows of one schema have; the last one if there are no rows."""
    number = _by_position(
        [(start, number) for number, (start, _) in enumerate(found)], list(map(fn.lit, range(len(found))))
    )
    used = {row["number"] for row in rows.select(number.alias("number")).distinct().collect()}
    return [each for number, each in enumerate(found) if number in used] or found[-1:]


def added_value(change: ColumnChange, target: tp.DataType, topic: str) -> Column | None:
    """Return the value that existing rows got of an added column; None if it is not known or does not fit."""
    if change.value is UNKNOWN:
        return None
    if change.value is None or change.schema is None:
        return fn.lit(None).cast(target)
    types = field_type(change.schema, column=change.column, topic=topic)
    text = orjson.dumps({"v": change.value}).decode()
    value = fn.from_json(fn.lit(text), tp.StructType([tp.StructField("v", types.json)])).getField("v")
    member, lost = convert_value(value if types.decode is None else types.decode(value), types.column, target)
    message = (
        f"the value that ALTER TABLE gave to column {change.column} of {topic} does not fit {target.simpleString()}"
    )
    return failing(member, lost, target, message)


def _value(
    image: str, origin: Origin, known: Mapping[str, ConnectSchema], target: tp.DataType, topic: str
) -> tuple[Column, Column | None]:
    """Return the value of a column by its origin, and whether it was lost (``convert_value``)."""
    if origin.column not in known:
        added = None if origin.added is None else added_value(origin.added, target, topic)
        return (fn.lit(None).cast(target) if added is None else added), None
    source = field_type(known[origin.column], column=origin.column, topic=topic).column
    return convert_value(fn.col(image).getField(origin.column), source, target)


def _by_position(origins: Sequence[tuple[Position, object]], values: Sequence[Column]) -> Column:
    """Return the value that holds at the position of the row; each origin holds from its position on."""
    chosen = values[0]
    for (start, origin), (_, before), value in zip(origins[1:], origins, values[1:], strict=False):
        if origin != before:
            chosen = fn.when(fn.col("seq") >= sequence_literal(start), value).otherwise(chosen)
    return chosen


def failing(value: Column, lost: Column | None, kind: tp.DataType, text: str, shown: Column | None = None) -> Column:
    """Return a value of a type that fails its query where it is ``lost``, with a text and what is ``shown``."""
    if lost is None:
        return value
    message = fn.lit(text) if shown is None else fn.concat(fn.lit(text), shown.cast("string"))
    return fn.when(lost, fn.raise_error(message).cast(kind)).otherwise(value)


def convert_value(value: Column, source: tp.DataType, target: tp.DataType) -> tuple[Column, Column | None]:
    """Return the value in the target type, and for a conversion that can lose a value, whether it did."""
    if source == target:
        return value, None
    if common_type(source, target) == target:
        return exact_cast(value, source, target), None
    cast = checked_cast(value, source, target)
    return cast, value.isNotNull() & cast.isNull()
