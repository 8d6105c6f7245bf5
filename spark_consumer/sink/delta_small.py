"""Merges a batch with few changes into a Delta table in one small commit, without a MERGE statement.

MERGE plans and runs five queries, and planning costs the same for 100 rows as for 10,000. A small commit takes the
changes and what the table has of their keys as values in the driver, and has the result of the statement
(statements.py). The commit has a new file and, of the files with replaced rows, deletion vectors (``merge_small``). A
table of a few kilobytes is written again as a whole, without a query (delta_driver_rewrite.py): a new file with all
rows is about as large as what MERGE would add to it.

``SMALL``, ``MARKED`` and ``WHOLE`` are conditions on a table and a batch; docs/sinks/delta.md lists their texts.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.in_driver import local_rows, read_bytes
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.sink.delta_files import MOST_FILES
from tailrace.spark_consumer.sink.delta_log import columns_of
from tailrace.spark_consumer.sink.statements import IS_LATER, same_key
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.small_data import SMALL_TABLE, ColumnCache, by_operator, interpreted
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.spark_consumer.sink.delta_files import DataFile
    from tailrace.spark_consumer.sink.delta_log import LogTransaction
    from tailrace.spark_consumer.sink.statements import Changes, RowChanges

MOST_CHANGES: Final = 10_000
MOST_BYTES: Final = 16 << 20
"""The driver holds at most so many changes, from so many bytes."""
FEW_CHANGES: Final = 500
"""So few changes pass in less time than the code for them is generated."""
REWRITTEN_BYTES: Final = 64 << 10
REWRITTEN_FILES: Final = 16

_NUMBER: Final = "_tailrace_number"
_PATH: Final = "_tailrace_path"
_ROW: Final = "_tailrace_row"
_OURS: Final = frozenset((_NUMBER, _PATH, _ROW))
_INTEGERS: Final = (tp.ShortType, tp.IntegerType, tp.LongType)
_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_HARMLESS: Final = ("comment", "delta.columnMapping.", "delta.typeChanges")
"""Metadata of columns with which a value is stored as it is; with other metadata it is computed or checked."""
_OF_EACH_ROW: Final = ("delta.enableChangeDataFeed", "delta.enableRowTracking")
"""Features that tell which rows a commit has changed."""
_OF_ONE_FORM: Final = (
    tp.BooleanType,
    tp.ByteType,
    tp.ShortType,
    tp.IntegerType,
    tp.LongType,
    tp.DecimalType,
    tp.StringType,
    tp.BinaryType,
    tp.DateType,
    tp.TimestampType,
    tp.TimestampNTZType,
)
"""Types whose equal values have the same bytes, text unless it has a collation."""
_PLAIN: Final = (*_OF_ONE_FORM, tp.FloatType, tp.DoubleType)
_PLAIN_PROPERTIES: Final = frozenset(
    (
        "delta.checkpointInterval",
        "delta.columnMapping.maxColumnId",
        "delta.columnMapping.mode",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.deletedFileRetentionDuration",
        "delta.enableChangeDataFeed",
        "delta.enableDeletionVectors",
        "delta.enableRowTracking",
        "delta.enableTypeWidening",
        "delta.logRetentionDuration",
    )
)
"""Properties with which files are written as without them, where ``SMALL`` holds."""
_MAX_RECORDS: Final = "spark.sql.files.maxRecordsPerFile"


class SmallBatch:
    """What the conditions of a small commit look at."""

    def __init__(self, transaction: LogTransaction, changes: Changes) -> None:
        self.transaction, self.changes = transaction, changes
        # Of the transaction, and not what the table knows: somebody may have changed them meanwhile.
        self.metadata = transaction.metadata
        self.columns = columns_of(self.metadata)
        self.properties: Mapping[str, str] = self.metadata["configuration"]
        self.key = frozenset(name.lower() for name in changes.schema.key)

    @cached_property
    def fields(self) -> Sequence[Mapping[str, Any]]:
        """The columns with the metadata that only Delta's files need."""
        found: Sequence[Mapping[str, Any]] = json.loads(self.metadata["schemaString"])["fields"]
        return found


class Condition(NamedTuple):
    """One that a table and a batch must meet."""

    text: str
    holds: Callable[[SmallBatch], bool]


def unmet(batch: SmallBatch, conditions: Iterable[Condition]) -> Condition | None:
    """Return the first condition that a batch does not meet."""
    return next((each for each in conditions if not each.holds(batch)), None)


def _has_only_known_columns(batch: SmallBatch) -> bool:
    known = {name.lower() for name in (*batch.changes.own, *batch.changes.others, SEQUENCE_COLUMN)}
    return all(name.lower() in known for name in batch.columns.names)


def _has_types_of_changes(batch: SmallBatch) -> bool:
    # Delta writes files with what it is given, and somebody may have changed the columns since they were read. The
    # statement casts the values or fails.
    stored = {column.name.lower(): column.dataType.simpleString() for column in batch.columns}
    return all(stored.get(name) == kind for name, kind in batch.changes.types.items() if name != DELETED_COLUMN)


