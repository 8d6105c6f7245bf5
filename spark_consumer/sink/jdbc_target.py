"""What the JDBC sink knows of a table while it is open: its columns, and how rows are staged for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.sequence import Sequence as Position
from tailrace.spark_consumer.evolution.outcome import Evolved
from tailrace.spark_consumer.sink.jdbc_columns import (
    TargetColumn,
    TargetForm,
    converted_values,
    layout_value,
    read_sequence,
    read_value,
    sequence_binary,
    sequence_bytes,
    staged_value,
)
from tailrace.spark_consumer.sink.jdbc_dialect import Merge, Role, Rule, StoredColumn
from tailrace.spark_consumer.sink.jdbc_table import DELETED, JdbcTable, require_table
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.sink.shape import SEEN, SEEN_AT, UNTIL
from tailrace.spark_consumer.sink.table_names import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tailrace.spark_consumer.sink.shape import Layout
    from tailrace.spark_consumer.sink.state import Shard

_FETCHED: Final = "10000"
"""Rows that an executor gets at a time."""


@dataclass(frozen=True, slots=True)
class StagedColumn:
    """A column of a staging table; the columns of one are named by their place: c0, c1, …"""

    name: str
    """The column of the target."""
    value: Column
    declared: str


@dataclass(slots=True)
class JdbcTarget:
    """The target of one captured table."""

    table: JdbcTable
    form: TargetForm
    evolved: Evolved = field(default_factory=Evolved)
    prepared_for: object = None
    """The schema and the alterations that the table was prepared for."""

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.sql_name

    @property
    def shard(self) -> Shard | None:
        """The shard that uses the table."""
        return self.table.shard

    @property
    def layout(self) -> Layout:
        """The layout of the table."""
        return self.form.layout

    @property
    def known(self) -> Ledger:
        """What is known to be applied."""
        return Ledger(self.form.schema.topic) if self.table.entry is None else self.table.entry.ledger

    def converted(self, values: Iterable[Column]) -> list[Column]:
        """Return the values of the columns of the source that the table has, in its types."""
        return converted_values(self.form, self._found, values, holds_nul=self.table.dialect.holds_nul)

    def columns(self) -> list[StagedColumn]:
        """Return what is staged of rows with the columns of the table."""
        stored, zone = require_table(self.table), self.table.dialect.zone
        found = [
            StagedColumn(each.name, staged_value(fn.col(quote(column.name)), _kind(column, each), zone), declared)
            for column, each, declared in self._source()
        ]
        for column in self.form.added:
            each = stored.column(column.name)
            assert each is not None
            found.append(StagedColumn(each.name, layout_value(column, zone), self._declared(column, each)))
        return found

    def key_columns(self) -> list[StagedColumn]:
        """Return what is staged of rows that have the key of the source in the struct ``key``."""
        by_name = {column.name: (column, each, declared) for column, each, declared in self._source()}
        found = []
        for name in self.form.schema.key:
            column, each, declared = by_name[name]
            value = staged_value(fn.col("key").getField(name), _kind(column, each), self.table.dialect.zone)
            found.append(StagedColumn(each.name, value, declared))
        return found

    def merge(self, stage: str, columns: Sequence[StagedColumn], rule: Rule) -> Merge:
        """Return how rows of a staging table change the table."""
        named, stored = self.table.dialect.quote, require_table(self.table)
        key = [(name, stored.column(name)) for name in self.form.key]
        return Merge(
            target=self.table.sql_name,
            stage=stage,
            columns={named(each.name): named(f"c{number}") for number, each in enumerate(columns)},
            key=tuple(named(name if each is None else each.name) for name, each in key),
            sequence=named(SEQUENCE_COLUMN),
            deleted=named(DELETED),
            # A version that ends keeps what it has in columns that the source has no longer.
            cleared=() if rule is Rule.ALWAYS else tuple(map(named, self._cleared())),
            rule=rule,
        )

    @property
    def _found(self) -> dict[str, StoredColumn]:
        """The stored columns that the source gives, by lower-case name."""
        stored, names = require_table(self.table), (column.name for column in self.form.source)
        found = {name.lower(): each for name in names if (each := stored.column(name)) is not None}
        return {name: each for name, each in found.items() if name not in self.evolved.ignored}

    def _source(self) -> list[tuple[TargetColumn, StoredColumn, str]]:
        found = self._found
        pairs = [(column, found[name]) for column in self.form.source if (name := column.name.lower()) in found]
        return [(column, each, self._declared(column, each)) for column, each in pairs]

    def _declared(self, column: TargetColumn, stored: StoredColumn) -> str:
        """Return the type of a column of a staging table."""
        kind = _kind(column, stored)
        role = column.role if column.role is Role.KEY or column.kind == kind else Role.VALUE
        if isinstance(kind, tp.StringType) and role is Role.VALUE and stored.json:
            role = Role.JSON
        return self.table.dialect.column_type(kind, role, self.form.keys)

    def _cleared(self) -> list[str]:
        """Return the columns that the source, or the layout, had earlier."""
        assert self.table.entry is not None
        now = {name.lower() for name in self.form.added_names}
        former = {name.lower() for name in self.table.entry.state.added} - now
        names = (each.name for each in require_table(self.table).columns)
        return [name for name in names if name.lower() in self.evolved.kept | former]


def staged(rows: DataFrame, columns: Sequence[StagedColumn], sequence: Column, deleted: Column) -> DataFrame:
    """Return rows as a staging table has them."""
    values = [each.value.alias(f"c{number}") for number, each in enumerate(columns)]
    return rows.select(*values, sequence_binary(sequence).alias(SEQUENCE_COLUMN), deleted.alias(DELETED))


def _kind(column: TargetColumn, stored: StoredColumn) -> tp.DataType:
    return stored.kind_for(column.kind) or column.kind


def stored_kinds(table: JdbcTable, columns: Iterable[TargetColumn]) -> dict[str, tp.DataType]:
    """Return the types of those columns that the table has, by name."""
    stored = require_table(table)
    found = ((column, stored.column(column.name)) for column in columns)
    return {column.name: _kind(column, each) for column, each in found if each is not None}


def _column(table: JdbcTable, name: str) -> str:
    """Return a column of the table ``t``."""
    found = require_table(table).column(name)
    return f"t.{table.dialect.quote(name if found is None else found.name)}"


def read_texts(
    spark: SparkSession,
    options: Mapping[str, str],
    table: JdbcTable,
    kinds: Mapping[str, tp.DataType],
    rest: str = "",
) -> DataFrame:
    """Return columns of a table, which the query calls ``t``, as texts: so no driver converts them (``read_value``).

    ``options`` are those of Spark's reader; ``rest`` is the end of the query, with joins and conditions.
    """
    dialect, names = table.dialect, {name: f"c{number}" for number, name in enumerate(kinds)}
    shown = (f"{dialect.text_of(_column(table, name), kind)} AS {names[name]}" for name, kind in kinds.items())
    frame = (
        spark.read.format("jdbc")
        .options(**{**options, **dialect.reading, "fetchsize": _FETCHED, "pushDownPredicate": "false"})
        .option("query", f"SELECT {', '.join(shown)} FROM {table.sql_name} AS t{rest}")
        .option("customSchema", ", ".join(f"{name} STRING" for name in names.values()))
        .load()
    )
    return frame.select(*(fn.col(own).alias(name) for name, own in names.items()))


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """The stored versions (versions.py) of one table, as Spark reads them; ``options`` are those of its reader.

    Only the versions that a write concerns are read: the keys of the batch are in a staging table, and the database
    finds their versions by the unique index. All values are read as texts, so that no driver converts them.
    """

    spark: SparkSession
    options: Mapping[str, str]
    table: JdbcTable
    form: TargetForm
    source: Sequence[str]
    """The columns of the source that the table has."""

    def valid_at(self, sequence: Position) -> DataFrame:
        """Return the versions that begin before a sequence and end behind it."""
        bound, until = self.table.dialect.binary(sequence_bytes(sequence)), _column(self.table, UNTIL)
        return self._read(
            f"{_column(self.table, SEQUENCE_COLUMN)} < {bound} AND ({until} IS NULL OR {until} > {bound})"
        )

    def ending_behind(self, stage: str) -> DataFrame:
        """Return the versions of the keys in a staging table that end behind the sequence there, or have no end."""
        quote, until = self.table.dialect.quote, _column(self.table, UNTIL)
        key = {name: quote(f"c{number}") for number, name in enumerate(self.form.schema.key)}
        sequence = quote(SEQUENCE_COLUMN)
        same = (f"{_column(self.table, name)} = s.{own}" for name, own in key.items())
        concerned = " AND ".join((*same, f"({until} IS NULL OR {until} >= s.{sequence})"))
        # A task that ran again has staged its keys twice.
        keys = f"SELECT DISTINCT {', '.join((*key.values(), sequence))} FROM {stage}"
        return self._read("TRUE", f" JOIN ({keys}) AS s ON {concerned}")

    def _kinds(self) -> dict[str, tp.DataType]:
        """Return the types of the columns that are read, by name."""
        names = {*self.source, *self.form.added_names}
        columns = (column for column in (*self.form.source, *self.form.added) if column.name in names)
        return {SEQUENCE_COLUMN: tp.BinaryType(), **stored_kinds(self.table, columns)}

    def _read(self, condition: str, join: str = "") -> DataFrame:
        kinds = self._kinds()
        frame = read_texts(self.spark, self.options, self.table, kinds, f"{join} WHERE {condition}")
        texts = {name: fn.col(quote(name)) for name in kinds}
        sequences = {SEQUENCE_COLUMN, *(column.name for column in self.form.added if column.role is Role.SEQUENCE)}
        values: dict[str, Column] = {
            name: read_sequence(text) if name in sequences else read_value(text, kinds[name])
            for name, text in texts.items()
        }
        seen = fn.struct(values.pop(SEEN).alias("seq"), values.pop(SEEN_AT).alias("at"))
        columns = [value.alias(name) for name, value in values.items()]
        return frame.select(*columns, fn.when(texts[SEEN].isNotNull(), seen).alias(SEEN))
