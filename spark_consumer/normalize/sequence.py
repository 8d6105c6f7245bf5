"""The order of changes: Kafka's (partition, offset) within a key, and the source's sequence stored with each row.

Sequence fields are numbers, never text: file 999999 is before 1000000 (schemas/sequence.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import Sequence
from tailrace.schemas.watermark import BinlogPosition

if TYPE_CHECKING:
    from pyspark.sql import Column

SEQUENCE_TYPE = tp.StructType(
    [
        tp.StructField("epoch", tp.LongType()),
        tp.StructField("file", tp.LongType()),
        tp.StructField("pos", tp.LongType()),
        tp.StructField("event", tp.LongType()),
        tp.StructField("row", tp.LongType()),
    ]
)


def file_number(file: str) -> int:
    """Return the numeric suffix of a binlog file's name; 0 where the name is empty (nothing logged yet)."""
    suffix = file.rpartition(".")[2]
    return int(suffix) if suffix else 0


def position_sequence(position: BinlogPosition) -> Sequence:
    """Return the sequence of a log position: before every change that begins there."""
    return Sequence(position.epoch, file_number(position.file), position.pos, 0, 0)


def sequence_column(event_header: Column, source: Column) -> Column:
    """Return the sequence struct; a field is NULL where header or source block lack it, which the decoder checks."""
    file = fn.substring_index(source["file"], ".", -1)
    return fn.struct(
        fn.split_part(event_header, fn.lit("."), fn.lit(1)).try_cast("bigint").alias("epoch"),
        file.try_cast("bigint").alias("file"),
        source["pos"].cast("bigint").alias("pos"),
        fn.split_part(event_header, fn.lit("."), fn.lit(2)).try_cast("bigint").alias("event"),
        source["row"].cast("bigint").alias("row"),
    )


def sequence_literal(sequence: Sequence) -> Column:
    """Return a sequence as a literal of SEQUENCE_TYPE."""
    return fn.struct(*(fn.lit(value).cast("bigint").alias(name) for name, value in sequence._asdict().items()))
