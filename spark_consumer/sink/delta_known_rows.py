"""The rows of small Delta tables in the driver, as this query has written them last."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.jvm import java_class
from tailrace.spark_consumer.sink.delta_files import RowLayout, sequence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql import types as tp

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

    To read them costs more than they save in one batch. They are kept for tables of which this query writes more.
    Thread-safe; one thread at a time writes a table.
    """

    def __init__(self, most_bytes: int = 64 << 20) -> None:
        """At most so many bytes are kept."""
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, tuple[TableRows, int]] = OrderedDict()
        self._bytes = 0
        self._written: set[str] = set()

    def is_first(self, table: str) -> bool:
        """Return whether nothing is known of a table, and note that there was a batch of it."""
        with self._lock:
            is_first = table not in self._written
            self._written.add(table)
            return is_first

    def was_written(self, table: str) -> bool:
        """Return whether the next batch of a table is not a first one."""
        with self._lock:
            return table in self._written

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
            self._written.add(table)
            self._bytes += size
            while self._bytes > self._most_bytes:
                self._forget(next(iter(self._tables)))

    def _forget(self, table: str) -> None:
        _, size = self._tables.pop(table, (None, 0))
        self._bytes -= size
        self._written.discard(table)
