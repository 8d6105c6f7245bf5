"""The sequence of a record as a Spark column, built from the event header and the source block.

The fields are numbers, never text: binlog file 999999 comes before file 1000000 (schemas/sequence.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.spark_line import try_cast

if TYPE_CHECKING:
    from pyspark.sql import Column

SEQUENCE_TYPE: Final = tp.StructType([tp.StructField(name, tp.LongType()) for name in Sequence._fields])


def sequence_column(event_header: Column, source: Column) -> Column:
    """Return the sequence struct of a record; a field is NULL if the header or the source block lacks it."""
    file = fn.substring_index(source["file"], ".", -1)
    # Without split_part, which compiles a regular expression for each record.
    epoch = fn.substring_index(event_header, ".", 1)
    after_epoch = fn.substr(event_header, fn.length(epoch) + 2)
    return fn.struct(
        try_cast(epoch, "bigint").alias("epoch"),
        try_cast(file, "bigint").alias("file"),
        source["pos"].cast("bigint").alias("pos"),
        try_cast(fn.substring_index(after_epoch, ".", 1), "bigint").alias("event"),
        source["row"].cast("bigint").alias("row"),
    )


def sequence_literal(sequence: Sequence) -> Column:
    """Return a sequence as a literal of SEQUENCE_TYPE."""
    return fn.struct(*(fn.lit(value).cast("bigint").alias(name) for name, value in sequence._asdict().items()))
