"""The stored versions (versions.py) of a table of the target database, as Spark reads them.

Only the versions that a write concerns are read: the keys of the batch are in a staging table, and the database finds
their versions by the unique index. All values are read as texts, so that no driver converts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.sequence import Sequence as Position
from tailrace.spark_consumer.sink.jdbc_columns import TargetForm, read_sequence, read_value, sequence_bytes
from tailrace.spark_consumer.sink.jdbc_dialect import Role
from tailrace.spark_consumer.sink.jdbc_table import JdbcTable, require_table
from tailrace.spark_consumer.sink.shape import SEEN, SEEN_AT, UNTIL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FETCHED: Final = "10000"
"""Rows that an executor gets at a time."""


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """The versions of one table; ``options`` are those of Spark's reader."""

    spark: SparkSession
    options: Mapping[str, str]
    table: JdbcTable
    form: TargetForm
    source: Sequence[str]
    """The columns of the source that the table has."""

    def valid_at(self, sequence: Position) -> DataFrame:
        """Return the versions that begin before a sequence and end behind it."""
        bound, until = self.table.dialect.binary(sequence_bytes(sequence)), self._column(UNTIL)
        return self._read(f"{self._column(SEQUENCE_COLUMN)} < {bound} AND ({until} IS NULL OR {until} > {bound})")

    def ending_behind(self, stage: str) -> DataFrame:
        """Return the versions of the keys in a staging table that end behind the sequence there, or have no end."""
        quote, until = self.table.dialect.quote, self._column(UNTIL)
        key = {name: quote(f"c{number}") for number, name in enumerate(self.form.schema.key)}
        sequence = quote(SEQUENCE_COLUMN)
        same = (f"{self._column(name)} = s.{own}" for name, own in key.items())
        concerned = " AND ".join((*same, f"({until} IS NULL OR {until} >= s.{sequence})"))
        # A task that ran again has staged its keys twice.
        keys = f"SELECT DISTINCT {', '.join((*key.values(), sequence))} FROM {stage}"
        return self._read("TRUE", f" JOIN ({keys}) AS s ON {concerned}")

    def _column(self, name: str) -> str:
        found = require_table(self.table).column(name)
        return f"t.{self.table.dialect.quote(name if found is None else found.name)}"

    def _kinds(self) -> dict[str, tp.DataType]:
        """Return the types of the columns that are read, by name."""
        stored = require_table(self.table)
        found: dict[str, tp.DataType] = {SEQUENCE_COLUMN: tp.BinaryType()}
        for column in (*self.form.source, *self.form.added):
            each = stored.column(column.name)
            if each is not None and (column.name in self.source or column.name in self.form.added_names):
                found[column.name] = each.kind_for(column.kind) or column.kind
        return found

    def _read(self, condition: str, join: str = "") -> DataFrame:
        kinds, dialect = self._kinds(), self.table.dialect
        names = {name: f"c{number}" for number, name in enumerate(kinds)}
        shown = (f"{dialect.text_of(self._column(name), kind)} AS {names[name]}" for name, kind in kinds.items())
        frame = (
            self.spark.read.format("jdbc")
            .options(**{**self.options, **dialect.reading, "fetchsize": _FETCHED, "pushDownPredicate": "false"})
            .option("query", f"SELECT {', '.join(shown)} FROM {self.table.sql_name} AS t{join} WHERE {condition}")
            .option("customSchema", ", ".join(f"{name} STRING" for name in names.values()))
            .load()
        )
        texts = {name: fn.col(own) for name, own in names.items()}
        sequences = {SEQUENCE_COLUMN, *(column.name for column in self.form.added if column.role is Role.SEQUENCE)}
        values: dict[str, Column] = {
            name: read_sequence(text) if name in sequences else read_value(text, kinds[name])
            for name, text in texts.items()
        }
        seen = fn.struct(values.pop(SEEN).alias("seq"), values.pop(SEEN_AT).alias("at"))
        columns = [value.alias(name) for name, value in values.items()]
        return frame.select(*columns, fn.when(texts[SEEN].isNotNull(), seen).alias(SEEN))
