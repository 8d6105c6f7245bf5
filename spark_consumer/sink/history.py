"""The rows of a history: the changelog of a table as rows that are only added.

A row names the record that it comes from (``__partition``, ``__offset``) and its place among the rows of the record
(``__part``): no two rows of a history have the same three. Each write is one commit with its ledger (ledger.py). A
query that goes on adds its rows without a look at the table. If a write can have been made before, because its commit
was followed by a failure, or an older checkpoint was restored, or another query reads the topic again, the rows that
the table has are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.spark_consumer.sink.base import TableBatch
from tailrace.spark_consumer.sink.shape import KIND, OFFSET, PART, PARTITION, RECORD, TIME, Layout
from tailrace.spark_consumer.sink.table_columns import changelog_columns
from tailrace.spark_consumer.sink.table_names import quote
from tailrace.spark_consumer.source.sequence import sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tailrace.schemas.sequence import Sequence
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.evolution.outcome import Evolved
    from tailrace.spark_consumer.sink.target_table import TargetTable


def history_rows(
    table: TargetTable, batch: TableBatch, evolved: Evolved, layout: Layout, *, repeated: bool
) -> DataFrame:
    """Return the rows that a write adds; ``repeated``: the table can have some of them."""
    rows = batch.records.select(*changelog_columns(table, batch.schema, evolved, layout), *entry_columns())
    if repeated:
        rows = _not_written(table, rows)
    if batch.truncated is None:
        return rows
    milliseconds = None if batch.write is None else batch.write.truncated_ms
    deletes = _deletes(table.rows(), batch.schema, batch.truncated, milliseconds)
    return rows.unionByName(deletes, allowMissingColumns=True)


def entry_columns() -> list[Column]:
    """Return the columns of changelog rows that every history has."""
    return [
        fn.col("kind").alias(KIND),
        fn.timestamp_millis("ts_ms").alias(TIME),
        fn.col("partition").alias(PARTITION),
        fn.col("offset").alias(OFFSET),
        fn.col("part").alias(PART),
    ]


def _not_written(table: TargetTable, rows: DataFrame) -> DataFrame:
    """Return the rows that a table does not have."""
    least, greatest = rows.agg(fn.min(OFFSET), fn.max(OFFSET)).collect()[0]
    if least is None:
        return rows
    written = table.rows().where(fn.col(OFFSET).between(least, greatest)).select(*RECORD)
    return rows.join(written, list(RECORD), "left_anti").select(*rows.columns)


def _deletes(stored: DataFrame, schema: TableSchema, truncated: Sequence, milliseconds: int | None) -> DataFrame:
    """Return a ``-D`` for each key whose last row is before a truncate event and no ``-D``.

    It has the place of the row that it removes, one part later. Without a known time it has that of the row.
    """
    newest_first = Window.partitionBy(*map(quote, schema.key)).orderBy(
        *(fn.col(name).desc() for name in (SEQUENCE_COLUMN, *RECORD))
    )
    last = stored.withColumn("_rank", fn.row_number().over(newest_first)).where(fn.col("_rank") == 1).drop("_rank")
    left = last.where((fn.col(KIND) != RowKind.DELETE.value) & (fn.col(SEQUENCE_COLUMN) < sequence_literal(truncated)))
    return left.withColumns(
        {
            KIND: fn.lit(RowKind.DELETE.value),
            SEQUENCE_COLUMN: sequence_literal(truncated),
            TIME: fn.col(TIME) if milliseconds is None else fn.timestamp_millis(fn.lit(milliseconds)),
            PART: fn.col(PART) + fn.lit(1),
        }
    )
