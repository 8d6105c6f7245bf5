"""Writes a batch with few changes to a Delta table of a few kilobytes: all rows of the table again, in one commit.

MERGE plans and runs five queries and writes two files for a changed row. For a table this small the new file with all
rows is about as large as those two. The result is that of the MERGE statement (statements.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.changelog.flatten import DELETED_COLUMN
from tailrace.spark_consumer.column_cache import ColumnCache
from tailrace.spark_consumer.sink.delta_log import Author, columns_of
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.small_data import SMALL_OFFSETS, interpreted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import types as tp

    from tailrace.spark_consumer.sink.delta_log import LogTransaction
    from tailrace.spark_consumer.sink.statements import RowChanges

REWRITTEN_BYTES: Final = 64 << 10
REWRITTEN_FILES: Final = 16
"""A table of at most so many bytes in so many files is written whole: about what a MERGE would add to it."""

_OF_EACH_ROW: Final = ("delta.enableChangeDataFeed", "delta.enableRowTracking")
"""Features that tell which rows a commit has changed."""


def rewrite_small(transaction: LogTransaction, changes: RowChanges) -> bool:
    """Write all rows of a table; return False if nothing was done, because the table or the changes do not fit."""
    if changes.most > SMALL_OFFSETS or not transaction.is_within(REWRITTEN_FILES, REWRITTEN_BYTES):
        return False
    # Of the transaction, and not what the table knows: somebody may have changed them meanwhile.
    metadata = transaction.metadata
    columns = columns_of(metadata)
    if not can_be_rewritten(metadata["configuration"], columns, changes.own, changes.others):
        return False
    with interpreted(changes.rows.sparkSession, when=True):
        transaction.replace(
            lambda stored: merged(stored, changes.rows, DELETED_COLUMN, changes.schema.key, columns),
            Author(changes.query, changes.batch, changes.metadata),
        )
    return True


def can_be_rewritten(
    properties: Mapping[str, str], columns: tp.StructType, own: Collection[str], kept: Collection[str]
) -> bool:
    """Return whether the rows of a table can be written again; ``own`` and ``kept`` are columns.

    Not if somebody follows the changes of single rows, and not if the table has columns of others.
    """
    if any(properties.get(name, "").lower() == "true" for name in _OF_EACH_ROW):
        return False
    known = {name.lower() for name in (*own, *kept, SEQUENCE_COLUMN)}
    return all(name.lower() in known for name in columns.names)


def merged(
    stored: DataFrame, changes: DataFrame, deleted: str, key: Sequence[str], columns: tp.StructType
) -> DataFrame:
    """Return the rows of a table after changes, which have one row for each key and some of the table's columns.

    ``deleted`` names the column of the changes that is true if the key is deleted. A row changes if the sequence of its
    change is greater. A stored row without a sequence, or with another key, stays.
    """
    given = frozenset(name.lower() for name in changes.columns)
    steps = _STEPS.get((columns, tuple(key), given, deleted), lambda: _steps(columns, key, given, deleted))
    rows = changes.select(*steps.of_change).unionAll(stored.select(*steps.of_stored)).coalesce(1)
    return rows.withColumn("stays", steps.stays).withColumns(steps.ranked).where(steps.chosen).select("row.*")


def table_row(columns: tp.StructType, given: Collection[str]) -> list[Column]:
    """Return the columns of a table for rows that have those of ``given``, in lower case; others are NULL."""
    return _ROWS.get((columns, frozenset(given)), lambda: _table_row(columns, given))


_ROWS: Final = ColumnCache["list[Column]"]()


def _table_row(columns: tp.StructType, given: Collection[str]) -> list[Column]:
    return [
        (fn.col(quote(each.name)) if each.name.lower() in given else fn.lit(None).cast(each.dataType)).alias(each.name)
        for each in columns.fields
    ]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The columns of ``merged``."""

    of_change: list[Column]
    of_stored: list[Column]
    stays: Column
    """Whether a row is stored and no change replaces it."""
    ranked: dict[str, Column]
    chosen: Column


_STEPS: Final = ColumnCache[_Steps]()


def _steps(columns: tp.StructType, key: Sequence[str], given: Collection[str], deleted: str) -> _Steps:
    ours = table_row(columns, given)
    theirs = [fn.col(quote(name)) for name in columns.names]
    of_key = Window.partitionBy("key").orderBy(fn.col("is_change").desc(), fn.col("seq").desc())
    whole = of_key.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    is_change = fn.col("is_change")
    newest = fn.first(fn.when(is_change, fn.col("seq"))).over(whole)
    written = is_change & (fn.col("number") == 1) & ~fn.col("deleted") & ~fn.col("blocked")
    return _Steps(
        [*_row(ours, key), fn.col(deleted).alias("deleted"), fn.lit(True).alias("is_change")],
        [*_row(theirs, key), fn.lit(False).alias("deleted"), fn.lit(False).alias("is_change")],
        ~is_change & ~fn.coalesce(newest > fn.col("seq"), fn.lit(False)),
        {"number": fn.row_number().over(of_key), "blocked": fn.max("stays").over(whole)},
        fn.col("stays") | written,
    )


def _row(columns: Sequence[Column], key: Sequence[str]) -> list[Column]:
    row = fn.struct(*columns)
    return [
        row.alias("row"),
        fn.struct(*(row.getField(name).alias(f"k{index}") for index, name in enumerate(key))).alias("key"),
        row.getField(SEQUENCE_COLUMN).alias("seq"),
    ]
