"""The statements of table formats, and the changes of a batch that are merged into a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Listed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tailrace.schemas.sequence import SEQUENCE_COLUMN, Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.sink.table_names import literal, quote
from tailrace.spark_consumer.sink.target import (
    Add,
    AllowNull,
    Drop,
    Operation,
    Rename,
    Retype,
    SetProperties,
    Widen,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as tp

SOURCE: Final = "tailrace_batch"
"""The temporary view with the rows of the batch."""
IS_LATER: Final = f"s.{SEQUENCE_COLUMN} > t.{SEQUENCE_COLUMN}"
"""The condition under which a row s of the batch changes the row t of the table."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The last change of each key of a batch, to be merged into a table."""

    schema: TableSchema
    own: Listed[str]
    others: Listed[str]
    """Columns that become NULL."""
    metadata: str
    """That of the ledger."""
    most: int
    """How many rows there are at most."""
    query: str
    batch: int
    """Who writes them."""
    spark: SparkSession

    @property
    def types(self) -> Mapping[str, str]:
        """The types of the rows, by name in lower case."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RowChanges(Changes):
    """The same as rows."""

    rows: DataFrame
    """The columns ``own``, the sequence, and the column that says whether the row is removed."""
    ranges: Callable[[], str]
    """Reads the batch for ``within``."""

    @property
    def types(self) -> Mapping[str, str]:
        """The types of the rows, by name in lower case."""
        return type_names(self.rows.schema)

    @property
    def within(self) -> str:
        """A condition on the table, with the alias t, that all keys meet; '' if there is none."""
        return self.ranges()


def type_names(columns: tp.StructType) -> dict[str, str]:
    """Return the types of columns as Spark writes them, by name in lower case."""
    return {column.name.lower(): column.dataType.simpleString() for column in columns}


def merge_statement(
    target: str, schema: TableSchema, own: Iterable[str], others: Iterable[str] = (), within: str = ""
) -> str:
    """Return the MERGE statement from the batch view with the columns ``own``; ``others`` of the table become NULL.

    ``within``: a condition on the table that all keys of the batch meet, so that files are skipped.
    """
    on = f"{same_key(schema)} AND {within}" if within else same_key(schema)
    return _statement(target, on, [*own, SEQUENCE_COLUMN], others, matched=f"MATCHED AND {IS_LATER}")


def merge_versions_statement(target: str, schema: TableSchema, own: Iterable[str], within: str = "") -> str:
    """Return the MERGE statement for a table with versions: a row is found by its key and its sequence.

    A version that ends keeps what it has in columns that the source has no longer.
    """
    fields = Sequence._fields
    same = " AND ".join(f"t.{SEQUENCE_COLUMN}.{name} = s.{SEQUENCE_COLUMN}.{name}" for name in fields)
    on = f"{same_key(schema)} AND {same}" + (f" AND {within}" if within else "")
    return _statement(target, on, [*own, SEQUENCE_COLUMN], (), matched="MATCHED")


def same_key(schema: TableSchema) -> str:
    """Return the condition under which a row s of the batch and a row t of the table have the same key."""
    optional = {column.name for column in schema.columns if column.schema.optional}
    return " AND ".join(f"t.{quote(k)} {'<=>' if k in optional else '='} s.{quote(k)}" for k in schema.key)


def _statement(target: str, on: str, own: Iterable[str], others: Iterable[str], *, matched: str) -> str:
    names = [quote(name) for name in own]
    assignments = [*(f"t.{n} = s.{n}" for n in names), *(f"t.{quote(n)} = NULL" for n in others)]
    deleted = f"s.{DELETED_COLUMN}"
    return (
        f"MERGE INTO {target} AS t USING {SOURCE} AS s ON {on}\n"
        f"WHEN {matched} AND {deleted} THEN DELETE\n"
        f"WHEN {matched} THEN UPDATE SET {', '.join(assignments)}\n"
        f"WHEN NOT MATCHED AND NOT {deleted} THEN INSERT ({', '.join(names)})"
        f" VALUES ({', '.join(f's.{n}' for n in names)})"
    )


def alter_clause(operation: Operation) -> str:
    """Return what follows the name of a table in ALTER TABLE."""
    match operation:
        case Add():
            return f"ADD COLUMNS ({column_list(operation.columns)})"
        case Drop():
            return f"DROP COLUMN {quote(operation.column)}"
        case Rename():
            return f"RENAME COLUMN {quote(operation.old)} TO {quote(operation.new)}"
        case Widen() | Retype():
            return f"ALTER COLUMN {quote(operation.column)} TYPE {operation.kind.simpleString()}"
        case AllowNull():
            return f"ALTER COLUMN {quote(operation.column)} DROP NOT NULL"
        case SetProperties():
            return f"SET TBLPROPERTIES ({assignments(operation.properties)})"
        case _:
            raise TypeError(operation)


def assignments(properties: Mapping[str, str]) -> str:
    """Return table properties for Spark SQL."""
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())


def column_list(columns: Iterable[tp.StructField]) -> str:
    """Return columns with their types for Spark SQL."""
    return ", ".join(f"{quote(column.name)} {column.dataType.simpleString()}" for column in columns)
