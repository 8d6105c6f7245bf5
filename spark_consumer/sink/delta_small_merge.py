"""Merges a batch with few changes into a Delta table of any size: two short queries instead of a MERGE statement.

MERGE plans and runs five queries, and planning costs the same for 100 rows as for 10,000. Here the rows of the batch
are values in the driver. One query finds the rows of the table that have their keys, and the driver compares; another
one writes the new rows. One commit has the new file and the deletion vectors of the files with replaced rows. The
result is that of the MERGE statement (statements.py), whose conditions are used.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.changelog.flatten import DELETED_COLUMN
from tailrace.spark_consumer.local_rows import local_rows, read_bytes
from tailrace.spark_consumer.sink.delta_files import MOST_FILES
from tailrace.spark_consumer.sink.delta_log import Author, columns_of
from tailrace.spark_consumer.sink.delta_rewrite import can_be_rewritten, table_row
from tailrace.spark_consumer.sink.statements import IS_LATER, same_key
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.small_data import SMALL_TABLE, by_operator, interpreted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.spark_consumer.sink.delta_files import DataFile
    from tailrace.spark_consumer.sink.delta_log import LogTransaction
    from tailrace.spark_consumer.sink.statements import RowChanges

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
        transaction.change(found.replaced, added, Author(changes.query, changes.batch, changes.metadata))
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
