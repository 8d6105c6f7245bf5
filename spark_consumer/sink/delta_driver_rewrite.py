"""The small commit of a table of a few kilobytes (delta_small.py): the driver writes all rows, without a job.

The rows that this query of the consumer has written last are known; others are read by a query once. A query in each
batch would cost several times as much as the commit: it is analyzed, planned and described, and runs a job.

Classes of Delta and Spark are called here that other versions may not have. Whatever fails before the commit therefore
has another way: ``NotStagedError``. What fails in the commit may have been committed, and only the ledger tells.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.in_driver import RowFunction, row_sequence, rows_of_type
from tailrace.spark_consumer.jvm import companion, java_class
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.sink.base import DriverBatch, before_commit
from tailrace.spark_consumer.sink.delta_files import RowLayout, sequence
from tailrace.spark_consumer.sink.delta_log import columns_of, is_conflict
from tailrace.spark_consumer.sink.delta_small import SMALL, WHOLE, SmallBatch, table_row, unmet
from tailrace.spark_consumer.sink.statements import Changes, type_names
from tailrace.spark_consumer.small_data import interpreted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.spark_consumer.sink.delta_files import DataFile
    from tailrace.spark_consumer.sink.delta_log import LogTransaction, Staged
    from tailrace.spark_consumer.sink.open_table import OpenTable
    from tailrace.spark_consumer.sink.statements import RowChanges

MOST_ROWS: Final = 2000
"""The driver looks at the key of each row."""

_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions"
_SEPARATOR: Final = "|"
"""Between keys, which are hexadecimal numbers and commas."""


class KeyedRow(NamedTuple):
    """What decides about a row."""

    key: str
    """Its binary form, in hexadecimal."""
    sequence: tuple[int, ...] | None
    """None if the row has no sequence, or one that is not complete."""
    deleted: bool = False


class RowForm:
    """How rows of a table are read in the driver and written; not thread-safe.

    Keys are compared as Spark groups rows: by the bytes of their binary form.
    """

    def __init__(
        self, spark: SparkSession, given: object, columns: tp.StructType, key: Sequence[str], layout: RowLayout
    ) -> None:
        """``given`` is what all this is derived from."""
        self.given = given
        self.layout = layout
        schema, count = layout.schema, len(columns.names)
        by_name = {name.lower(): index for index, name in enumerate(columns.names)}
        refers = java_class(spark, f"{_EXPRESSIONS}.BoundReference")
        of_struct = java_class(spark, f"{_EXPRESSIONS}.GetStructField")
        row = [refers(index, schema.apply(index).dataType(), True) for index in range(count)]
        none = java_class(spark, "scala.Option").empty()
        struct = row[by_name[SEQUENCE_COLUMN.lower()]]
        members = len(columns[SEQUENCE_COLUMN].dataType.names)  # type: ignore[attr-defined]
        numbers = [of_struct(struct, index, none) for index in range(members)]
        boolean = getattr(java_class(spark, "org.apache.spark.sql.types.DataTypes"), "BooleanType")  # noqa: B009
        deleted = refers(count, boolean, False)
        projection = java_class(spark, f"{_EXPRESSIONS}.InterpretedProjection")
        binary = java_class(spark, f"{_EXPRESSIONS}.InterpretedUnsafeProjection").createProjection
        self._key = binary(sequence(spark, *(row[by_name[name.lower()]] for name in key)))
        self._numbers = projection(sequence(spark, *numbers))
        self._change = projection(sequence(spark, deleted, *numbers))
        self._row = projection(sequence(spark, *row))

    def stored(self, rows: Any) -> list[KeyedRow]:
        """Describe rows of the table."""
        return self._described(rows, self._numbers, 0)

    def changes(self, rows: Any) -> list[KeyedRow]:
        """Describe rows that have one more column than the table: whether they are deleted."""
        return self._described(rows, self._change, 1)

    def without_deleted(self, rows: Any) -> Any:
        """Return such rows without that column."""
        return rows.map(self._row)

    def _described(self, rows: Any, numbers: Any, skipped: int) -> list[KeyedRow]:
        # Few calls for all rows. Only an iterator projects one row after the other: the projection of keys returns the
        # same object each time.
        if not rows.size():
            return []
        keys = rows.iterator().map(self._key).mkString(_SEPARATOR).split(_SEPARATOR)
        values = json.loads(f"[{rows.iterator().map(numbers).mkString(',')}]")
        found = []
        for key, value in zip(keys, values, strict=True):
            position = value[skipped:]
            found.append(KeyedRow(key, None if None in position else tuple(position), bool(skipped and value[0])))
        return found


class TableRows(NamedTuple):
    """The rows of a table with certain files."""

    form: RowForm
    content: tuple[str, ...]
    """Of its files (``DataFile.content``): a number of a version does not tell them if a backup was restored."""
    rows: Any
    """A buffer of Scala, which nobody changes."""


class KnownRows:
    """The rows of the small tables that were written last, by the id of the table.

    Thread-safe; one thread at a time writes a table.
    """

    def __init__(self, most_bytes: int = 64 << 20) -> None:
        """At most so many bytes are kept."""
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, tuple[TableRows, int]] = OrderedDict()
        self._bytes = 0

    def of(self, table: str) -> TableRows | None:
        """Return what is known of a table; its files need not be those that the table has now."""
        with self._lock:
            return self._tables.get(table, (None, 0))[0]

    def set(self, spark: SparkSession, table: str, found: TableRows) -> None:
        """Keep the rows of a table; those of tables that were written earlier make room."""
        size = int(java_class(spark, "org.apache.spark.util.SizeEstimator").estimate(found.rows))
        with self._lock:
            self._forget(table)
            self._tables[table] = found, size
            self._bytes += size
            while self._bytes > self._most_bytes:
                self._forget(next(iter(self._tables)))

    def _forget(self, table: str) -> None:
        _, size = self._tables.pop(table, (None, 0))
        self._bytes -= size


class _Rewritten(NamedTuple):
    """A table that is written again, before the commit."""

    staged: Staged
    rows: TableRows


def rewrite_in_driver(transaction: LogTransaction, changes: RowChanges | DriverChanges, known: KnownRows) -> bool:
    """Write all rows of a table; return False if nothing was done, because the table or the changes do not fit.

    Raises NotStagedError if something fails before the commit: the transaction cannot be used for anything else.
    """
    with before_commit(unless=is_conflict):
        if unmet(SmallBatch(transaction, changes), (*SMALL, *WHOLE)):
            return False
    with interpreted(changes.spark, when=True):
        with before_commit(unless=is_conflict):
            rewritten = _rewritten(transaction, changes, known)
        if rewritten is None:
            return False
        transaction.commit_staged(rewritten.staged, changes)
    known.set(changes.spark, transaction.table_id, rewritten.rows)
    return True


def _rewritten(transaction: LogTransaction, changes: RowChanges | DriverChanges, known: KnownRows) -> _Rewritten | None:
    """Write the file; return None if nothing was done, because the rows do not fit."""
    spark, columns = changes.spark, columns_of(transaction.metadata)
    files = transaction.listed()
    if sum(MOST_ROWS + 1 if file.records is None else file.records for file in files) > MOST_ROWS:
        return None
    stored = _stored(transaction, files, columns, changes.schema.key, known)
    if not stored.form.layout.is_plain:
        return None
    rows = _merged(spark, stored, _rows_of(changes, columns))
    if rows is None:
        return None
    staged = transaction.stage(files, stored.form.layout, rows)
    return _Rewritten(staged, TableRows(stored.form, _content(staged.added), rows))


def _rows_of(changes: RowChanges | DriverChanges, columns: tp.StructType) -> Any:
    """Return the changes as rows of the table, with one more column: whether the key is deleted."""
    if isinstance(changes, DriverChanges):
        return changes.rows_of(columns)
    given = frozenset(name.lower() for name in changes.rows.columns)
    return row_sequence(changes.rows.select(*table_row(columns, given), fn.col(DELETED_COLUMN)))


def _stored(
    transaction: LogTransaction,
    files: Sequence[DataFile],
    columns: tp.StructType,
    key: Sequence[str],
    known: KnownRows,
) -> TableRows:
    """Return the rows of the table; a query reads them if this query has not written these files."""
    metadata = transaction.metadata
    given = metadata["schemaString"], metadata["configuration"], metadata["partitionColumns"], tuple(key)
    found = known.of(transaction.table_id)
    if found is not None and found.form.given != given:
        found = None
    if found is not None and found.content == _content(files):
        return found
    rows = transaction.rows(files)
    spark = rows.sparkSession
    form = RowForm(spark, given, columns, key, transaction.layout(rows)) if found is None else found.form
    return TableRows(form, _content(files), row_sequence(rows) if files else sequence(spark))


def _content(files: Iterable[DataFile]) -> tuple[str, ...]:
    return tuple(sorted(file.content for file in files))


def _merged(spark: SparkSession, stored: TableRows, found: Any) -> Any | None:
    """Return the rows of the table after changes; None if that is not simple.

    A row changes if the sequence of its change is greater (statements.py).
    """
    form = stored.form
    changes = form.changes(found)
    by_key: defaultdict[str, list[tuple[int, KeyedRow]]] = defaultdict(list)
    for index, row in enumerate(form.stored(stored.rows)):
        by_key[row.key].append((index, row))
    if len({change.key for change in changes}) < len(changes):
        return None
    replaced: list[int] = []
    left_out: list[int] = []
    for index, change in enumerate(changes):
        same = by_key.get(change.key, ())
        if change.sequence is None or any(row.sequence is None for _, row in same):
            return None
        earlier = [at for at, row in same if row.sequence is not None and change.sequence > row.sequence]
        replaced += earlier
        if change.deleted or len(earlier) < len(same):
            left_out.append(index)
    buffers = companion(spark, "scala.collection.mutable.ArrayBuffer")
    rows, added = getattr(buffers, "from")(stored.rows), getattr(buffers, "from")(form.without_deleted(found))
    for buffer, indexes in ((rows, replaced), (added, left_out)):
        for index in sorted(indexes, reverse=True):
            buffer.remove(index, 1)
    rows.addAll(added)
    return rows


class ChangePlan:
    """How decoded records of one schema become rows of a table; for one thread at a time."""

    def __init__(self, given: object, source: DataFrame) -> None:
        """``given`` is what ``source`` is derived from: the rows of a batch, to be planned and not to be computed."""
        self.given = given
        self.types: Mapping[str, str] = type_names(source.schema)
        """As ``RowChanges.types``."""
        self._source = source
        self._planned: tuple[tp.StructType, RowFunction] | None = None

    def rows_of(self, columns: tp.StructType, rows: Any) -> Any:
        """Return decoded records as rows with some columns and, last, whether the key is deleted."""
        if self._planned is None or self._planned[0] != columns:
            own = table_row(columns, frozenset(name.lower() for name in self._source.columns))
            self._planned = columns, RowFunction(self._source.select(*own, fn.col(DELETED_COLUMN)))
        return self._planned[1].of(rows)


def change_plan(opened: OpenTable[Any], batch: DriverBatch, known: ChangePlan | None) -> ChangePlan:
    """Return how the records of a batch become rows of a table; ``known`` if it still tells that."""
    given = batch.type, opened.table.columns, batch.schema, opened.evolved, opened.layout
    if known is not None and known.given == given:
        return known
    columns = opened.stored_columns(batch.schema)
    return ChangePlan(given, rows_of_type(batch.spark, batch.type).select(*columns, opened.layout.removed))


@dataclass(frozen=True, slots=True)
class DriverChanges(Changes):
    """The last change of each key of a batch: like ``RowChanges``, but only ``rewrite_in_driver`` can write it."""

    plan: ChangePlan
    decoded: Any
    """A sequence of Scala with decoded records."""

    @property
    def types(self) -> Mapping[str, str]:
        """The types of the rows, by name in lower case."""
        return self.plan.types

    def rows_of(self, columns: tp.StructType) -> Any:
        """Return the changes as rows with the columns of the table and, last, whether the key is deleted."""
        return self.plan.rows_of(columns, self.decoded)
