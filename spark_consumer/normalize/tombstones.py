"""Deletes of a compacted topic of which only the tombstone is left.

A delete event is followed by a tombstone. In a topic that is compacted Kafka removes the event in time, and later the
tombstone too. So in such a topic a tombstone whose key has no delete event before it is a delete. One that follows a
delete event of an earlier batch is applied once more, which changes nothing.

A tombstone has no place in the binlog. It is after every change that was read before it in its partition, and before
every later change of its key: its sequence is the next one after the greatest that the partition had. The state keeps
that number of each partition (``MovedKeys.passed``). A tombstone that other records of its key follow has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.source.json_decoder import failure_prefix
from tailrace.spark_consumer.source.kafka import load_remedy
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE, field_type, sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.source.ranges import TopicRange

_TOMBSTONE: Final = "tombstone"
_NO_POSITION: Final = (
    "it is a tombstone, compaction has removed its delete event, and nothing tells its place among the changes; "
    + load_remedy()
)
_NO_KEY: Final = (
    "it is a tombstone, compaction has removed its delete event, and its key does not match the table schema"
)


def with_deletes_of_tombstones(
    records: DataFrame, decoded: DataFrame, schema: TableSchema, found: TopicRange, passed: Mapping[int, Sequence]
) -> DataFrame:
    """Return the decoded records of a range, and a delete for each tombstone that stands for one.

    ``records`` are the same with tombstones. ``passed``: the greatest sequence of each partition before the range.
    """
    tombstones = records.where(fn.col("value").isNull() & fn.col("key").isNotNull()).select(
        "partition", "offset", "key", fn.lit(None).cast(SEQUENCE_TYPE).alias("seq"), fn.lit(_TOMBSTONE).alias("op")
    )
    known = decoded.select("partition", "offset", "key", "seq", "op").unionByName(tombstones)
    own, all_keys = Window.partitionBy("partition", "key").orderBy("offset"), Window.partitionBy("partition")
    until = all_keys.orderBy("offset").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    since = all_keys.orderBy("offset").rowsBetween(Window.currentRow, Window.unboundedFollowing)
    read = reduce(
        lambda column, item: column.when(fn.col("partition") == item[0], sequence_literal(item[1])),
        passed.items(),
        fn.when(fn.lit(False), fn.lit(None).cast(SEQUENCE_TYPE)),
    )
    placed = known.select(
        "partition",
        "offset",
        "key",
        "op",
        fn.last(fn.when(fn.col("op") != _TOMBSTONE, fn.col("op")), ignorenulls=True)
        .over(own.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        .alias("before"),
        fn.lead("op").over(own).alias("after"),
        fn.greatest(fn.max("seq").over(until), read).alias("last"),
        fn.first("seq", ignorenulls=True).over(since).alias("next"),
    )
    begins = [number for number, each in found.partitions.items() if each.start <= 0]
    is_delete = (
        (fn.col("op") == _TOMBSTONE)
        & fn.col("after").isNull()
        & ~fn.col("before").eqNullSafe(Op.DELETE.value)
        # Before the first change of a partition there is nothing to delete.
        & (fn.col("last").isNotNull() | ~fn.col("partition").isin(begins))
    )
    next_row = (fn.col("last")["row"] + 1).alias("row")
    after_last = fn.struct(
        *(next_row if name == "row" else fn.col("last")[name].alias(name) for name in Sequence._fields)
    )
    seq = fn.coalesce(fn.when(fn.col("last").isNotNull(), after_last), fn.col("next"))
    before = _before(schema, decoded.schema["before"].dataType)
    no_key = reduce(or_, (before[name].isNull() for name in schema.key))
    problem = fn.when(seq.isNull(), fn.lit(_NO_POSITION)).when(no_key, fn.lit(_NO_KEY))
    failure = fn.raise_error(fn.concat(failure_prefix(schema), problem))
    values = {
        "seq": seq,
        "op": fn.when(problem.isNotNull(), failure).otherwise(fn.lit(Op.DELETE.value)),
        "incremental": fn.lit(False),
        "before": before,
        **{name: fn.col(name) for name in ("partition", "offset", "key")},
    }
    columns = [values.get(f.name, fn.lit(None)).cast(f.dataType).alias(f.name) for f in decoded.schema]
    return decoded.unionByName(placed.where(is_delete).select(*columns))


def _before(schema: TableSchema, image: tp.DataType) -> Column:
    """Return the image of a deleted row, of which only the key is known."""
    assert isinstance(image, tp.StructType)
    types = {
        c.name: field_type(c.schema, column=c.name, topic=schema.topic) for c in schema.columns if c.name in schema.key
    }
    key = fn.from_json(
        fn.col("key").cast("string"), tp.StructType([tp.StructField(n, t.json) for n, t in types.items()])
    )
    members = []
    for field in image:
        found = types.get(field.name)
        value = fn.lit(None) if found is None else key[field.name]
        members.append(
            (value if found is None or found.decode is None else found.decode(value))
            .cast(field.dataType)
            .alias(field.name)
        )
    return fn.struct(*members)
