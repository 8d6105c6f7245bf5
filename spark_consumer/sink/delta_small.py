"""Writes a batch with few changes to a Delta table in one commit, without a MERGE statement, and with its result.

MERGE plans and runs five queries, and planning costs the same for 100 rows as for 10,000. It writes two files for a
changed row. For a table of a few kilobytes a new file with all rows is about as large as those two (``rewrite_small``).

For a table of any size (``merge_small``) the rows of the batch are values in the driver. One query finds the rows of
the table that have their keys, and the driver compares; another one writes the new rows. The commit has the new file
and the deletion vectors of the files with replaced rows. The conditions are those of the statement (statements.py).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.in_driver import local_rows, read_bytes
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.sink.delta_files import MOST_FILES
from tailrace.spark_consumer.sink.delta_log import columns_of
from tailrace.spark_consumer.sink.statements import IS_LATER, same_key
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.small_data import SMALL_OFFSETS, SMALL_TABLE, ColumnCache, by_operator, interpreted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.spark_consumer.sink.delta_files import DataFile
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
            changes,
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


FEW_CHANGES: Final = 500
MOST_CHANGES: Final = 10_000
MOST_BYTES: Final = 16 << 20
"""The driver holds at most so many changes, from so many bytes."""

_NUMBER: Final = "_tailrace_number"
_PATH: Final = "_tailrace_path"
_ROW: Final = "_tailrace_row"
_OURS: Final = frozenset((_NUMBER, _PATH, _ROW))
_INTEGERS: Final = (tp.ShortType, tp.IntegerType, tp.LongType)
_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_HARMLESS: Final = ("comment", "delta.columnMapping.", "delta.typeChanges")
"""Metadata of columns with which a value is stored as it is; with other metadata it is computed or checked."""


class _Found(NamedTuple):
    """What the table has of the keys of a batch."""

    replaced: Mapping[DataFile, Sequence[int]]
    """The rows that the batch replaces or deletes, numbered in each file."""
    kept: Collection[int]
    """Changes whose key has a row that stays."""


def merge_small(transaction: LogTransaction, changes: RowChanges) -> bool:
    """Merge changes in one commit; return False if nothing was done, because the table or the changes do not fit."""
    metadata = transaction.metadata
    columns = columns_of(metadata)
    fields = json.loads(metadata["schemaString"])["fields"]
    if (
        changes.most > MOST_CHANGES
        or _OURS.intersection(name.lower() for name in changes.own)
        or not can_be_rewritten(metadata["configuration"], columns, changes.own, changes.others)
        or not all(is_stored_as_given(field["metadata"]) for field in fields)
        or not are_types_of(columns, changes.types)
        or not transaction.has_deletion_vectors
    ):
        return False
    spark = changes.rows.sparkSession
    # A few rows pass in less time than the code for them is generated.
    for_few = interpreted if changes.most <= FEW_CHANGES else by_operator
    with for_few(spark, when=True):
        numbered = changes.rows.withColumn(_NUMBER, fn.monotonically_increasing_id())
        if read_bytes(numbered) > MOST_BYTES:
            return False
        files = transaction.files(MOST_FILES)
        if files is None:
            return False
        rows = local_rows(numbered)
        integers = [name for name in changes.schema.key if isinstance(rows.schema[name].dataType, _INTEGERS)]
        listed = rows.select(_NUMBER, DELETED_COLUMN, *map(quote, integers)).collect()
    physical = {field["name"].lower(): field["metadata"].get(_PHYSICAL_NAME, field["name"]) for field in fields}
    for index, name in enumerate(integers, 2):
        files = _with_values(files, physical[name.lower()], [each[index] for each in listed])
    with by_operator(spark, when=sum(file.size for file in files) <= SMALL_TABLE):
        found = _find(transaction, files, rows, changes)
    if found is None or any(file.records is None for file in found.replaced):
        return False
    added = None
    if any(not each[1] and each[0] not in found.kept for each in listed):
        given = frozenset(name.lower() for name in rows.columns)
        added = rows.where(_is_added(found.kept)).select(*table_row(columns, given)).coalesce(1)
    # Also without a row: the commit says how far the table is.
    with for_few(spark, when=True):
        transaction.change(found.replaced, added, changes)
    return True


def _find(
    transaction: LogTransaction, files: Sequence[DataFile], rows: DataFrame, changes: RowChanges
) -> _Found | None:
    """Return what the table has of the keys; None if a key has several rows in it, or a file another name."""
    if not files:
        return _Found({}, ())
    by_path = {transaction.path_of(file): file for file in files}
    stored = transaction.rows(files)
    origin = stored.metadataColumn("_metadata")  # also if the table has a column of that name
    needed = [fn.col(quote(name)) for name in (*changes.schema.key, SEQUENCE_COLUMN)]
    file_and_row = [origin.getField("file_path").alias(_PATH), origin.getField("row_index").alias(_ROW)]
    stored = stored.select(*needed, *file_and_row).alias("t")
    joined = stored.join(fn.broadcast(rows).alias("s"), fn.expr(same_key(changes.schema)))
    found = joined.select(f"s.{_NUMBER}", f"t.{_PATH}", f"t.{_ROW}", fn.expr(IS_LATER)).collect()
    if len({each[0] for each in found}) < len(found) or len({each[1:3] for each in found}) < len(found):
        return None
    if not all(each[1] in by_path for each in found):
        return None
    replaced: dict[DataFile, list[int]] = {}
    for _, path, row, is_later in found:
        if is_later:
            replaced.setdefault(by_path[path], []).append(row)
    return _Found(replaced, frozenset(each[0] for each in found if not each[3]))


def _with_values(files: Sequence[DataFile], column: str, values: Sequence[int | None]) -> list[DataFile]:
    """Return the files that can have one of some values of a column, by its physical name."""
    if None in values:
        return list(files)
    ordered = sorted(value for value in values if value is not None)

    def has_one(file: DataFile) -> bool:
        bounds = file.bounds(column)
        if bounds is None:
            return True
        at = bisect_left(ordered, bounds[0])
        return at < len(ordered) and ordered[at] <= bounds[1]

    return [file for file in files if has_one(file)]


def _is_added(kept: Collection[int]) -> Column:
    condition = f"NOT {quote(DELETED_COLUMN)}"
    return fn.expr(f"{condition} AND {_NUMBER} NOT IN ({', '.join(map(str, kept))})" if kept else condition)


def are_types_of(columns: tp.StructType, given: Mapping[str, str]) -> bool:
    """Return whether the table has all columns of some changes, in their types.

    Delta writes files with what it is given. Somebody may have changed the columns since they were read. The statement
    casts the values or fails.
    """
    stored = {column.name.lower(): column.dataType.simpleString() for column in columns}
    return all(stored.get(name) == kind for name, kind in given.items() if name != DELETED_COLUMN)


def is_stored_as_given(metadata: Mapping[str, Any]) -> bool:
    """Whether a column with this metadata stores a value as it is."""
    return all(name.startswith(_HARMLESS) for name in metadata)