def _has_plain_column(column: tp.StructField, *, is_key: bool) -> bool:
    if not column.nullable:
        return False  # Delta checks it
    if column.name == SEQUENCE_COLUMN:
        return column.dataType == SEQUENCE_TYPE
    if isinstance(column.dataType, tp.StringType):
        return column.dataType == tp.StringType()
    return isinstance(column.dataType, _OF_ONE_FORM if is_key else _PLAIN)


SMALL: Final = (
    Condition(
        "the table is at a path",
        lambda batch: batch.transaction.is_at_path,
    ),
    Condition(
        f"the batch has up to {MOST_CHANGES:,} offsets",
        lambda batch: batch.changes.most <= MOST_CHANGES,
    ),
    Condition(
        "`delta.enableChangeDataFeed` and `delta.enableRowTracking` are off",
        lambda batch: not any(batch.properties.get(name, "").lower() == "true" for name in _OF_EACH_ROW),
    ),
    Condition(
        "the source has, or had, all columns of the table",
        _has_only_known_columns,
    ),
    Condition(
        "Delta computes and checks no column",
        lambda batch: all(name.startswith(_HARMLESS) for field in batch.fields for name in field["metadata"]),
    ),
    Condition(
        "the columns have the types of the batch",
        _has_types_of_changes,
    ),
)
"""Of each small commit."""

MARKED: Final = (
    Condition(
        "`delta.enableDeletionVectors` is on",
        lambda batch: batch.transaction.has_deletion_vectors,
    ),
    Condition(
        f"no column is named {', '.join(f'`{name}`' for name in sorted(_OURS))}",
        lambda batch: not _OURS.intersection(name.lower() for name in batch.changes.own),
    ),
)
"""Besides ``SMALL``: of one that marks rows as deleted. Also: files, bytes of the batch, and one row of each key."""

WHOLE: Final = (
    Condition(
        f"the batch has up to {FEW_CHANGES} offsets",
        lambda batch: batch.changes.most <= FEW_CHANGES,
    ),
    Condition(
        f"Delta has the list of files in memory: up to {REWRITTEN_FILES} with up to {REWRITTEN_BYTES >> 10} KB",
        lambda batch: batch.transaction.is_within(REWRITTEN_FILES, REWRITTEN_BYTES),
    ),
    Condition(
        "the table has no partitions",
        lambda batch: not batch.metadata["partitionColumns"],
    ),
    Condition(
        "its `delta.` properties are those that the sink sets, or say how long files are kept",
        lambda batch: all(name in _PLAIN_PROPERTIES or not name.startswith("delta.") for name in batch.properties),
    ),
    Condition(
        "columns are of atomic types without a collation, those of the key no floating-point numbers",
        lambda batch: all(
            _has_plain_column(column, is_key=column.name.lower() in batch.key) for column in batch.columns
        ),
    ),
    Condition(
        f"`{_MAX_RECORDS}` is not set",
        lambda batch: not int(batch.changes.spark.conf.get(_MAX_RECORDS) or 0),
    ),
)
"""Besides ``SMALL``: of one that writes all rows. Also: rows, one change and complete sequences of each key."""


def table_row(columns: tp.StructType, given: Collection[str]) -> list[Column]:
    """Return the columns of a table for rows that have those of ``given``, in lower case; others are NULL."""
    return _ROWS.get((columns, frozenset(given)), lambda: _table_row(columns, given))


_ROWS: Final = ColumnCache["list[Column]"]()


def _table_row(columns: tp.StructType, given: Collection[str]) -> list[Column]:
    return [
        (fn.col(quote(each.name)) if each.name.lower() in given else fn.lit(None).cast(each.dataType)).alias(each.name)
        for each in columns.fields
    ]


class _Found(NamedTuple):
    """What the table has of the keys of a batch."""

    replaced: Mapping[DataFile, Sequence[int]]
    """The rows that the batch replaces or deletes, numbered in each file."""
    kept: Collection[int]
    """Changes whose key has a row that stays."""


def merge_small(transaction: LogTransaction, changes: RowChanges) -> bool:
    """Merge changes in one commit; return False if nothing was done, because the table or the changes do not fit."""
    batch = SmallBatch(transaction, changes)
    if unmet(batch, (*SMALL, *MARKED)):
        return False
    spark = changes.spark
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
    physical = {field["name"].lower(): field["metadata"].get(_PHYSICAL_NAME, field["name"]) for field in batch.fields}
    for index, name in enumerate(integers, 2):
        files = _with_values(files, physical[name.lower()], [each[index] for each in listed])
    with by_operator(spark, when=sum(file.size for file in files) <= SMALL_TABLE):
        found = _find(transaction, files, rows, changes)
    if found is None or any(file.records is None for file in found.replaced):
        return False
    added = None
    if any(not each[1] and each[0] not in found.kept for each in listed):
        given = frozenset(name.lower() for name in rows.columns)
        added = rows.where(_is_added(found.kept)).select(*table_row(batch.columns, given)).coalesce(1)
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
