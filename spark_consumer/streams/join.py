"""The inner join of two changelogs, with retractions.

Spark's own join of two streams does not know that a row can be withdrawn: it would join every version of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from tailrace.runtime.errors import SchemaError
from tailrace.spark_consumer.changes import change_type
from tailrace.spark_consumer.streams import texts
from tailrace.spark_consumer.streams.processors import InnerJoin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class JoinSide:
    """One side of a join.

    ``key`` names the key of the rows of the changelog, ``on`` the columns that are compared with the other side. With
    ``ignore_late``, an entry is ignored if the row already has a later version by the order (as in ``materialize``).
    """

    changelog: DataFrame
    key: Sequence[str]
    on: Sequence[str]
    ignore_late: bool = False


def join(left: JoinSide, right: JoinSide, *, order: Sequence[str] = ("sequence",)) -> DataFrame:
    """Return the changelog of the inner join: ``kind``, ``_change_type``, ``left``, ``right`` and ``sequence``.

    ``left`` and ``right`` of the result are the rows. ``sequence`` is the order of the entry that made the change, as
    an array of numbers. Every version of a joined row is retracted before the next one is added. docs/streams.md has an
    example.
    """
    texts.require_state_store(left.changelog.sparkSession)
    schemas = []
    for side in (left, right):
        texts.require_columns(side.changelog, side.key)
        texts.require_columns(side.changelog, side.on)
        schemas.append(texts.row_type(side.changelog))
    compared = [
        [schema[name].dataType for name in side.on] for side, schema in zip((left, right), schemas, strict=True)
    ]
    if compared[0] != compared[1]:
        raise SchemaError(
            "the columns of the join have different types on the two sides",
            hint="cast the columns of one side",
            left=[kind.simpleString() for kind in compared[0]],
            right=[kind.simpleString() for kind in compared[1]],
        )
    entries = _entries(left, order, is_left=True).unionByName(_entries(right, order, is_left=False))
    processor = InnerJoin()
    joined = entries.groupBy("join_key").transformWithState(processor, processor.SCHEMA, "Append", "None")
    return joined.select(
        "kind",
        change_type(fn.col("kind")).alias("_change_type"),
        texts.row_of("left", schemas[0]).alias("left"),
        texts.row_of("right", schemas[1]).alias("right"),
        fn.col("order").alias("sequence"),
    )


def _entries(side: JoinSide, order: Sequence[str], *, is_left: bool) -> DataFrame:
    values = fn.struct(*(fn.col("row")[name].alias(f"on{number}") for number, name in enumerate(side.on)))
    entries = side.changelog
    for name in side.on:
        entries = entries.where(fn.col("row")[name].isNotNull())  # SQL's equality: NULL joins nothing
    return entries.select(
        texts.text(values).alias("join_key"),
        texts.order_numbers(side.changelog, order).alias("order"),
        texts.is_add().alias("is_add"),
        fn.lit(is_left).alias("is_left"),
        texts.key_text(side.key).alias("key"),
        fn.lit(side.ignore_late).alias("ignore_late"),
        "kind",
        texts.row_text().alias("row"),
    )
