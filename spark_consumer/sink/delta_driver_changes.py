"""Changes of a Delta table that are rows in the driver, and how they become rows of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as fn

from tailrace.spark_consumer.changelog.flatten import DELETED_COLUMN
from tailrace.spark_consumer.driver_plan import RowFunction, rows_of_type
from tailrace.spark_consumer.sink.delta_rewrite import table_row
from tailrace.spark_consumer.sink.statements import type_names
from tailrace.spark_consumer.sink.table_columns import removed_column, stored_columns
from tailrace.spark_consumer.sink.target_table import TargetTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as tp

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.evolution.outcome import Evolved
    from tailrace.spark_consumer.sink.shape import Layout


class ChangeForm(NamedTuple):
    """What decides how decoded records become rows of a table."""

    decoded: tp.StructType
    """Their type."""
    table: TargetTable
    schema: TableSchema
    evolved: Evolved
    layout: Layout

    def planned(self, spark: SparkSession, known: ChangePlan | None) -> ChangePlan:
        """Return how they become rows; ``known`` if it still tells that."""
        given = self.decoded, self.table.columns, self.schema, self.evolved, self.layout
        if known is not None and known.given == given:
            return known
        columns = stored_columns(self.table, self.schema, self.evolved, self.layout)
        rows = rows_of_type(spark, self.decoded).select(*columns, removed_column(self.layout))
        return ChangePlan(given, rows)


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


@dataclass(frozen=True, slots=True)
class DriverChanges:
    """The last change of each key of a batch: like ``RowChanges``, but only ``rewrite_in_driver`` can write it."""

    spark: SparkSession
    plan: ChangePlan
    decoded: Any
    """A sequence of Scala with decoded records."""
    schema: TableSchema
    own: Sequence[str]
    others: Sequence[str]
    metadata: str
    most: int
    query: str
    batch: int

    @property
    def types(self) -> Mapping[str, str]:
        """The types of the rows, by name in lower case."""
        return self.plan.types

    def rows_of(self, columns: tp.StructType) -> Any:
        """Return the changes as rows with the columns of the table and, last, whether the key is deleted."""
        return self.plan.rows_of(columns, self.decoded)
